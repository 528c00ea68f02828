package resquedtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/resquedtest"
)

// TestFair: tenants take turns in tests, too.
func TestFair(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	number(h, "A", func(context.Context, int) error { return nil })
	h.Fair("low", resqued.Fair{
		Tenant:  func(j *resqued.Job) string { return fmt.Sprint(len(j.Args[0])) }, // of one digit, of two
		Weights: map[string]int{"2": 2},
	})
	q := resquedtest.New(t, h)
	for _, n := range []int{1, 2, 3, 4, 10, 11, 12} {
		enqueue(t, q, "A", n)
	}
	var order []string
	for _, e := range q.Drain(t) {
		order = append(order, string(e.Args[0]))
	}
	require.Equal(t, []string{"1", "10", "11", "2", "12", "3", "4"}, order)
}

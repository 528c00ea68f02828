package system_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

// TestASliceGoesToAProgramThatKnowsItsClass has two daemons take slices from the same queues, one of
// which has never heard of their class.
func TestASliceGoesToAProgramThatKnowsItsClass(t *testing.T) {
	t.Parallel()
	stranger := harness.Start(t, harness.Options{Workers: 2, Queues: "long,later", Config: "handlers:\n  Other:\n    command: ['true']\n"})
	c := longClient(t, stranger)
	enqueue := func(n int) string {
		res, err := c.Enqueue(t.Context(), "Long", []any{5, n}, longjob.Queue("long"))
		require.NoError(t, err)
		return res.UUID
	}
	first := enqueue(1)
	get := func(uuid string) longjob.Run {
		run, err := c.Get(t.Context(), uuid)
		require.NoError(t, err)
		return run
	}
	proctest.Await(t, patience, func() bool { return get(first).Warning != "" }, "a program that does not know the class")
	run := get(first)
	require.Equal(t, longjob.StatusQueued, run.Status)
	require.Contains(t, run.Warning, "no program that has taken its slice knows class \"Long\"")
	require.Zero(t, run.Failures+run.Deaths)

	knows := harness.Start(t, harness.Options{App: true, Workers: 2, Namespace: stranger.Space, Queues: "long,later"})
	all := []string{first}
	for n := range 4 {
		all = append(all, enqueue(2+n))
	}
	limit, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, uuid := range all {
		run, err := c.Wait(limit, uuid)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		require.Zero(t, run.Deaths+run.Failures)
		require.Empty(t, run.Warning)
	}
	require.Empty(t, stranger.Failures())
	require.Equal(t, map[string]string{"0": "5"}, knows.Noted("once"))
	require.Contains(t, stranger.Log(), "this program does not know its class")
}

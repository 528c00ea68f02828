package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

func TestProcEnds(t *testing.T) {
	t.Parallel()
	var e store.ProcEnds
	for _, reason := range []string{"quota", "quota", "memory", "age", "reload", "fewer worker processes", ""} {
		e.CountRecycled(reason)
	}
	e.Died = 4
	require.Equal(t, "died=4 jobs=2 memory=1 age=1 other=3", e.String())
	require.Equal(t, e, store.ParseProcEnds(e.String()))
	require.Zero(t, store.ParseProcEnds(""))
}

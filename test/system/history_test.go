package system_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/test/system/harness"
)

// runsOf returns how many jobs a series has counted all in all: runs, failed, not run.
func runsOf(t *testing.T, d *harness.Daemon, name string) []uint64 {
	t.Helper()
	series, err := history.ParseName(name)
	require.NoError(t, err)
	raw, err := d.Client.Get(t.Context(), d.Key(history.TotalKey(series))).Bytes()
	require.NoError(t, err)
	sum := history.ReadTotal(raw)
	return []uint64{sum.Runs, sum.Failed, sum.Unrun}
}

// TestHistoryCountsEachJob: what worker processes count, which are replaced all the time, is what
// Redis has counted, to the last job.
func TestHistoryCountsEachJob(t *testing.T) {
	t.Parallel()
	for _, perFork := range []int{1, 7} {
		t.Run(fmt.Sprintf("jobs per fork: %d", perFork), func(t *testing.T) {
			t.Parallel()
			n := harness.Jobs(60)
			d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2, JobsPerFork: perFork})
			d.Push("mail", "Count", harness.Range(1, n)...)
			d.Push("report", "Fail", 1, 2, 3)
			d.AwaitProcessed(int64(n+3), patience)
			d.Signal(quit)
			require.Zero(t, d.Exit())
			processed, err := d.Client.Get(t.Context(), d.Key("stat:processed")).Uint64()
			require.NoError(t, err)
			failed, err := d.Client.Get(t.Context(), d.Key("stat:failed")).Uint64()
			require.NoError(t, err)
			require.Equal(t, []uint64{processed, failed, 0}, runsOf(t, d, "t:all"))
			require.Equal(t, []uint64{uint64(n), 0, 0}, runsOf(t, d, "c:Count"))
			require.Equal(t, []uint64{uint64(n), 0, 0}, runsOf(t, d, "q:mail"))
			require.Equal(t, []uint64{3, 3, 0}, runsOf(t, d, "q:report"))
			require.Len(t, d.Keys("resqued:hist:h:*:total"), 1)
		})
	}
}

package system_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/system/harness"
)

// contested returns jobs over few locks, in random order. Jobs with the same lock have equal
// arguments, and so the same duration.
func contested(jobs, keys int) []string {
	payloads := make([]string, jobs)
	for id := range payloads {
		key := rand.IntN(keys)
		payloads[id] = fmt.Sprintf(`{"class":"Hold","args":[%d,%d],"id":"%d"}`, key, 100*(key%8), id)
	}
	return payloads
}

// TestLocksAreHammered runs two daemons, eight processes of eight threads: every job runs once,
// and no two jobs of a lock at the same time.
func TestLocksAreHammered(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]harness.Options{
		"by processes that stay":         {},
		"by processes that are replaced": {JobsPerFork: 200},
		"with keys that Go computes":     {Config: "job_lock_key: '{{class}}/{{args.0}}'\n"},
		// Each push by a foreign program leaves the keys of a unique queue out of step.
		"from unique queues that strangers push to": {Config: "unique_queues: ['*']\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys = 20
			jobs := size(5_000, 50_000)
			o.App, o.Workers, o.Threads, o.Queues, o.Trace = true, 4, 8, "mail,low,*", t.TempDir()
			a := harness.Start(t, o)
			o.Namespace = a.Space
			b := harness.Start(t, o)

			began := time.Now()
			payloads := contested(jobs, keys)
			i := 0
			for part := range slices.Chunk(payloads, 500) {
				a.PushRaw([]string{"mail", "low", "other"}[i%3], part...)
				i++
			}
			a.AwaitProcessed(int64(jobs), 10*time.Minute)
			took := time.Since(began)

			holds := holdsOf(t, readTrace(t, o.Trace))
			requireExclusion(t, holds)
			requireIDs(t, holds, jobs)
			require.Len(t, byKey(holds), keys)
			require.Equal(t, harness.Snapshot{Processed: int64(jobs)}, a.Snapshot())
			requireNoLocks(t, a)
			pids := map[int]bool{}
			for _, h := range holds {
				pids[h.pid] = true
			}
			// The process that ends a job takes the next one of its lock, so not all processes
			// need to get any, but more than one does.
			require.Greater(t, len(pids), 1)
			t.Logf("%d jobs over %d locks by %d processes: %.0f jobs/s", jobs, keys, len(pids), float64(jobs)/took.Seconds())
			for _, d := range []*harness.Daemon{a, b} {
				d.Signal(quit)
				require.Zero(t, d.Exit())
			}
			require.Empty(t, a.Residue())
		})
	}
}

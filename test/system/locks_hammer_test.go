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

// contested are jobs over few locks, in random order. Jobs of one lock have equal
// arguments, and so a time that all of them take.
func contested(jobs, keys int) []string {
	payloads := make([]string, jobs)
	for id := range payloads {
		key := rand.IntN(keys)
		payloads[id] = fmt.Sprintf(`{"class":"Hold","args":[%d,%d],"id":"%d"}`, key, 100*(key%8), id)
	}
	return payloads
}

// Two daemons, eight processes of eight threads: every job runs once, and no two
// of a lock at the same time.
func TestLocksAreHammered(t *testing.T) {
	t.Parallel()
	for name, quota := range map[string]int{
		"by processes that stay":         0,
		"by processes that are replaced": 200,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys = 20
			jobs := size(5_000, 50_000)
			o := harness.Options{App: true, Workers: 4, Threads: 8, JobsPerFork: quota, Trace: t.TempDir(), Queues: "mail,low,*"}
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
			require.GreaterOrEqual(t, len(pids), 2*o.Workers)
			t.Logf("%d jobs over %d locks by %d processes: %.0f jobs/s", jobs, keys, len(pids), float64(jobs)/took.Seconds())
			for _, d := range []*harness.Daemon{a, b} {
				d.Signal(quit)
				require.Zero(t, d.Exit())
			}
			require.Empty(t, a.Residue())
		})
	}
}

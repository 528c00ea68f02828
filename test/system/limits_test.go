package system_test

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestLimits: no more jobs run than limits let, while worker processes are used up or killed, and
// each job runs.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, kills := range map[string]int{"recycled": 0, "killed": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{
				App: true, Workers: 3, Threads: 4, JobsPerFork: 40, Queues: "q,r", Trace: t.TempDir(),
				Config: "max_deaths: 50\nlimits:\n" +
					"  two: {classes: [Hold], key: '{{args.0}}', concurrency: 2}\n" +
					"  five: {queues: ['*'], concurrency: 5}\n",
			})
			const total = 300
			for i := range total {
				d.PushRaw([]string{"q", "r"}[i%2], fmt.Sprintf(`{"class":"Hold","args":[%d,%d],"id":"%d-%03d"}`, i%5, 5000+i, i%5, i))
			}
			stop := sync.OnceValue(d.Conserve(total))
			t.Cleanup(func() { stop() })
			for i := range kills {
				reached := int64(40 * (i + 1))
				proctest.Await(t, patience, func() bool { return d.Snapshot().Processed >= reached && len(d.WorkerPIDs()) > 0 }, "more jobs")
				if pids := d.WorkerPIDs(); len(pids) > 0 {
					_ = syscall.Kill(pids[i%len(pids)], syscall.SIGKILL)
				}
			}
			d.AwaitProcessed(total, patience)
			require.Positive(t, stop())
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())

			// Of a killed job it is not known when it ended.
			holds := slices.DeleteFunc(holdsOf(t, readTrace(t, d.Trace)), func(h hold) bool { return !h.ended })
			most, ended := map[string]int{}, map[string]bool{}
			for _, h := range holds {
				ended[h.id] = true
				running := map[string]int{}
				for _, other := range holds {
					if other.at <= h.at && h.at < other.end {
						running["all"]++
						running["key "+other.id[:1]]++
					}
				}
				for what, n := range running {
					most[what] = max(most[what], n)
				}
			}
			require.Len(t, ended, total)
			for what, n := range most {
				limit := 2
				if what == "all" {
					limit = 5
				}
				require.LessOrEqual(t, n, limit, what)
			}
		})
	}
}

package system_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestFair: tenants take turns while worker processes are used up or killed. Each job runs, each
// tenant's in the order of their pushes, and always in the proportion of the weights. The jobs'
// fences show the order.
func TestFair(t *testing.T) {
	t.Parallel()
	weights := map[string]int{"1": 1, "2": 1, "3": 2}
	for name, kills := range map[string]int{"recycled": 0, "killed": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{
				App: true, Workers: 3, Threads: 4, JobsPerFork: 40, Queues: "q", Trace: t.TempDir(),
				Config: "max_deaths: 50\nfair: {q: {key: '{{args.0}}', weights: {'3': 2}}}\n",
			})
			ctx := t.Context()
			require.NoError(t, d.Client.Set(ctx, d.Key("pause:queue:q"), "1", 0).Err())
			pushed := map[string][]string{}
			total := 0
			for _, tenant := range []string{"1", "2", "3"} { // one backlog behind the other
				for i := range 120 * weights[tenant] {
					id := fmt.Sprintf("%s-%03d", tenant, i)
					d.PushRaw("q", fmt.Sprintf(`{"class":"Hold","args":[%s,%d],"id":%q}`, tenant, 2000+i, id))
					pushed[tenant] = append(pushed[tenant], id)
					total++
				}
			}
			stop := sync.OnceValue(d.Conserve(int64(total)))
			t.Cleanup(func() { stop() })
			require.NoError(t, d.Client.Del(ctx, d.Key("pause:queue:q")).Err())
			for i := range kills {
				reached := int64(30 * (i + 1))
				proctest.Await(t, patience, func() bool { return d.Snapshot().Processed >= reached && len(d.WorkerPIDs()) > 0 }, "more jobs")
				if pids := d.WorkerPIDs(); len(pids) > 0 {
					_ = syscall.Kill(pids[i%len(pids)], syscall.SIGKILL)
				}
			}
			d.AwaitProcessed(int64(total), patience)
			require.Positive(t, stop())
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())

			notes := readTrace(t, d.Trace)
			slices.SortStableFunc(notes, func(a, b note) int { return cmp.Compare(a.fence, b.fence) })
			ended, begun, seen := map[string]bool{}, map[string][]string{}, map[string]bool{}
			slack := 2.0
			if kills > 0 {
				slack += float64(4 * kills) // those of a process that was killed before it noted their start begin again
			}
			for _, n := range notes {
				if n.kind == "end" {
					ended[n.id] = true
				}
				if n.kind == "end" || seen[n.id] {
					continue
				}
				tenant, _, _ := strings.Cut(n.id, "-")
				seen[n.id], begun[tenant] = true, append(begun[tenant], n.id)
				for other, weight := range weights {
					a, b := len(begun[tenant]), len(begun[other])
					if b < len(pushed[other]) && a < len(pushed[tenant]) {
						require.LessOrEqual(t, float64(a)/float64(weights[tenant])-float64(b)/float64(weight), slack, "%s began %d, %s %d", tenant, a, other, b)
					}
				}
			}
			for tenant, ids := range pushed {
				if kills == 0 {
					require.Equal(t, ids, begun[tenant], tenant)
				}
				for _, id := range ids {
					require.True(t, ended[id], id)
				}
			}
		})
	}
}

package system_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// TestLimitsExamples runs the first block of docs/limits.md on two hosts, with commands that note
// when they run.
func TestLimitsExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/limits.md")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	dir := t.TempDir()
	note := func(host string) string {
		command := fmt.Sprintf(`[sh, -c, 'id=$RESQUED_JOB_ID; echo $id $(date +%%s%%N) >>%[1]s/%[2]s; sleep 0.1; echo $id $(date +%%s%%N) >>%[1]s/%[2]s']`, dir, host)
		return block + fmt.Sprintf("handlers:\n  '*': {command: %s}\n", command)
	}
	one := harness.Start(t, harness.Options{Threads: 8, Queues: "q", Config: note("one")})
	two := harness.Start(t, harness.Options{Threads: 8, Queues: "q", Config: note("two"), Host: "two", Namespace: one.Space})
	began, total := time.Now(), 0
	push := func(n int, kind, class, args string) {
		for i := range n {
			one.PushRaw("q", fmt.Sprintf(`{"class":%q,"args":[%s],"id":"%s/%d"}`, class, args, kind, i))
		}
		total += n
	}
	push(25, "stripe", "Charge", `7, 100`)
	push(4, "export a", "Export::Orders", `{"tenant_id": "a"}`)
	push(4, "export b", "Export::Orders", `{"tenant_id": "b"}`)
	push(8, "report", "Report::Year", `2026`)
	one.AwaitProcessed(int64(total), patience)
	for _, d := range []*harness.Daemon{one, two} {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
	require.Empty(t, one.Residue())
	require.Empty(t, one.Failures())

	type run struct {
		what, host string
		at, end    int64
	}
	var runs []run
	for _, host := range []string{"one", "two"} {
		text, err := os.ReadFile(filepath.Join(dir, host))
		if !errors.Is(err, fs.ErrNotExist) { // the other may have been faster
			require.NoError(t, err)
		}
		at := map[string]int64{}
		for line := range strings.Lines(string(text)) {
			cut := strings.LastIndex(line, " ")
			id := line[:cut]
			ns, err := strconv.ParseInt(strings.TrimSpace(line[cut:]), 10, 64)
			require.NoError(t, err)
			if at[id] == 0 {
				at[id] = ns
				continue
			}
			what, _, _ := strings.Cut(id, "/")
			runs = append(runs, run{what, host, at[id], ns})
		}
	}
	require.Len(t, runs, total)
	most, last := map[string]int{}, int64(0)
	for _, r := range runs {
		together, there := 0, 0
		for _, o := range runs {
			if o.what == r.what && o.at <= r.at && r.at < o.end {
				together++
				if o.host == r.host {
					there++
				}
			}
		}
		most[r.what] = max(most[r.what], together)
		if r.what == "report" {
			most["reports of a host"] = max(most["reports of a host"], there)
		}
		if r.what == "stripe" {
			last = max(last, r.at)
		}
	}
	require.LessOrEqual(t, most["stripe"], 5)
	require.Equal(t, 1, most["export a"])
	require.Equal(t, 1, most["export b"])
	require.LessOrEqual(t, most["reports of a host"], 2)
	// Of 25 jobs, 20 may begin at once; five take 0.6 s each, except for half a second.
	require.Greater(t, time.Unix(0, last).Sub(began), 2*time.Second)
}

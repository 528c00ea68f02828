package system_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// rubyCount is a class that notes each of its runs in a file, whatever happens to its runner
// afterwards.
const rubyCount = `class Count
  RAN = File.open(ENV.fetch("COUNT_FILE"), File::WRONLY | File::APPEND | File::CREAT)
  def self.perform(id)
    RAN.syswrite("#{id}\n")
    sleep(0.001 * rand(4))
  end
end
`

// rubyRunner returns the configuration of a daemon with a Ruby runner of that name. Titles of
// Ruby's processes have the name, and their environment is unreadable.
func rubyRunner(tb testing.TB, name, app, more string) string {
	tb.Helper()
	shim, err := filepath.Abs("../../runners/ruby/exe/resqued-runner")
	require.NoError(tb, err)
	file := filepath.Join(tb.TempDir(), "app.rb")
	require.NoError(tb, os.WriteFile(file, []byte(app), 0o600))
	return `
runners:
  ` + name + `:
    command: [ruby, ` + strconv.Quote(shim) + `, ` + strconv.Quote(file) + `]
` + more + `
handlers:
  "*": {runner: ` + name + `}
`
}

// kin are the processes of a runner.
type kin struct{ runners, templates []int }

// kinOf returns the processes of a runner by its name; a template's title says what it is. A
// fork has the title of its template until it sets its own.
func kinOf(name string) (k kin) {
	all := proctest.Find(func(p proctest.Process) bool { return strings.HasPrefix(p.Title, "resqued-runner "+name+":") })
	for _, p := range all {
		forked := slices.ContainsFunc(all, func(other proctest.Process) bool { return other.PID == p.Parent })
		if strings.HasSuffix(p.Title, ": template") && !forked {
			k.templates = append(k.templates, p.PID)
		} else {
			k.runners = append(k.runners, p.PID)
		}
	}
	return k
}

// TestRunnersAreKilled works thousands of Ruby jobs while runners, templates and worker processes
// are killed at random: none is lost, and only those that were in hand run again.
func TestRunnersAreKilled(t *testing.T) {
	t.Parallel()
	jobs, ran := harness.Load(), filepath.Join(t.TempDir(), "ran")
	d := harness.Start(t, harness.Options{
		Workers: 2, Threads: 4, Queues: "*",
		Config: rubyRunner(t, "killed", rubyCount, "    jobs_per_runner: 200\n    env: {COUNT_FILE: "+ran+"}"),
		Env:    []string{"RESQUED_MAX_DEATHS=1000"}, // the same job may be hit three times by chance
	})
	d.Push("mail", "Count", harness.Range(1, jobs)...)
	stop := d.Conserve(int64(jobs))
	r := rand.New(rand.NewPCG(1, 2))
	kills := map[string]int{}
	for d.Snapshot().Processed < int64(jobs) && kills["runner"]+kills["template"]+kills["worker"] < 60 {
		k := kinOf("killed")
		what, pids := "runner", k.runners
		switch r.IntN(6) {
		case 0:
			what, pids = "template", k.templates
		case 1:
			what, pids = "worker", d.WorkerPIDs()
		}
		if len(pids) == 0 {
			continue
		}
		pid := pids[r.IntN(len(pids))]
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			kills[what]++
		}
		proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of %s %d", what, pid)
		before := d.Snapshot().Processed
		proctest.Await(t, 2*time.Minute, func() bool { return d.Snapshot().Processed >= min(before+50, int64(jobs)) }, "jobs that go on after the end of %s %d", what, pid)
	}
	for _, what := range []string{"runner", "template", "worker"} {
		require.Positive(t, kills[what], "kills of %s", what)
	}
	d.AwaitProcessed(int64(jobs), 5*time.Minute)
	stop()
	text, err := os.ReadFile(ran)
	require.NoError(t, err)
	times := map[string]int{}
	for id := range strings.FieldsSeq(string(text)) {
		times[id]++
	}
	require.Len(t, times, jobs)
	again := 0
	for _, n := range times {
		again += n - 1
	}
	require.LessOrEqual(t, again, kills["runner"]+kills["worker"]*4, "only jobs in hand may run again; killed: %v", kills)
	require.Empty(t, d.Failures())
	t.Logf("%d jobs, killed: %v, %d ran again", jobs, kills, again)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
	require.Empty(t, d.Processes())
	require.Empty(t, kinOf("killed"))
}

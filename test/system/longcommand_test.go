package system_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

// counts is a long job in sh. It notes numbers one after the other, each with its slice's fence,
// and saves each before the next.
const counts = `
read -r job
n=$(printf %s "$job" | sed -n 's/.*"state":{"n":\([0-9]*\)}.*/\1/p')
n=${n:-0} k=0 over=
trap 'over=1' TERM
while [ $n -lt $1 ] && [ ! $over ]; do
	n=$((n + 1)) k=$((k + 1))
	echo "$n $RESQUED_LONG_FENCE" >> units
	sleep 0.02
	echo "{\"state\":{\"n\":$n},\"progress\":{\"done\":$n,\"total\":$1,\"message\":\"number $n\"}}" >&3
	while [ "$said" != "{\"saved\":$k}" ]; do read -r said <&4; done
done
if [ $n -lt $1 ]; then echo '{"yield":true}' >&3; else echo '{"done":true}' >&3; fi
`

// counting returns the configuration of a daemon with such a long job that counts to numbers.
func counting(t *testing.T, numbers int) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "count.sh")
	require.NoError(t, os.WriteFile(script, []byte(counts), 0o600))
	return fmt.Sprintf("resque_term_timeout: 5s\nhandlers:\n  Count:\n    command: [sh, %s, '%d']\n    queue: long\n"+
		"    long_job: {requeue_queue: later, slice: 1s, max_deaths: 50, retry_after: 1s}\n", script, numbers)
}

// units returns the noted lines.
func units(d *harness.Daemon) []string {
	text, _ := os.ReadFile(filepath.Join(d.Dir, "units"))
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// checkUnits requires that the numbers from 1 to n were noted in order, by one slice at a time,
// and returns how many were noted twice.
func checkUnits(t *testing.T, lines []string, n int) (repeated int) {
	t.Helper()
	last, lastFence := 0, int64(0)
	for _, line := range lines {
		var unit int
		var fence int64
		_, err := fmt.Sscan(line, &unit, &fence)
		require.NoError(t, err, line)
		require.GreaterOrEqual(t, fence, lastFence, "two slices at once, at %d", unit)
		if unit == last {
			require.Greater(t, fence, lastFence, "a number twice in a slice")
			repeated++
		} else {
			require.Equal(t, last+1, unit)
		}
		last, lastFence = unit, fence
	}
	require.Equal(t, n, last)
	return repeated
}

// TestALongJobInAnotherLanguageSurvivesEverything deploys the daemon again and again, kills its
// worker processes and crashes its Redis while a long job runs. No number is left out, and one
// is noted twice only if its process was killed with it.
func TestALongJobInAnotherLanguageSurvivesEverything(t *testing.T) {
	t.Parallel()
	numbers := 300
	if harness.Full() {
		numbers = 1000
	}
	server := redistest.Start(t, durable)
	d := harness.Start(t, harness.Options{Workers: 2, JobsPerFork: 3, Config: counting(t, numbers), Redis: server})
	c := longClient(t, d)
	out, _, code := d.Run("longjobs", "start", "Count", "-o", "name", "--config", d.ConfigFile)
	require.Zero(t, code)
	uuid := strings.TrimSpace(out)
	_, _, code = d.Run("longjobs", "start", "Count", "-o", "name", "--config", d.ConfigFile)
	require.Zero(t, code)

	troubled, peace := context.WithCancel(t.Context())
	defer peace()
	kills := make(chan int)
	go func() {
		killed := 0
		defer func() { kills <- killed }()
		random := rand.New(rand.NewPCG(3, 4))
		for n := 1; ; n++ {
			select {
			case <-troubled.Done():
				return
			case <-time.After(time.Duration(500+random.IntN(1000)) * time.Millisecond):
			}
			if n%3 == 0 {
				_ = syscall.Kill(d.PID, syscall.SIGHUP)
			} else if pids := d.WorkerPIDs(); len(pids) > 0 {
				killed++
				_ = syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL)
			}
		}
	}()
	proctest.Await(t, 2*time.Minute, func() bool { return len(units(d)) > numbers/2 }, "progress")
	server.Kill()
	server.Restart()
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run, err := c.Wait(limit, uuid)
	peace()
	killed := <-kills
	require.NoError(t, err)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	require.Empty(t, d.Failures())
	require.EqualValues(t, numbers, run.Steps[0].Done)
	require.Equal(t, fmt.Sprintf("number %d", numbers), run.Message)
	require.Greater(t, run.Slices, 1)
	repeated := checkUnits(t, units(d), numbers)
	require.LessOrEqual(t, repeated, killed+1)
	runs, err := c.List(t.Context(), longjob.Filter{})
	require.NoError(t, err)
	require.Len(t, runs, 1, "an equal run was enqueued once")
	t.Logf("%d numbers in %d slices; %d processes killed, %d numbers repeated, %s of work", numbers, run.Slices, killed, repeated, run.Ran)
}

// TestALongJobInAnotherLanguageLetsItsProcessGo checks that a drain ends the slice with the
// unit under way, that a kill is not a failure, and that Cancel ends the program.
func TestALongJobInAnotherLanguageLetsItsProcessGo(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			config := strings.Replace(counting(t, 100000), "slice: 1s", "slice: 1h", 1)
			d := harness.Start(t, harness.Options{Config: config})
			c := longClient(t, d)
			res, err := c.EnqueueUnique(t.Context(), "Count", nil, longjob.Queue("long"))
			require.NoError(t, err)
			proctest.Await(t, patience, func() bool { return len(units(d)) > 3 }, "units")
			d.Signal(sig)
			require.Zero(t, d.Exit())
			run, err := c.Get(t.Context(), res.UUID)
			require.NoError(t, err)
			require.Equal(t, longjob.StatusQueued, run.Status, run.Error)
			require.Empty(t, d.Failures())
			require.Equal(t, fmt.Sprint(run.Steps[0].Done), string(run.State["n"]))
			lines := units(d)
			require.Zero(t, checkUnits(t, lines, len(lines)))
			require.EqualValues(t, len(lines), run.Steps[0].Done, "the unit under way came to its end")
			out, _, code := d.Run("longjobs")
			require.Zero(t, code)
			require.Contains(t, out, "/100000")
		})
	}
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		config := strings.Replace(counting(t, 100000), "slice: 1s", "slice: 1h", 1)
		d := harness.Start(t, harness.Options{Config: config})
		c := longClient(t, d)
		d.PushRaw("long", `{"class":"Count","args":[]}`) // by a program that does not know long jobs
		proctest.Await(t, patience, func() bool { return len(units(d)) > 3 }, "units")
		runs, err := c.List(t.Context(), longjob.Filter{})
		require.NoError(t, err)
		require.Len(t, runs, 1)
		_, _, code := d.Run("longjobs", "cancel", runs[0].UUID)
		require.Zero(t, code)
		proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 0 }, "its end")
		d.Signal(syscall.SIGQUIT)
		require.Zero(t, d.Exit())
		run, err := c.Get(t.Context(), runs[0].UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCancelled, run.Status)
		require.Less(t, len(units(d)), 100000)
		require.Empty(t, d.Failures())
	})
}

// python returns an environment variable that makes python3 start at once, and skips a test
// without Python. The python3 on PATH may be a script that selects a version, which can take
// longer than a slice.
func python(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 on this machine")
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	return "PATH=" + filepath.Dir(strings.TrimSpace(string(out))) + ":" + os.Getenv("PATH")
}

// TestTheExampleOfALongJobInPython checks the example: it continues after the last invoice when
// its slice is over, its worker process is killed, or its daemon is drained.
func TestTheExampleOfALongJobInPython(t *testing.T) {
	t.Parallel()
	path := python(t)
	const invoices = 60
	from := filepath.Join("..", "..", "examples", "longjob-python")
	config, err := os.ReadFile(filepath.Join(from, "resqued.yaml"))
	require.NoError(t, err)
	text := strings.Replace(string(config), "slice: 5s", "slice: 1s", 1)
	require.NotEqual(t, string(config), text)
	program, err := os.ReadFile(filepath.Join(from, "invoices.py"))
	require.NoError(t, err)
	start := func(o harness.Options) *harness.Daemon {
		o.Config, o.Env = text, []string{"SECONDS_EACH=0.05", path}
		return harness.Start(t, o)
	}
	d := start(harness.Options{})
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "invoices.py"), program, 0o600))
	out, _, code := d.Run("longjobs", "start", "Invoices", "north", fmt.Sprint(invoices), "-o", "name", "--config", d.ConfigFile)
	require.Zero(t, code)
	c, uuid := longClient(t, d), strings.TrimSpace(out)

	sent := func() []string {
		text, _ := os.ReadFile(filepath.Join(d.Dir, "north.outbox"))
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	slices := func() int {
		run, err := c.Get(t.Context(), uuid)
		require.NoError(t, err)
		return run.Slices
	}
	proctest.Await(t, patience, func() bool { return slices() >= 1 && len(sent()) >= 5 }, "the end of a slice")
	for _, pid := range d.WorkerPIDs() {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	before := len(sent())
	proctest.Await(t, patience, func() bool { return len(sent()) > min(before+3, invoices-1) }, "invoices after a death")
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run, err := c.Wait(limit, uuid)
	require.NoError(t, err)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	require.Empty(t, run.Warning)
	require.Empty(t, d.Failures())
	d.AwaitLog(fmt.Sprintf("north: %d invoices sent in", invoices))

	last, repeated := 0, 0
	for _, line := range sent() {
		var n int
		var fence int64
		_, err := fmt.Sscanf(line, "north-%d %d", &n, &fence)
		require.NoError(t, err, line)
		if n == last {
			repeated++
		} else {
			require.Equal(t, last+1, n)
		}
		last = n
	}
	require.Equal(t, invoices, last)
	require.LessOrEqual(t, repeated, 1, "only the invoice that was under way at the death")
	require.Greater(t, run.Slices, 2)
}

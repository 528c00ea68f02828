package system_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// faults are classes that harm their runner. Each notes when it begins.
const faults = `
def channel
  Dir.children("/proc/self/fd").map(&:to_i).find { |fd| fd > 2 && UNIXSocket.for_fd(fd).tap { |s| s.autoclose = false }.local_address.unix? && File.readlink("/proc/self/fd/#{fd}").start_with?("socket") rescue false }
end
def socket = UNIXSocket.for_fd(channel).tap { |s| s.autoclose = false }
class Fault
  def self.perform(id)
    note("begin", name, id, Process.pid, Process.clock_gettime(Process::CLOCK_MONOTONIC))
    harm(id)
    note("end", name, id, Process.pid, Process.clock_gettime(Process::CLOCK_MONOTONIC))
  end
end
class Fine < Fault; def self.harm(_) = nil; end
class Gate < Fault; def self.harm(_) = gate("go"); end
class Busy < Fault; def self.harm(_) = (begin; loop {}; rescue Exception; retry; end); end
class Native < Fault
  def self.harm(_)
    require "fiddle"
    Fiddle::Function.new(Fiddle.dlopen(nil)["sleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true).call(1000)
  end
end
class Leaver < Fault
  def self.harm(_)
    pid = Process.spawn("setsid", "sleep", "1000", pgroup: true)
    Process.detach(pid)
    note("left", pid)
    begin; sleep; rescue Exception; retry; end
  end
end
class Out < Fault; def self.harm(_) = 500.times { $stdout.write(("o" * 99 + "\n") * 1000) }; end
class Err < Fault; def self.harm(_) = 500.times { $stderr.write(("e" * 99 + "\n") * 1000) }; end
class Junk < Fault; def self.harm(_) = (socket.write("no json\n"); sleep); end
class Twice < Fault; def self.harm(_) = (socket.write("{\"done\":1}\n{\"done\":1}\n"); sleep); end
class Closer < Fault; def self.harm(_) = (socket.shutdown; sleep); end
class Exits < Fault; def self.harm(_) = exit!(3); end
class Traps < Fault; def self.harm(_) = %w[TERM INT QUIT HUP CHLD USR1].each { |s| trap(s, "IGNORE") }; end
class Chdir < Fault; def self.harm(_) = Dir.chdir("/"); end
class Hog < Fault; def self.harm(_) = ($held = "x" * 120_000_000); end
`

// startFaults starts a daemon whose runner performs the classes of faults.
func startFaults(t *testing.T, name string, threads int, more string) (*rubyApp, *harness.Daemon) {
	t.Helper()
	a := newRubyApp(t, name, "require 'socket'\n"+faults)
	d := harness.Start(t, harness.Options{
		Threads: threads, Config: a.config("    kill_after: 500ms\n") + more,
		Env: []string{"RESQUED_MAX_DEATHS=2"},
	})
	return a, d
}

// pidOf returns the process of a note, which is its fourth word.
func pidOf(t *testing.T, note []string) int {
	t.Helper()
	pid, err := strconv.Atoi(note[3])
	require.NoError(t, err, "%q", note)
	return pid
}

// TestRunnerShortDeaths kills a runner under its job: it runs again, and has failed after the second
// death.
func TestRunnerShortDeaths(t *testing.T) {
	t.Parallel()
	a, d := startFaults(t, "dies", 1, "")
	d.Push("q", "Gate", 1)
	for n := 1; n <= 2; n++ {
		notes := a.await("begin", n)
		require.NoError(t, syscall.Kill(pidOf(t, notes[n-1]), syscall.SIGKILL))
	}
	f := d.AwaitFailures(1)
	require.Equal(t, "Resque::DirtyExit", f[0].Exception)
	require.Contains(t, f[0].Error, "of runner dies was ended by SIGKILL")
	d.Push("q", "Fine", 2)
	d.AwaitProcessed(2, patience)
	require.Len(t, a.notes("begin"), 3)
	require.Len(t, a.notes("end"), 1)
	a.ended(d)
}

// plugins are classes that act like resque-lock-timeout and resque-retry on a death.
const plugins = `
class Locked
  def self.perform(id) = (note("begin", id, Process.pid); gate("go"))
  def self.around_perform_lock(*)
    File.open(File.join(%DIR%, "lock"), File::CREAT | File::EXCL).close
    yield
    File.delete(File.join(%DIR%, "lock"))
  rescue Errno::EEXIST
    note("locked")
  end
  def self.on_failure_lock(error, id)
    note("told", id, error.class, error.message)
    gate("hook")
    File.delete(File.join(%DIR%, "lock")) if error.is_a?(Resque::DirtyExit)
  end
end
class Again < Locked
  def self.around_perform_lock(*) = yield
  def self.on_failure_lock(error, id) = note("again", id, error.class)
end
class Suppressing < Resque::Failure::Multiple
  def save = (super unless payload["class"] == "Again")
end
Suppressing.classes = [Resque::Failure::Redis]
Resque::Failure.backend = Suppressing
`

// TestRunnerDeathsAndHooks kills runners of jobs with failure hooks: the hooks run, as in
// Resque's worker, and the job does not run again in addition to their effect.
func TestRunnerDeathsAndHooks(t *testing.T) {
	t.Parallel()
	standin, err := filepath.Abs("../../runners/ruby/test/apps/standin.rb")
	require.NoError(t, err)
	a := newRubyApp(t, "hooks", fmt.Sprintf("require 'json'\nrequire %q\n", standin))
	a.write(fmt.Sprintf("require 'json'\nrequire %q\n", standin) + strings.ReplaceAll(plugins, "%DIR%", strconv.Quote(a.d)))
	d := harness.Start(t, harness.Options{Threads: 1, Config: a.config("")})
	d.Push("q", "Locked", 1)
	pid, err := strconv.Atoi(a.await("begin", 1)[0][2])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	a.await("told", 1)
	old := d.WorkerPIDs()[0]
	d.Signal(hup) // a deploy meanwhile: the hooks end in the old process
	proctest.Await(t, patience, func() bool { return slices.ContainsFunc(d.WorkerPIDs(), func(pid int) bool { return pid != old }) }, "the next worker process")
	a.open("hook")
	f := d.AwaitFailures(1)
	require.Equal(t, "Resque::DirtyExit", f[0].Exception)
	require.Contains(t, f[0].Error, "its failure hooks were told")
	told := strings.Join(a.notes("told")[0], " ")
	require.Contains(t, told, fmt.Sprintf("told 1 Resque::DirtyExit process %d of runner hooks was ended by SIGKILL", pid))

	d.Push("q", "Again", 2)
	pid, err = strconv.Atoi(a.await("begin", 2)[1][2])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	d.AwaitLog("Suppressing suppressed Resque::DirtyExit")

	// If the worker process dies, too, the next one runs the hooks.
	d.Push("q", "Locked", 3)
	a.await("begin", 3)
	killWorkers(t, d)
	f = d.AwaitFailures(2)
	require.Equal(t, "Resque::DirtyExit", f[1].Exception)
	require.Regexp(t, "^a worker process, or its host, died with the job before this run; its failure hooks were told", f[1].Error)
	require.Equal(t, "told 3 Resque::DirtyExit a worker process, or its host, died with the job before this run", strings.Join(a.notes("told")[1], " "))

	a.open("go")
	d.Push("q", "Locked", 4)
	d.AwaitProcessed(4, patience)
	require.Len(t, a.notes("begin"), 4, "each has run once")
	require.Len(t, d.Failures(), 2)
	require.Len(t, a.notes("again"), 1)
	require.Empty(t, a.notes("locked"))
	events, _, _ := d.Run("events", "--kind", "died")
	require.Equal(t, 2, strings.Count(events, "a runner, with "), events)
	a.ended(d)
}

// TestTemplateWithoutRoom leaves a template no descriptors when it should fork a runner: it says
// so and ends, and its successor forks the runner.
func TestTemplateWithoutRoom(t *testing.T) {
	t.Parallel()
	a, d := startFaults(t, "crowded", 1, "")
	d.Push("q", "Fine", 1)
	d.AwaitProcessed(1, patience)
	k := kinOf("crowded")
	require.Len(t, k.templates, 1)
	require.Len(t, k.runners, 1)
	var had unix.Rlimit
	require.NoError(t, unix.Prlimit(k.templates[0], unix.RLIMIT_NOFILE, nil, &had))
	require.NoError(t, unix.Prlimit(k.templates[0], unix.RLIMIT_NOFILE, &unix.Rlimit{Max: had.Max}, nil))
	require.NoError(t, syscall.Kill(k.runners[0], syscall.SIGKILL))
	d.AwaitLog("the limit of open files is 0")
	d.AwaitLog("a template of runners has ended; its jobs wait until it is there again")
	d.Push("q", "Fine", 2)
	d.AwaitProcessed(2, patience)
	require.Empty(t, d.Failures())
	require.False(t, proctest.Alive(k.templates[0]))
	a.ended(d)
}

// TestRunnerDeaths: jobs end their own runner.
func TestRunnerDeaths(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{
		"Exits": "exited with code 3", "Closer": "", "Junk": "no json", "Twice": "does not have",
	} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			a, d := startFaults(t, "dies-"+strings.ToLower(class), 1, "")
			d.Push("q", class, 1)
			if class == "Twice" { // its first answer ends the job, the second its runner
				d.AwaitLog("broke the protocol")
			} else {
				f := d.AwaitFailures(1)
				require.Equal(t, "Resque::DirtyExit", f[0].Exception)
				require.Contains(t, f[0].Error, want)
				require.Len(t, a.notes("begin"), 2)
			}
			d.Push("q", "Fine", 2)
			d.AwaitProcessed(2, patience)
			require.Len(t, a.notes("end"), 1)
			a.ended(d)
		})
	}
}

// TestRunnerHangs stops jobs that ignore it: nothing of them is left when their lock is free.
func TestRunnerHangs(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"Busy", "Native", "Leaver"} {
		for _, way := range []string{"timeout", "kill"} {
			t.Run(class+" by "+way, func(t *testing.T) {
				t.Parallel()
				name := strings.ToLower("hangs-" + class + "-" + way)
				lock := "lock: {key: one, on_locked: requeue}"
				options := lock
				if way == "timeout" {
					options += ", timeout: 1s"
				}
				a, d := startFaults(t, name, 2, fmt.Sprintf("  %s: {runner: %s, %s}\n  Fine: {runner: %[2]s, %s}\n", class, name, options, lock))
				d.PushRaw("q", `{"class":"`+class+`","args":[1],"id":"hung"}`)
				pid := pidOf(t, a.await("begin", 1)[0])
				d.Push("q", "Fine", 2)
				left := 0
				if class == "Leaver" {
					left, _ = strconv.Atoi(a.await("left", 1)[0][1])
				}
				if way == "kill" {
					_, errs, code := d.Run("jobs", "kill", "hung")
					require.Zero(t, code, errs)
				}
				second := a.await("begin", 2)[1]
				require.False(t, proctest.Alive(pid), "the second job began while the first could still run")
				require.True(t, left == 0 || !proctest.Alive(left), "what it has left runs")
				require.Equal(t, "Fine", second[1])
				f := d.AwaitFailures(1)
				require.Contains(t, string(f[0].Payload), class)
				d.AwaitProcessed(2, patience)
				a.ended(d)
			})
		}
	}
}

// TestRunnerNuisances: jobs cause mere disturbances; none is lost, and the next one has a good
// runner.
func TestRunnerNuisances(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"Out", "Err", "Traps", "Chdir"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			a, d := startFaults(t, "odd-"+strings.ToLower(class), 1, "")
			d.Push("q", class, 1)
			d.Push("q", "Fine", 2)
			d.AwaitProcessed(2, patience)
			require.Len(t, a.notes("end"), 2)
			require.Empty(t, d.Failures())
			a.ended(d)
		})
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		a := newRubyApp(t, "hog", "require 'socket'\n"+faults)
		d := harness.Start(t, harness.Options{Config: a.config("    max_rss: 60m\n")})
		d.Push("q", "Hog", 1)
		pid := pidOf(t, a.await("end", 1)[0])
		proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of the runner")
		d.Push("q", "Fine", 2)
		d.AwaitProcessed(2, patience)
		require.NotEqual(t, pid, pidOf(t, a.notes("end")[1]))
		require.Empty(t, d.Failures())
		a.ended(d)
	})
}

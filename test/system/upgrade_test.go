package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// deployed is a daemon whose program is replaced while it runs.
type deployed struct {
	*harness.Daemon
	t       *testing.T
	program string
	log     string
	// next is the process that has taken over; 0 = none has.
	next int
}

// deploy starts a daemon of the first version, from a file of its own.
func deploy(t *testing.T, o harness.Options) *deployed {
	t.Helper()
	dir := t.TempDir()
	d := &deployed{t: t, program: filepath.Join(dir, "worker"), log: filepath.Join(dir, "log")}
	if o.Binary == "" {
		o.Binary = d.program
	} else {
		d.program = o.Binary
	}
	d.install(harness.App(t))
	// A file, because the daemon's second process still writes when the first one has ended.
	out, err := os.Create(d.log)
	require.NoError(t, err)
	o.Output = out
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(d.log)
			t.Logf("the daemon's log:\n%s", text)
		}
		_ = out.Close()
	})
	d.Daemon = harness.Start(t, o)
	return d
}

// install replaces the daemon's program like installers do: by a rename.
func (d *deployed) install(from string) {
	d.t.Helper()
	program, err := os.ReadFile(from)
	require.NoError(d.t, err)
	d.installText(string(program))
}

func (d *deployed) installText(program string) {
	d.t.Helper()
	at, err := filepath.EvalSymlinks(d.program)
	if err != nil {
		at = d.program
	}
	proctest.WriteProgram(d.t, at+".new", []byte(program))
	require.NoError(d.t, os.Rename(at+".new", at))
}

// ask runs a verb that asks the daemon for something.
func (d *deployed) ask(verb string) (text string, code int) {
	d.t.Helper()
	out, errs, code := d.Run(verb, "--socket", "control.sock", "-o", "table")
	return out + errs, code
}

// handOver makes the next version take over, through ask, and returns its process id.
func (d *deployed) handOver(verb string) int {
	d.t.Helper()
	text, code := d.ask(verb)
	require.Zero(d.t, code, text)
	main := 0
	proctest.Await(d.t, patience, func() bool { // what was sent is read later
		main = d.main()
		return strings.Contains(text, fmt.Sprintf("process %d is in charge", main))
	}, "the process id that the service manager is told")
	require.NotEqual(d.t, d.PID, main)
	d.adopt(main)
	return main
}

// adopt makes the test end another process of the daemon, a child of the test.
func (d *deployed) adopt(pid int) {
	d.next = pid
	d.t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		proctest.Within(patience, func() bool {
			got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			return got == pid || err != nil
		})
	})
}

// main is the last main process reported to the service manager.
func (d *deployed) main() int {
	pid := 0
	for _, line := range d.Notified() {
		if text, ok := strings.CutPrefix(line, "MAINPID="); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	return pid
}

// ends waits for the end of the process that has taken over.
func (d *deployed) ends() {
	d.t.Helper()
	proctest.Await(d.t, patience, func() bool { return !proctest.Alive(d.next) }, "the end of process %d", d.next)
}

// by counts the jobs that worker processes of a master have ended.
func (d *deployed) by(pid int) int {
	n := 0
	for name, jobs := range d.Noted("ran-by") {
		if strings.Contains(name, fmt.Sprintf(":%d-", pid)) {
			count, _ := strconv.Atoi(jobs)
			n += count
		}
	}
	return n
}

// once requires that n jobs have run once each.
func (d *deployed) once(n int) {
	d.t.Helper()
	d.AwaitNoted("ran", n)
	ran := d.Noted("ran")
	require.Len(d.t, ran, n)
	for id, times := range ran {
		require.Equal(d.t, "1", times, "job %s", id)
	}
	require.Empty(d.t, d.Failures())
}

// unharmed requires that only the old program works.
func (d *deployed) unharmed(because string) {
	d.t.Helper()
	require.Zero(d.t, d.main())
	proctest.Await(d.t, patience, func() bool { return strings.Contains(d.Status(), "reload refused: ") }, "the status")
	require.Contains(d.t, d.Status(), because)
	d.Push("mail", "Count", 1000)
	proctest.Await(d.t, patience, func() bool { return d.Noted("ran")["1000"] == "1" }, "a job")
	require.Equal(d.t, 1, d.by(d.PID))
	require.False(d.t, d.Ended())
	d.Signal(syscall.SIGQUIT)
	require.Zero(d.t, d.Exit())
}

func TestUpgrade(t *testing.T) {
	t.Parallel()

	t.Run("the next version works while a job of the old one goes on", func(t *testing.T) {
		t.Parallel()
		pidfile := filepath.Join(t.TempDir(), "resqued.pid")
		d := deploy(t, harness.Options{Workers: 3, Threads: 2, Config: "pidfile: " + pidfile + "\n"})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		d.Push("mail", "Count", harness.Range(2, 500)...)
		d.install(harness.NextApp(t))
		next := d.handOver("reload")
		d.Push("mail", "Count", harness.Range(501, 1000)...)
		proctest.Await(t, patience, func() bool { return len(d.Noted("ran")) == 999 }, "the jobs of both versions")
		require.NotZero(t, d.by(next), "the new version has worked nothing")
		require.Empty(t, d.Noted("ran")["1"], "the job in hand has not ended yet")
		require.False(t, d.Ended(), "the old version has the job in hand")
		text, err := os.ReadFile(pidfile)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d\n", next), string(text))
		// All slots are handed over: the old one only has the process of the job.
		proctest.Await(t, patience, func() bool { return len(d.Workers()) == 1 && len(proctest.Children(next)) == 3 }, "the slots")
		d.Open()
		require.Zero(t, d.Exit())
		d.once(1000)
		require.FileExists(t, pidfile)
		proctest.Await(t, patience, func() bool { return strings.Contains(d.Status(), "running, 3 workers, ") }, "the status")
		out, _, _ := d.Run("workers", "-o", "json")
		require.Contains(t, out, harness.NextVersion)
		require.NoError(t, syscall.Kill(next, syscall.SIGQUIT))
		d.ends()
		require.NoFileExists(t, pidfile)
		require.NoFileExists(t, filepath.Join(d.Dir, "control.sock"))
		require.Empty(t, d.Residue())
	})

	t.Run("of one process, one thread and one job a process, nothing waits for the job in hand", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{Workers: 1, Threads: 1, JobsPerFork: 1})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		d.install(harness.NextApp(t))
		next := d.handOver("reload")
		d.Push("mail", "Count", harness.Range(2, 6)...)
		d.AwaitNoted("ran", 5)
		require.Equal(t, 5, d.by(next))
		require.False(t, d.Ended(), "the old version has the job in hand")
		require.Len(t, d.Workers(), 1, "of the old version")
		d.Open()
		require.Zero(t, d.Exit())
		d.once(6)
		require.NoError(t, syscall.Kill(next, syscall.SIGQUIT))
		d.ends()
		require.Empty(t, d.Residue())
	})

	for name, damage := range map[string]func(d *deployed) (because string){
		"is not executable": func(d *deployed) string {
			d.install(harness.NextApp(t))
			require.NoError(t, os.Chmod(d.program, 0o644))
			return "permission denied"
		},
		"is garbage": func(d *deployed) string {
			d.installText("\x7fELF and nothing else")
			return "exec format error"
		},
		"ends at once": func(d *deployed) string {
			d.installText("#!/bin/sh\necho a library is missing >&2\nexit 1\n")
			return "a library is missing"
		},
		"is something else": func(d *deployed) string {
			d.installText("#!/bin/sh\nexit 0\n")
			return "cannot take over a running daemon"
		},
		"refuses the configuration": func(d *deployed) string {
			d.install(harness.NextApp(t))
			d.Configure("worker_cuont: 2\n")
			return "worker_count"
		},
		"cannot write its pid file": func(d *deployed) string {
			d.install(harness.NextApp(t))
			d.Configure("pidfile: " + d.Dir + "/missing/pid\n")
			return d.Dir + "/missing/"
		},
	} {
		t.Run("a program that "+name+" changes nothing", func(t *testing.T) {
			t.Parallel()
			d := deploy(t, harness.Options{})
			because := damage(d)
			text, code := d.ask("reload")
			require.Equal(t, 1, code, text)
			require.Contains(t, text, because)
			d.unharmed(because)
		})
	}

	t.Run("a configuration that is refused fails the reload, until the next good one", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{})
		d.Configure("worker_cuont: 2\n")
		text, code := d.ask("reload")
		require.Equal(t, 1, code)
		require.Contains(t, text, "worker_count")
		d.AwaitStatus("reload refused: ")
		d.Configure("")
		text, code = d.ask("reload")
		require.Zero(t, code, text)
		require.Contains(t, text, "the new configuration is in force")
		proctest.Await(t, patience, func() bool { return !strings.Contains(d.Status(), "refused") }, "the status")
		require.Zero(t, d.main())
	})

	t.Run("a new version that dies before it is ready changes nothing", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{Env: []string{"RESQUED_TEST_GATE=gate"}, Unready: true})
		d.Touch("gate")
		d.AwaitReady()
		require.NoError(t, os.Remove(filepath.Join(d.Dir, "gate")))
		d.install(harness.NextApp(t))
		d.Signal(syscall.SIGHUP)
		var young []proctest.Process
		proctest.Await(t, patience, func() bool {
			young = proctest.Find(func(p proctest.Process) bool {
				return p.Parent == os.Getpid() && p.PID != d.PID && strings.HasSuffix(p.Env("RESQUED_BESIDE"), "1") && p.Env("RESQUE_NAMESPACE") == d.Space
			})
			return len(young) == 1 && len(proctest.Children(young[0].PID)) == 1
		}, "the new version")
		d.adopt(young[0].PID)
		starts := proctest.Children(young[0].PID)[0].PID
		require.NoError(t, syscall.Kill(young[0].PID, syscall.SIGKILL))
		d.AwaitStatus("reload refused: ")
		d.Touch("gate")
		proctest.Await(t, patience, func() bool { return !proctest.Alive(starts) }, "the end of its worker process")
		d.unharmed("ended before its first worker process was ready")
	})

	t.Run("a new version that waits for Redis says so", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, durable)
		d := deploy(t, harness.Options{Redis: server})
		server.Stop()
		d.install(harness.NextApp(t))
		d.Signal(syscall.SIGHUP)
		proctest.Await(t, patience, func() bool {
			text, err := os.ReadFile(d.log)
			return err == nil && strings.Count(string(text), "waiting for redis") > 1 // it has said it after the first line
		}, "the new version")
		young := proctest.Find(func(p proctest.Process) bool {
			return p.Parent == os.Getpid() && p.PID != d.PID && strings.HasSuffix(p.Env("RESQUED_BESIDE"), "1") && p.Env("RESQUE_NAMESPACE") == d.Space
		})
		require.Len(t, young, 1)
		d.adopt(young[0].PID)
		require.NoError(t, syscall.Kill(young[0].PID, syscall.SIGKILL))
		d.AwaitStatus("reload refused: waiting for redis at ")
		server.Restart()
		d.unharmed("waiting for redis at ")
	})

	t.Run("a new version that dies while it takes over gives its slots back", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{Workers: 2, Threads: 2})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		d.install(harness.NextApp(t))
		next := d.handOver("upgrade")
		require.NoError(t, syscall.Kill(next, syscall.SIGKILL))
		d.AwaitStatus("reload refused: ")
		d.Push("mail", "Count", harness.Range(2, 100)...)
		d.AwaitNoted("ran", 99)
		d.Open()
		d.once(100)
		proctest.Await(t, patience, func() bool { return len(d.Workers()) == 2 }, "the slots")
		d.Signal(syscall.SIGQUIT)
		require.Zero(t, d.Exit())
	})

	for signal, ran := range map[syscall.Signal]int{syscall.SIGQUIT: 1, syscall.SIGTERM: 0} {
		t.Run("a stop by "+signal.String()+" while the old version has a job ends both", func(t *testing.T) {
			t.Parallel()
			d := deploy(t, harness.Options{Workers: 2})
			d.Push("mail", "Gate", 1)
			d.AwaitNoted("started", 1)
			d.install(harness.NextApp(t))
			next := d.handOver("reload")
			require.NoError(t, syscall.Kill(next, signal))
			if ran == 1 {
				d.AwaitStatus("draining")
				require.True(t, proctest.Alive(next))
				require.False(t, d.Ended())
				d.Open()
			}
			require.Zero(t, d.Exit())
			d.ends()
			require.Len(t, d.Noted("ran"), ran)
			require.Len(t, d.Failures(), 1-ran)
			if ran == 1 {
				require.Empty(t, d.Residue())
			}
		})
	}

	t.Run("a pause goes over to the new version", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{})
		d.Signal(syscall.SIGUSR2)
		d.AwaitStatus("paused")
		d.install(harness.NextApp(t))
		next := d.handOver("reload")
		require.Zero(t, d.Exit())
		d.AwaitStatus("paused, 1 worker, ")
		d.Push("mail", "Count", 1)
		require.NoError(t, syscall.Kill(next, syscall.SIGCONT))
		d.once(1)
		require.NoError(t, syscall.Kill(next, syscall.SIGQUIT))
		d.ends()
	})

	t.Run("a link that leads to another release is a new version, twice in a row", func(t *testing.T) {
		t.Parallel()
		releases := t.TempDir()
		current := filepath.Join(releases, "current")
		for _, release := range []string{"1", "2", "3"} {
			require.NoError(t, os.Mkdir(filepath.Join(releases, release), 0o755))
			program, err := os.ReadFile(map[bool]string{true: harness.App(t), false: harness.NextApp(t)}[release == "1"])
			require.NoError(t, err)
			proctest.WriteProgram(t, filepath.Join(releases, release, "worker"), program)
		}
		point := func(release string) {
			require.NoError(t, os.Symlink(release, current+".new"))
			require.NoError(t, os.Rename(current+".new", current))
		}
		point("1")
		d := deploy(t, harness.Options{Binary: filepath.Join(current, "worker"), Workers: 2, Threads: 2})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		point("2")
		second := d.handOver("reload")
		require.NoError(t, os.RemoveAll(filepath.Join(releases, "1")))
		point("3")
		third := d.handOver("reload")
		require.NotEqual(t, second, third)
		d.Push("mail", "Count", harness.Range(2, 100)...)
		d.AwaitNoted("ran", 99)
		require.False(t, d.Ended())
		// A stop of the third reaches the first.
		require.NoError(t, syscall.Kill(third, syscall.SIGQUIT))
		d.AwaitStatus("draining")
		d.Open()
		require.Zero(t, d.Exit())
		d.ends()
		require.False(t, proctest.Alive(second))
		d.once(100)
		require.Empty(t, d.Residue())
	})

	t.Run("without its file the running program is reloaded", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{})
		require.NoError(t, os.Rename(d.program, d.program+".old"))
		text, code := d.ask("reload")
		require.Zero(t, code, text)
		require.Zero(t, d.main())
		text, code = d.ask("upgrade")
		require.Equal(t, 1, code)
		require.Contains(t, text, "no such file")
	})

	t.Run("what has not changed is reloaded, and upgraded if that is asked for", func(t *testing.T) {
		t.Parallel()
		d := deploy(t, harness.Options{})
		text, code := d.ask("reload")
		require.Zero(t, code, text)
		require.Zero(t, d.main())
		next := d.handOver("upgrade")
		require.Zero(t, d.Exit())
		d.Push("mail", "Count", 1)
		d.once(1)
		require.Equal(t, 1, d.by(next))
		require.NoError(t, syscall.Kill(next, syscall.SIGQUIT))
		d.ends()
		require.Empty(t, d.Residue())
	})
}

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

	"github.com/resqued/resqued/internal/proctest"
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
	// A file, because the daemon's second process writes on when the first one has ended.
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

// install puts a program in the place of the daemon's, as installers do: by a rename.
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

// handOver has the next version take over, by way of ask, and returns its process id.
func (d *deployed) handOver(verb string) int {
	d.t.Helper()
	text, code := d.ask(verb)
	require.Zero(d.t, code, text)
	main := d.main()
	require.NotZero(d.t, main)
	require.NotEqual(d.t, d.PID, main)
	require.Contains(d.t, text, fmt.Sprintf("process %d is in charge", main))
	d.adopt(main)
	return main
}

// adopt has the test end another process of the daemon. It is a child of the test.
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

// main is the process that the service manager was told of last.
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

// unharmed requires that the old program works on, and alone.
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
		// All slots have gone over: the old one has nothing left but the process of the job.
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
}

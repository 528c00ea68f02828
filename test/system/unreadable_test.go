package system_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// sleeps writes two copies of sleep into dir: one that may be executed but not read (the kernel
// denies other processes of its user access to it, as after PR_SET_DUMPABLE), and one that runs
// with root's rights.
func sleeps(t *testing.T, dir string) {
	t.Helper()
	program, err := exec.LookPath("sleep")
	require.NoError(t, err)
	from, err := os.Open(program)
	require.NoError(t, err)
	defer func() { _ = from.Close() }()
	content, err := io.ReadAll(from)
	require.NoError(t, err)
	for name, mode := range map[string]os.FileMode{"sleep": 0o111, "suid": os.ModeSetuid | 0o755} {
		proctest.WriteProgram(t, filepath.Join(dir, name), content)
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
}

// escapes are shell commands that leave a background process in a session of its own, which
// nothing in /proc connects with its job. It holds descriptor 9.
var escapes = []struct{ name, script string }{
	{"not dumpable", `setsid sh -c 'echo > ready; exec ./sleep 1001' &`},
	{"without an environment and a parent", `(setsid env -i sh -c 'echo > ready; exec sleep 1001' &)`},
	{"with another user's rights", `setsid sh -c 'echo > ready; exec ./suid 1001' &`},
}

// escaped returns the living processes that the commands in dir have left.
func escaped(dir string) []proctest.Process {
	return proctest.Find(func(p proctest.Process) bool {
		target, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/fd/9")
		return err == nil && target == filepath.Join(dir, "lock") && strings.HasSuffix(p.Title, " 1001")
	})
}

// TestUnreadableProcesses checks that a process which nothing in /proc connects with its job
// ends with its job and with its worker process, and that the job does not run again beside it.
func TestUnreadableProcesses(t *testing.T) {
	t.Parallel()
	needsNamespaces(t, "--mount")
	const anna = 54321
	start := func(t *testing.T, under []string, escape, end string) *harness.Daemon {
		t.Helper()
		d := harness.Start(t, harness.Options{
			Workers: 2, Under: under, User: anna, Config: "handlers: {Escaping: {command: [sh, ./escaping]}}\n",
		})
		sleeps(t, d.Dir)
		t.Cleanup(func() {
			for _, p := range escaped(d.Dir) { // of a test that has failed
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
		})
		// The lock is held as long as a process of an earlier run is alive.
		script := "rm -f ready; exec 9>>lock; flock -n 9 || echo >> overlaps\n" + escape +
			"\nwhile [ ! -e ready ]; do sleep 0.01; done; echo >> runs\n" + end + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "escaping"), []byte(script), 0o644)) //nolint:gosec // another user reads it
		return d
	}
	apart := func(t *testing.T, d *harness.Daemon) {
		t.Helper()
		require.NoFileExists(t, filepath.Join(d.Dir, "overlaps"))
	}
	for _, where := range []struct {
		name  string
		under []string
	}{
		{"shown", []string{"setpriv", fmt.Sprint("--reuid=", anna), fmt.Sprint("--regid=", anna), "--clear-groups"}},
		{"hidden", hidden(anna)},
	} {
		for _, escape := range escapes {
			name := where.name + ", " + escape.name
			if where.name == "hidden" && strings.Contains(escape.script, "suid") {
				continue // out of reach
			}
			t.Run("its worker process is killed: "+name, func(t *testing.T) {
				t.Parallel()
				d := start(t, where.under, escape.script, "exec sleep 1002")
				d.PushRaw("mail", `{"class":"Escaping","args":[1]}`)
				proctest.Await(t, patience, func() bool { return len(escaped(d.Dir)) == 1 }, "the process")
				first := escaped(d.Dir)[0]
				if strings.HasPrefix(escape.name, "not dumpable") {
					proctest.Await(t, patience, func() bool {
						info, err := os.Stat("/proc/" + strconv.Itoa(first.PID) + "/environ")
						return err == nil && info.Sys().(*syscall.Stat_t).Uid == 0
					}, "what its user may not read")
				}
				for _, pid := range d.WorkerPIDs() {
					if first.Descends(pid) {
						require.NoError(t, unix.Kill(pid, unix.SIGKILL))
					}
				}
				proctest.Await(t, patience, func() bool {
					again := escaped(d.Dir)
					return len(again) == 1 && again[0].PID != first.PID
				}, "the second run, alone")
				apart(t, d)
				d.Signal(syscall.SIGTERM)
				require.Zero(t, d.Exit())
				require.Empty(t, escaped(d.Dir))
				require.Empty(t, d.Processes())
			})
			t.Run("its job ends: "+name, func(t *testing.T) {
				t.Parallel()
				d := start(t, where.under, escape.script, "exit 0")
				for i := range 5 {
					d.PushRaw("mail", fmt.Sprintf(`{"class":"Escaping","args":[%d]}`, i))
					d.AwaitProcessed(int64(i+1), patience)
					require.Empty(t, escaped(d.Dir))
				}
				apart(t, d)
				require.Empty(t, d.Failures())
			})
			if where.name == "hidden" {
				continue // its ancestors are gone: out of reach
			}
			t.Run("its daemon is killed: "+name, func(t *testing.T) {
				t.Parallel()
				d := start(t, where.under, escape.script, "exec sleep 1002")
				d.PushRaw("mail", `{"class":"Escaping","args":[1]}`)
				proctest.Await(t, patience, func() bool { return len(escaped(d.Dir)) == 1 }, "the process")
				first := escaped(d.Dir)[0]
				workers := d.WorkerPIDs()
				d.Signal(syscall.SIGKILL)
				for _, pid := range workers {
					require.NoError(t, unix.Kill(pid, unix.SIGKILL))
				}
				d.ForgetMasters()
				proctest.Await(t, patience, d.Ended, "the end of the daemon")
				require.Equal(t, first.PID, escaped(d.Dir)[0].PID)
				next := harness.Start(t, harness.Options{
					Under: where.under, User: anna, Namespace: d.Space, Config: "handlers: {Escaping: {command: [sh, -c, 'exit 0']}}\n",
				})
				next.AwaitProcessed(1, patience)
				require.Empty(t, escaped(d.Dir))
			})
		}
	}
}

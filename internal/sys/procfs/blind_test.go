//go:build linux

package procfs

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// A process without free descriptors must not take a child that code waits for for an orphan.
func TestStraysWithoutFiles(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestStraysWithoutFiles$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	if !handled() {
		t.Skip("this kernel knows no handles of processes")
	}
	child := exec.Command("true")
	require.NoError(t, child.Start())
	require.Eventually(t, func() bool {
		_, zombie := mark.Hidden(child.Process.Pid)
		return zombie
	}, 30*time.Second, time.Millisecond)
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max})
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &had)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	s := Strays{}
	for range 3000 {
		s.Reap()
	}
	close(stop)
	<-stopped
	require.NoError(t, child.Wait())
}

// Even with few free descriptors, a sweep does not end before all descendants of the dead worker
// process have ended.
func TestSweepWhileFilesRunOut(t *testing.T) {
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestSweepWhileFilesRunOut$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.NoError(t, Subreaper())
	for who, master := range map[string]func() bool{"own": func() bool { return true }, "elsewhere": nil} {
		for part, below := range map[string]int{"tagged tree": 3, "bare tree": 3, "headless": 0} {
			name := unique("p-flicker-" + who + "-" + part)
			for n, began := 0, time.Now(); n < 1 || time.Since(began) < 100*time.Millisecond; n++ {
				// Not the worker process's own sweeper, which knows its descendants.
				c, err := startWorker(name, part, master)
				require.NoError(t, err)
				living := func() int {
					t.Helper()
					return len(slices.DeleteFunc(members(t, name), func(pid int) bool { return pid == c.PID() }))
				}
				require.Eventually(t, func() bool { return living() == below }, 30*time.Second, time.Millisecond, part)
				if part != "headless" { // that one is found itself
					c.kill()
				}
				end := proctest.FlickerFiles(t, 20*time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				_, err = NewSweeper(name, master).Sweep(ctx)
				cancel()
				end()
				require.NoError(t, err)
				c.wait()
				require.Zero(t, living(), "%s, %s, after %d", who, part, n)
			}
		}
	}
}

// A process of another user shows its mark only in /proc. A process without free descriptors
// must not consider it unmarked.
func TestMarksWithoutFiles(t *testing.T) {
	t.Parallel()
	name := "p-other-user"
	if text := os.Getenv("PROC_TEST_BLIND"); text != "" {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		s := Sweep{Mark: mark.Worker(name)}
		looks := map[string]func(int) (Verdict, error){"hidden": s.hidden, "marked": func(pid int) (Verdict, error) {
			_, v, err := s.see(pid, nil)
			return v, err
		}}
		for what, look := range looks {
			v, err := look(pid)
			require.NoError(t, err, what)
			require.Equal(t, Ours, v, what)
		}
		var had unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
		got := map[string]error{}
		for what, look := range looks {
			_, got[what] = look(pid)
		}
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
		for what, err := range got {
			require.ErrorIs(t, err, unix.EMFILE, what)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	pid := sleeper(t).Process.Pid
	require.NoError(t, mark.Set(pid, mark.Worker(name)))
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMarksWithoutFiles$")
	cmd.Env = append(os.Environ(), "PROC_TEST_BLIND="+strconv.Itoa(pid))
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

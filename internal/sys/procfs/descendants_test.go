//go:build linux

package procfs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// unique avoids the remains of an earlier, broken run.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, os.Getpid()) }

func sweep(t *testing.T, name string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	killed, err := NewSweeper(name, nil).Sweep(ctx)
	require.NoError(t, err)
	return killed
}

// members returns the processes of the worker process name.
func members(t *testing.T, name string) []int {
	t.Helper()
	pids, err := NewSweeper(name, nil).found()
	require.NoError(t, err)
	return pids
}

func TestSweep(t *testing.T) {
	t.Parallel()

	t.Run("everything that a dead worker process had started is killed, and nothing else", func(t *testing.T) {
		t.Parallel()
		c := spawn(t, unique("p-tree"), "tree")
		spawn(t, unique("p-tree-2"), "tree")
		// The worker process, a shell, two sleeps; the one without environment
		// is found through its parent.
		for _, name := range []string{unique("p-tree"), unique("p-tree-2")} {
			require.Eventually(t, func() bool { return len(members(t, name)) == 5 }, 30*time.Second, 10*time.Millisecond)
		}
		require.Equal(t, 5, sweep(t, unique("p-tree")))
		c.wait()
		require.Empty(t, members(t, unique("p-tree")))
		require.Len(t, members(t, unique("p-tree-2")), 5)
		sweep(t, unique("p-tree-2"))
	})

	t.Run("what outlives its worker process is found by it", func(t *testing.T) {
		t.Parallel()
		c := spawn(t, unique("p-rest"), "tagged tree")
		require.Eventually(t, func() bool { return len(members(t, unique("p-rest"))) == 4 }, 30*time.Second, 10*time.Millisecond)
		require.NoError(t, c.Process.Kill())
		c.wait()
		require.NotEmpty(t, members(t, unique("p-rest")))
		require.NotZero(t, sweep(t, unique("p-rest")))
		require.Empty(t, members(t, unique("p-rest")))
	})

	t.Run("also what has no environment, by its mark", func(t *testing.T) {
		t.Parallel()
		name := unique("p-bare")
		c := spawn(t, name, "bare tree")
		spawn(t, unique("p-bare-2"), "bare tree")
		marked := func(name string) int { return len(members(t, name)) }
		for _, name := range []string{name, unique("p-bare-2")} {
			require.Eventually(t, func() bool { return marked(name) == 4 }, 30*time.Second, 10*time.Millisecond)
		}
		require.NoError(t, c.Process.Kill())
		c.wait()
		require.Equal(t, 3, sweep(t, name))
		require.Zero(t, marked(name))
		require.Equal(t, 4, marked(unique("p-bare-2")))
		require.Equal(t, 4, sweep(t, unique("p-bare-2")))
	})

	t.Run("a master finds what is its own without a look at the whole machine", func(t *testing.T) {
		t.Parallel()
		m := start(t, "sweep")
		require.Equal(t, "true false 5 <nil> 0 5", m.Line(t))
		require.Equal(t, "EOF", m.Line(t), "by then it has ended all that it had started")
	})

	t.Run("a process whose first thread has ended is not taken for dead", func(t *testing.T) {
		t.Parallel()
		c := spawn(t, unique("p-headless"), "headless")
		require.Len(t, members(t, unique("p-headless")), 1)
		require.Equal(t, 1, sweep(t, unique("p-headless")))
		require.Equal(t, syscall.SIGKILL, c.wait().Signal())
	})

	t.Run("what cannot be ended in time is named", func(t *testing.T) {
		t.Parallel()
		spawn(t, unique("p-late"), "deaf")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		// The first pass finds it alive or dying; a second would come too late.
		_, err := NewSweeper(unique("p-late"), nil).Sweep(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "is still there")
	})
}

func TestStrays(t *testing.T) {
	t.Parallel()

	t.Run("reaping orphans steals no command's status", func(t *testing.T) {
		t.Parallel()
		p := start(t, "strays")
		require.Equal(t, "0 100", p.Line(t))
	})

	t.Run("a child that code waits for is left alone", func(t *testing.T) {
		t.Parallel()
		c := spawn(t, "p-owned", "exit")
		s := Strays{Owned: func(int) bool { return true }}
		require.Zero(t, s.Reap())
		require.Equal(t, 3, c.wait().ExitStatus())
	})

	t.Run("an orphan that has ended is reaped at the first look", func(t *testing.T) {
		t.Parallel()
		if !handled() {
			t.Skip("this kernel knows no handles of processes")
		}
		// A child without a handle looks like an orphan.
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			s, err := ReadStat(pid)
			return err == nil && s.Zombie()
		}, 30*time.Second, time.Millisecond)
		s := Strays{Owned: func(other int) bool { return other != pid }}
		require.Equal(t, 1, s.Reap())
	})

	t.Run("a child is left to the code that started it and waits late", func(t *testing.T) {
		testlevel.Integration(t)
		t.Parallel()
		c := exec.Command("sh", "-c", "exit 3")
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool {
			s, err := ReadStat(c.Process.Pid)
			return err == nil && s.Zombie()
		}, 30*time.Second, time.Millisecond)
		// No other child: children of parallel tests are not ours to reap.
		s := Strays{Owned: func(pid int) bool { return pid != c.Process.Pid }}
		for range 2 {
			require.Zero(t, s.Reap())
		}
		var exit *exec.ExitError
		require.ErrorAs(t, c.Wait(), &exit)
		require.Equal(t, 3, exit.ExitCode())
	})
}

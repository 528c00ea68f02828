//go:build linux

package procfs

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestChildren(t *testing.T) {
	t.Parallel()
	if !ListsChildren() {
		t.Skip("this kernel lists no children")
	}

	t.Run("those of all threads are listed", func(t *testing.T) {
		testlevel.Integration(t)
		t.Parallel()
		pids := make(chan int, 2)
		end := make(chan struct{})
		var started sync.WaitGroup
		t.Cleanup(func() {
			close(end)
			started.Wait()
		})
		for range 2 { // one of them is not the first thread
			started.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				cmd := exec.Command("sleep", "1000")
				if cmd.Start() != nil {
					pids <- 0
					return
				}
				pids <- cmd.Process.Pid
				<-end
				_, _ = cmd.Process.Kill(), cmd.Wait()
			})
		}
		for range 2 {
			pid := <-pids
			for _, list := range []func(int) ([]int, error){Children, childLister(), childrenByParent()} {
				found, err := list(os.Getpid())
				require.NoError(t, err)
				require.Contains(t, found, pid)
			}
		}
	})

	t.Run("an orphan is a child of the first thread", func(t *testing.T) {
		t.Parallel()
		p := start(t, "orphan")
		require.Equal(t, "true false", p.Line(t))
	})

	t.Run("a thread that is none cannot be asked", func(t *testing.T) {
		t.Parallel()
		_, err := ThreadChildren(0)
		require.ErrorIs(t, err, os.ErrNotExist)
	})

	t.Run("dead ones are listed until they are reaped", func(t *testing.T) {
		t.Parallel()
		pid := ended(t, false)
		for _, list := range []func(int) ([]int, error){Children, childrenByParent()} {
			found, err := list(os.Getpid())
			require.NoError(t, err)
			require.Contains(t, found, pid)
		}
	})

	t.Run("a process that is gone has none", func(t *testing.T) {
		t.Parallel()
		pid := ended(t, true)
		for _, list := range []func(int) ([]int, error){Children, childrenByParent()} {
			found, err := list(pid)
			require.NoError(t, err)
			require.Empty(t, found)
		}
	})
}

// Without free descriptors, a look fails instead of finding nothing.
func TestLooksWithoutFiles(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestLooksWithoutFiles$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.True(t, ListsChildren())
	child := exec.Command("sleep", "1000")
	child.Env = []string{"TAG=1"}
	require.NoError(t, child.Start())
	self, pid := os.Getpid(), child.Process.Pid
	s := Sweep{Judge: func(p Seen) (Verdict, error) {
		env, err := ReadEnvironment(p.PID, p.Stat)
		if env.Has("TAG=1") {
			return Ours, err
		}
		return Other, err
	}}
	// Each returns whether it has seen everything, and why it could not look.
	looks := map[string]func() (bool, error){
		"Children": func() (bool, error) { pids, err := Children(self); return slices.Contains(pids, pid), err },
		"childrenByParent": func() (bool, error) {
			pids, err := childrenByParent()(self)
			return slices.Contains(pids, pid), err
		},
		"Descendants": func() (bool, error) {
			found, err := Descendants(nil)
			return len(found) == 1, err
		},
		"ReadStat": func() (bool, error) {
			s, err := ReadStat(pid)
			return s.Parent == self, Blind(err)
		},
		"see":             func() (bool, error) { _, v, err := s.see(pid, nil); return v == Ours, err },
		"ReadEnvironment": func() (bool, error) { env, err := ReadEnvironment(pid, Stat{}); return env.Has("TAG=1"), err },
	}
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	for name, look := range looks {
		seen, err := look()
		require.NoError(t, err, name)
		require.True(t, seen, name)

		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
		seen, err = look()
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
		require.ErrorIs(t, err, unix.EMFILE, name)
		require.False(t, seen, name)
	}

	// Descriptors that become free before a look ends do not make it a good one.
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
	overlooked := map[string]int{}
	// The last point at which each can fail.
	last := map[string]string{"Children": "/children:", "childrenByParent": "/stat:", "Descendants": "/stat:", "ReadEnvironment": "/environ:", "ReadStat": "/stat:", "see": "/environ:"}
	for name, look := range looks {
		failed := false
		for n, began := 0, time.Now(); (n < 500 || !failed) && time.Since(began) < 20*time.Second; n++ {
			seen, err := look()
			if !seen && err == nil {
				overlooked[name]++
			}
			failed = failed || err != nil && strings.Contains(err.Error(), last[name])
		}
		if !failed {
			overlooked[name+last[name]]++
		}
	}
	close(stop)
	<-stopped
	require.Empty(t, overlooked)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
}

func TestBlind(t *testing.T) {
	t.Parallel()
	for _, errno := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		require.ErrorIs(t, Blind(&os.PathError{Op: "open", Path: "/proc/1/stat", Err: errno}), errno)
	}
	for _, errno := range []error{nil, unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		require.NoError(t, Blind(errno))
	}
}

// TestDescendants runs in a process of its own, without other descendants.
func TestDescendants(t *testing.T) {
	if os.Getenv("PROC_TEST_BELOW") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestDescendants$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BELOW=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	cmd := exec.Command("sh", "-c", "setsid sleep 1000 & echo; wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	ended(t, false)
	found, err := Descendants(nil)
	require.NoError(t, err)
	require.Len(t, found, 2)
	shell, sleep := found[0], found[1]
	require.Equal(t, cmd.Process.Pid, shell.PID, "parents come first")
	require.Equal(t, shell.PID, sleep.Parent)
	left, err := Descendants(map[ID]bool{shell.ID: true})
	require.NoError(t, err)
	require.Empty(t, left, "what is below a spared one is spared")
	require.True(t, sleep.Kill())
	require.NoError(t, cmd.Wait())
}

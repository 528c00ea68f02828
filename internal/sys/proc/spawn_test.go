package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func spawned(t *testing.T, name string, a act, env ...string) *Child {
	t.Helper()
	testlevel.Integration(t)
	config, err := json.Marshal(a)
	require.NoError(t, err)
	c, err := Spawn(Spec{Proc: name, Title: "resqued: worker 1 of 1", Config: config, Env: env})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Kill()
		c.Wait()
		_ = c.Close()
		_, _ = Sweep(context.Background(), name)
	})
	return c
}

func hello(t *testing.T, c *Child) Message {
	t.Helper()
	m, err := c.Recv()
	require.NoError(t, err)
	require.Equal(t, Hello, m.Type)
	return m
}

func procFile(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	require.NoError(t, err)
	return string(text)
}

func TestSpawn(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()

	t.Run("a worker process says hello and hears its master", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "host:1:2-3:1.1", act{Act: "echo"})
		m := hello(t, c)
		require.Equal(t, c.PID(), m.PID)
		require.Equal(t, Protocol, m.Protocol)
		require.NoError(t, c.Send(Message{Type: Welcome, Proc: "x", State: "paused"}))
		m, err := c.Recv()
		require.NoError(t, err)
		require.Equal(t, Message{Type: Ready, Proc: "x", State: "paused"}, m)
	})

	t.Run("the configuration arrives, and stands in neither argv nor environment", func(t *testing.T) {
		t.Parallel()
		secret := strings.Repeat("hunter2 ", 7500)
		c := spawned(t, "p-secret", act{Act: "deaf", Secret: secret})
		require.Equal(t, secret, hello(t, c).Reason)
		require.NotContains(t, procFile(t, c.PID(), "environ"), "hunter2")
		require.NotContains(t, procFile(t, c.PID(), "cmdline"), "hunter2")
		links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.PID()))
		require.NoError(t, err)
		for _, l := range links {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", c.PID(), l.Name()))
			require.NotContains(t, to, "resqued-config")
		}
	})

	t.Run("the environment has the tags, and nothing of the master's supervision", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-env", act{Act: "deaf"},
			"KEEP=1", "NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=1", "WATCHDOG_PID=1", "LISTEN_FDS=1",
			"RESQUED_PROC=outer", "RESQUED_ROLE=other")
		hello(t, c)
		require.Equal(t, "KEEP=1\x00RESQUED_ROLE=worker\x00RESQUED_PROC=p-env\x00", procFile(t, c.PID(), "environ"))
	})

	t.Run("it has its own session and process group, no input, a name and a title that fits", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-title", act{Act: "title"})
		hello(t, c)
		pgid, err := unix.Getpgid(c.PID())
		require.NoError(t, err)
		require.Equal(t, c.PID(), pgid)
		session, err := unix.Getsid(c.PID())
		require.NoError(t, err)
		require.Equal(t, c.PID(), session)
		in, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", c.PID()))
		require.NoError(t, err)
		require.Equal(t, os.DevNull, in)
		require.Equal(t, "resqued\n", procFile(t, c.PID(), "comm"))
		title := procFile(t, c.PID(), "cmdline")
		require.Len(t, title, titleSize+1)
		require.Equal(t, "resqued: worker 2 of 4: 3 jobs", strings.TrimRight(title, " \x00"))
		require.Equal(t, oomScore+"\n", procFile(t, c.PID(), "oom_score_adj"))
	})

	t.Run("its exit code, or the signal that ended it, is told", func(t *testing.T) {
		t.Parallel()
		left := spawned(t, "p-exit", act{Act: "exit"}).Wait()
		require.Equal(t, 3, left.Code)
		require.Equal(t, "exit code 3", left.String())
		require.Greater(t, left.MaxRSS, int64(1<<20))

		c := spawned(t, "p-kill", act{Act: "deaf"})
		hello(t, c)
		require.NoError(t, c.Kill())
		require.Equal(t, syscall.SIGKILL, c.Wait().Signal)
		require.Equal(t, "signal SIGKILL", c.Wait().String())
		require.ErrorIs(t, c.Kill(), os.ErrProcessDone)
	})

	t.Run("the kernel's parent-death signal is refused off the main thread", func(t *testing.T) {
		t.Parallel()
		_, err := Spawn(Spec{Proc: "p", DieWithMaster: true})
		require.ErrorContains(t, err, "main thread")
	})
}

// stopped reports whether all threads of a process have stopped; they run on for a moment.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil || !strings.Contains(string(stat), ") T ") {
			return false
		}
	}
	return len(threads) > 0
}

func TestMasterDeath(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()

	t.Run("a worker process reads the end of its socket", func(t *testing.T) {
		t.Parallel()
		m := start(t, "master")
		require.Contains(t, m.Line(t), "worker ")
		require.NoError(t, m.Process.Kill())
		require.Equal(t, "eof", m.Line(t))
		require.Equal(t, "EOF", m.Line(t), "a process is left")
	})

	t.Run("one that shall die with its master dies even when it is stopped", func(t *testing.T) {
		t.Parallel()
		m := start(t, "master", "DIE=1")
		pid, err := strconv.Atoi(strings.TrimPrefix(m.Line(t), "worker "))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		require.Eventually(t, func() bool { return stopped(t, pid) }, 30*time.Second, time.Millisecond)
		require.NoError(t, m.Process.Kill())
		require.Equal(t, "EOF", m.Line(t))
	})
}

func TestTitleOfMaster(t *testing.T) {
	t.Parallel()
	m := start(t, "title")
	require.JSONEq(t, `["/proc/self/exe","one","two"]`, m.Line(t), "os.Args are as called")
	var env []string
	require.NoError(t, json.Unmarshal([]byte(m.Line(t)), &env))
	require.Subset(t, env, os.Environ(), "the environment is what it was")
	require.Equal(t, "resqued: master: running, 4 workers\x00", procFile(t, m.Process.Pid, "cmdline"))
	require.Equal(t, "resqued\n", procFile(t, m.Process.Pid, "comm"))
}

func TestConn(t *testing.T) {
	t.Parallel()

	t.Run("a side that does not read is found out in milliseconds", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-deaf", act{Act: "deaf"})
		hello(t, c)
		begin := time.Now()
		sent := 0
		var err error
		for err == nil {
			err = c.Send(Message{Type: SetState, State: "running"})
			sent++
		}
		require.ErrorIs(t, err, ErrFull)
		require.Greater(t, sent, 50)
		require.Less(t, time.Since(begin), 30*time.Second, "not after a timeout")
	})

	t.Run("the last words of a side that left without reading are heard", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-words", act{Act: "last words"})
		// Unread by the worker process when it leaves, or refused: both happen.
		_ = c.Send(Message{Type: Welcome})
		_ = c.Send(Message{Type: SetState})
		c.Wait()
		hello(t, c)
		m, err := c.Recv()
		require.NoError(t, err)
		require.Equal(t, Message{Type: Bye, Done: 5}, m)
		_, err = c.Recv()
		require.ErrorContains(t, err, "EOF")
		require.Error(t, c.Send(Message{Type: SetState}))
	})

	t.Run("closing ends a Recv", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-close", act{Act: "deaf"})
		hello(t, c)
		done := make(chan error)
		go func() {
			_, err := c.Recv()
			done <- err
		}()
		require.NoError(t, c.Close())
		require.ErrorContains(t, <-done, "EOF")
	})

	t.Run("a message that could not be received whole is not sent", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-long", act{Act: "echo"})
		hello(t, c)
		require.ErrorContains(t, c.Send(Message{Type: SetState, Reason: strings.Repeat("x", maxMessage)}), "longer")
	})
}

func TestInheritOutsideOfAWorker(t *testing.T) {
	t.Parallel()
	_, _, err := Inherit()
	require.ErrorContains(t, err, "not started by a resqued master")
}

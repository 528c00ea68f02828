//go:build linux

package procfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestEnviron(t *testing.T) {
	t.Parallel()

	t.Run("it is that of any thread where the first one has ended", func(t *testing.T) {
		t.Parallel()
		name := unique("p-first")
		c := spawn(t, name, "headless")
		require.Eventually(t, func() bool {
			s, err := ReadStat(c.PID())
			return err == nil && s.Zombie()
		}, 30*time.Second, time.Millisecond)
		require.True(t, environment(t, c.PID()).Has(ProcEnv+"="+name))
	})

	t.Run("processes that have ended are dying", func(t *testing.T) {
		t.Parallel()
		for _, reaped := range []bool{false, true} {
			require.Equal(t, Environment{Dying: true}, environment(t, ended(t, reaped)), "its children may be about to come to this process")
		}
	})

	t.Run("a process without any has none for good", func(t *testing.T) {
		t.Parallel()
		cmd := sleeper(t, func(c *exec.Cmd) { c.Env = []string{} })
		for executing := true; executing; { // its program still
			env := environment(t, cmd.Process.Pid)
			executing = env.Executing
			require.False(t, env.Dying)
			require.Empty(t, env.variables)
		}
	})

	t.Run("a process that is executing another program may have one", func(t *testing.T) {
		testlevel.Integration(t)
		t.Parallel()
		script := filepath.Join(t.TempDir(), "again")
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700)) //nolint:gosec // it is to be executed
		cmd := exec.Command(script)
		cmd.Env = []string{"A=1"}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		seen := 0
		for began := time.Now(); seen < 20 && time.Since(began) < 10*time.Second; {
			env := environment(t, cmd.Process.Pid)
			if env.Has("A=1") {
				continue
			}
			seen++
			require.True(t, env.Executing)
		}
		t.Logf("seen without an environment: %d times", seen)
	})
}

func environment(t *testing.T, pid int) Environment {
	t.Helper()
	st, _ := ReadStat(pid)
	env, err := ReadEnvironment(pid, st)
	require.NoError(t, err)
	return env
}

func TestHasVariable(t *testing.T) {
	t.Parallel()
	const env = "A=1\x00TAG=p/1"
	part := Stat{EnvStart: 100, EnvEnd: 200}
	require.True(t, Environment{variables: part.sound([]byte(env))}.Has("A=1"))
	require.False(t, Environment{variables: part.sound([]byte(env))}.Has("TAG=p/1"), "it may have been TAG=p/12")
	require.False(t, Environment{variables: Stat{}.sound([]byte(env))}.Has("TAG=p/1"), "where it is, is hidden")
	require.False(t, Environment{variables: Stat{}.sound([]byte("TAG=p/1"))}.Has("TAG=p/1"))
	require.True(t, Environment{variables: part.sound([]byte(env + "\x00B"))}.Has("TAG=p/1"))
	require.False(t, Environment{variables: part.sound([]byte("TAG=p/12\x00"))}.Has("TAG=p/1"))
	whole := Stat{EnvStart: 100, EnvEnd: 100 + uint64(len(env))}
	require.True(t, Environment{variables: whole.sound([]byte(env))}.Has("TAG=p/1"), "the process itself has written over the last byte")
}

// A process that may not be read never shows an environment: another user's process must not
// become one to wait for.
func TestEnvironOfAnotherUser(t *testing.T) {
	t.Parallel()
	if text := os.Getenv("PROC_TEST_OTHER"); text != "" {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Zero(t, environment(t, pid))
		require.ErrorIs(t, openEnviron(text), os.ErrPermission)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestEnvironOfAnotherUser$")
	cmd.Env = append(os.Environ(), "PROC_TEST_OTHER="+strconv.Itoa(sleeper(t).Process.Pid))
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

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

	"github.com/resqued/resqued/internal/testlevel"
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
		env, err := Environ(c.PID())
		require.NoError(t, err)
		require.True(t, Stat{}.HasVariable(env, ProcEnv+"="+name))
	})

	t.Run("processes that have ended have none, and are not bare", func(t *testing.T) {
		t.Parallel()
		for _, reaped := range []bool{false, true} {
			pid := ended(t, reaped)
			env, err := Environ(pid)
			require.NoError(t, err)
			require.Empty(t, env)
			bare, err := Bare(pid)
			require.NoError(t, err)
			require.False(t, bare, "its children may be about to come to this process")
		}
	})

	t.Run("a process without any is bare", func(t *testing.T) {
		t.Parallel()
		cmd := sleeper(t, func(c *exec.Cmd) { c.Env = []string{} })
		env, err := Environ(cmd.Process.Pid)
		require.NoError(t, err)
		require.Empty(t, env)
		for bare := false; !bare; { // it may be executing its program still
			bare, err = Bare(cmd.Process.Pid)
			require.NoError(t, err)
		}
	})

	t.Run("a process that is executing another program is not bare", func(t *testing.T) {
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
			env, err := Environ(cmd.Process.Pid)
			require.NoError(t, err)
			if len(env) > 0 {
				continue
			}
			seen++
			bare, err := Bare(cmd.Process.Pid)
			require.NoError(t, err)
			require.False(t, bare)
		}
		t.Logf("seen without an environment: %d times", seen)
	})
}

func TestHasVariable(t *testing.T) {
	t.Parallel()
	const env = "A=1\x00TAG=p/1"
	part := Stat{EnvStart: 100, EnvEnd: 200}
	require.True(t, part.HasVariable([]byte(env), "A=1"))
	require.False(t, part.HasVariable([]byte(env), "TAG=p/1"), "it may have been TAG=p/12")
	require.False(t, Stat{}.HasVariable([]byte(env), "TAG=p/1"), "where it is, is hidden")
	require.False(t, Stat{}.HasVariable([]byte("TAG=p/1"), "TAG=p/1"))
	require.True(t, part.HasVariable([]byte(env+"\x00B"), "TAG=p/1"))
	require.False(t, part.HasVariable([]byte("TAG=p/12\x00"), "TAG=p/1"))
	whole := Stat{EnvStart: 100, EnvEnd: 100 + uint64(len(env))}
	require.True(t, whole.HasVariable([]byte(env), "TAG=p/1"), "the process itself has written over the last byte")
}

// A process that may not be read is bare for good: another user's does not end up as one that
// has to be waited for.
func TestEnvironOfAnotherUser(t *testing.T) {
	t.Parallel()
	if text := os.Getenv("PROC_TEST_OTHER"); text != "" {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		env, err := Environ(pid)
		require.NoError(t, err)
		require.Empty(t, env)
		bare, err := Bare(pid)
		require.NoError(t, err)
		require.True(t, bare)
		may, err := readable(text)
		require.NoError(t, err)
		require.False(t, may)
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

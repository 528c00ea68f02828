//go:build linux

package mark_test

import (
	"math"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestMark(t *testing.T) {
	t.Parallel()
	one, other := mark.Worker("h:b:1-2:0.1"), mark.Worker("h:b:1-2:0.2")
	require.NotEqual(t, one, other)
	seen := map[mark.Mark]bool{}
	for n := range int64(math.MaxUint16) {
		run := one.Run(n)
		require.False(t, seen[run], n)
		seen[run] = true
		require.True(t, run.IsRun())
		require.Equal(t, one, run.Worker())
		require.LessOrEqual(t, uint64(run), uint64(math.MaxInt64))
	}
	require.False(t, one.IsRun())
	require.Equal(t, one.Run(5), one.Run(3).Run(5))
}

// of returns the mark of a process.
func of(t *testing.T, pid int) mark.Mark {
	t.Helper()
	m, err := mark.Of(pid)
	require.NoError(t, err)
	return m
}

func start(t *testing.T, argv ...string) int {
	t.Helper()
	testlevel.Integration(t)
	cmd := exec.Command(argv[0], argv[1:]...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// Descendants and executed programs keep the mark, whatever the process does with itself.
func TestMarksAreInherited(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/pid"
	m := mark.Worker(t.Name()).Run(7)
	pid := start(t, "sh", "-c", `until grep -q '^Max file locks  *[0-9]' /proc/self/limits; do :; done
		(setsid env -i sh -c 'echo $$ > '"$0"'; exec sleep 1000' &); exec sleep 1000`, file)
	require.Zero(t, of(t, pid))
	require.NoError(t, mark.Set(pid, m))
	require.Equal(t, m, of(t, pid))
	var child int
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(file)
		child, _ = strconv.Atoi(string(text[:max(0, len(text)-1)]))
		return child != 0
	}, time.Minute, time.Millisecond)
	require.Equal(t, m, of(t, child))
	require.ErrorIs(t, mark.Kill(child, m.Run(8)), os.ErrProcessDone)
	require.ErrorIs(t, mark.Kill(child, mark.Worker("another")), os.ErrProcessDone)
	require.ErrorIs(t, mark.Kill(child, 0), os.ErrProcessDone)
	require.NoError(t, unix.Kill(child, 0))
	require.NoError(t, mark.Kill(child, m.Worker()))
	require.NoError(t, mark.Kill(pid, m))
	require.Eventually(t, func() bool {
		exists, zombie := mark.Hidden(pid)
		return exists && zombie
	}, time.Minute, time.Millisecond)
	require.Equal(t, m, of(t, pid), "until it is reaped")
}

// "Unlimited" and limits set by others are not marks.
func TestNoMark(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip(err)
	}
	pid := start(t, "prlimit", "--locks=1000:1000", "sleep", "1000")
	require.Eventually(t, func() bool {
		var limit unix.Rlimit
		return unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) == nil && limit.Max == 1000
	}, time.Minute, time.Millisecond)
	require.Zero(t, of(t, pid))
	require.Error(t, mark.Set(pid, mark.Worker("p")), "the limit of the unit stands")
	for _, none := range []int{0, 1<<22 + 1} {
		m, err := mark.Of(none)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.Zero(t, m)
	}
	exists, zombie := mark.Hidden(1<<22 + 1)
	require.False(t, exists || zombie)
	exists, zombie = mark.Hidden(pid)
	require.True(t, exists)
	require.False(t, zombie)
}

// A process without free descriptors cannot see the marks of other users' processes. It must not
// consider them unmarked.
func TestMarksWithoutFiles(t *testing.T) {
	t.Parallel()
	if text := os.Getenv("MARK_TEST_BLIND"); text != "" {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		m := mark.Worker("TestMarksWithoutFiles")
		require.Equal(t, m, of(t, pid), "shown by /proc")
		var had unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
		got, err := mark.Of(pid)
		killed := mark.Kill(pid, m)
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
		require.Zero(t, got)
		require.ErrorIs(t, err, unix.EMFILE)
		require.ErrorIs(t, killed, unix.EMFILE, "not os.ErrProcessDone: it may be the one")
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	pid := start(t, "sleep", "1000")
	require.NoError(t, mark.Set(pid, mark.Worker(t.Name())))
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMarksWithoutFiles$")
	cmd.Env = append(os.Environ(), "MARK_TEST_BLIND="+strconv.Itoa(pid))
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

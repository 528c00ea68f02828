package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// TestHide checks that a hidden command does not see its host's processes, and that the host
// sees the command.
func TestHide(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		_, err := hide(t.TempDir(), t.TempDir())
		require.ErrorContains(t, err, "takes root")
		t.Skip("the rest takes root")
	}
	// Not t.TempDir: other users cannot access it.
	dir, err := os.MkdirTemp("", "chaos-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ledgerDir := filepath.Join(dir, "ledger")
	require.NoError(t, os.Mkdir(ledgerDir, 0o700))
	program, err := hide(dir, ledgerDir)
	if err != nil {
		t.Skip("not permitted here: ", err)
	}
	require.FileExists(t, program)

	argv := append(hidden("elsewhere", oneUser), "sh", "-c", `id -u; hostname; ls -d /proc/1 /proc/"$0" 2>/dev/null`, strconv.Itoa(os.Getpid()))
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	require.Error(t, err, "ls finds nothing")
	require.Equal(t, strconv.Itoa(oneUser)+"\nelsewhere\n", string(out))
}

// TestContainer checks that a command is the first process of its container, with the given
// host name.
func TestContainer(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	argv := containerOn("boxed")
	if argv == nil {
		t.Skip("not permitted here")
	}
	argv = append(argv, "sh", "-c", "hostname; echo $$; readlink /proc/self/ns/pid")
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(out), "boxed\n1\n"), "%s", out)
	own, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	require.NotContains(t, string(out), own)
}

// TestLease checks that executing a program whose lease is taken waits until it is given up.
func TestLease(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sleep")
	program, err := exec.LookPath("sleep")
	require.NoError(t, err)
	require.NoError(t, copyFile(program, path))
	var held *lease
	// A process that another test has just started may have the written file open.
	taken := proctest.Within(10*time.Second, func() bool { held, err = takeLease(path); return err == nil })
	if !taken && !errors.Is(err, unix.EAGAIN) {
		t.Skip("not possible here: ", err)
	}
	require.True(t, taken, "%v", err)
	defer held.giveUp()
	require.False(t, held.wanted())
	// Through another program: Go's own start would wait too.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0" 0; exec "$0" 1000`, path)
	require.NoError(t, cmd.Start())
	proctest.Await(t, 10*time.Second, held.wanted, "the program to be opened")
	held.giveUp()
	proctest.Await(t, 10*time.Second, func() bool {
		p, ok := proctest.Look(cmd.Process.Pid)
		return ok && strings.HasPrefix(p.Title, path)
	}, "the program to run")
	_, err = takeLease(path)
	require.ErrorIs(t, err, unix.EAGAIN, "the program runs")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

// TestTap checks that a log that is not read accepts no more lines, and that all arrive
// afterwards.
func TestTap(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = w.Close() }()
	m := &machine{run: newChaos(options{})}
	m.log, err = os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { _ = m.log.Close() }()
	log := &tap{File: r}
	m.reading.Go(func() { m.read(log) })
	_, err = w.WriteString("{\"one\":1}\n")
	require.NoError(t, err)
	release, err := log.block()
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() {
		_, err := w.WriteString("{\"two\":2}\n")
		written <- err
	}()
	select {
	case err := <-written:
		t.Fatal("the pipe has taken a line: ", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	release() // it may be called again
	require.NoError(t, <-written)
	require.NoError(t, w.Close())
	m.reading.Wait()
	require.Len(t, m.lines, 2, "none of what filled the pipe is among them")
	require.JSONEq(t, `{"two":2}`, m.lines[1].text)
}

// TestSaidAt checks that a delayed line counts from when it was written.
func TestSaidAt(t *testing.T) {
	t.Parallel()
	c := newChaos(options{})
	c.history.Epoch = time.Duration(time.Now().UnixNano()) - procfs.BootTime()
	line := func(at time.Time) string { return fmt.Sprintf(`{"time":%q,"msg":"x"}`, at.Format(time.RFC3339Nano)) }
	now := procfs.BootTime()
	require.InDelta(t, now-3*time.Second, c.saidAt(line(time.Now().Add(-3*time.Second))), float64(time.Second))
	for _, text := range []string{"panic: x", `{"msg":"x"}`, line(time.Now().Add(time.Hour)), line(time.Now().Add(-time.Hour))} {
		require.GreaterOrEqual(t, c.saidAt(text), now, text)
	}
}

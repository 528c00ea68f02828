//go:build linux

package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// refuse makes the kernel refuse to start processes, except as fork, vfork and threads do.
func refuse(t *testing.T) {
	t.Helper()
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_CLONE},
		{Code: load, K: 16}, // the flags
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 1, K: unix.CLONE_VFORK | unix.CLONE_THREAD},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		t.Skip("no filter of system calls: ", errno)
	}
}

// If the kernel refuses, the standard library starts programs, including the first one.
func TestRefused(t *testing.T) {
	t.Parallel()
	if newProcess(t) {
		return
	}
	refuse(t)
	l := &Launcher{}
	t.Cleanup(l.Close)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	for range 2 {
		p, err := l.Start(Program{Argv: []string{"sleep", "1000"}, Files: []*os.File{null, null, null}})
		require.NoError(t, err)
		require.True(t, l.plain.Load())
		require.True(t, p.Begun())
		require.Empty(t, p.Opening())
		p.Signal(unix.SIGTERM)
		p.AwaitExit()
		status, err := p.Wait()
		require.NoError(t, err)
		require.Equal(t, unix.SIGTERM, status.Signal())
	}
}

// An unreadable directory on the PATH does not hide a program.
func TestBrokenPath(t *testing.T) {
	if newProcess(t) {
		return
	}
	loop := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(loop, loop))
	t.Setenv("PATH", loop+":/"+strings.Repeat("x", 1000)+":"+os.Getenv("PATH"))
	for _, plain := range []bool{false, true} {
		l := &Launcher{}
		l.plain.Store(plain)
		text, _, err := output(t, l, Program{Argv: []string{"echo", "here"}})
		require.NoError(t, err)
		require.Equal(t, "here\n", text)
		_, _, err = output(t, l, Program{Argv: []string{"no-such-program"}})
		require.ErrorIs(t, err, exec.ErrNotFound)
		l.Close()
	}
}

// A process that may have no files at all still notices the end of a process.
func TestWaitingWithoutFiles(t *testing.T) {
	t.Parallel()
	if newProcess(t) {
		return
	}
	l := &Launcher{}
	t.Cleanup(l.Close)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	p, err := l.Start(Program{Argv: []string{"sleep", "1000"}, Files: []*os.File{null, null, null}})
	require.NoError(t, err)
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.AwaitExit()
	}()
	p.Signal(unix.SIGKILL)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("its end goes unnoticed")
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
	_, err = p.Wait()
	require.NoError(t, err)
}

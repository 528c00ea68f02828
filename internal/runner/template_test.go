//go:build linux

package runner

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// beTemplate starts this program again for each request, instead of forking.
func beTemplate() {
	f := os.NewFile(4, "requests")
	c, err := net.FileConn(f)
	if err != nil {
		panic(err)
	}
	_ = f.Close()
	requests := c.(*net.UnixConn)
	for {
		packet, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(16))
		n, m, _, _, err := requests.ReadMsgUnix(packet, oob)
		if err != nil || n == 0 {
			return
		}
		var request struct {
			Fork struct {
				Concurrency int
				Env         map[string]string
			}
		}
		if err := json.Unmarshal(packet[:n], &request); err != nil {
			panic(err)
		}
		list, err := unix.ParseSocketControlMessage(oob[:m])
		if err != nil {
			panic(err)
		}
		fds, err := unix.ParseUnixRights(&list[0])
		if err != nil || len(fds) != 4 {
			panic(err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = append(os.Environ(), "RESQUED_FD=3", "RESQUED_CONCURRENCY="+strconv.Itoa(request.Fork.Concurrency), "RESQUED_FORK_FD=")
		for name, value := range request.Fork.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		files := []*os.File{os.NewFile(uintptr(fds[0]), ""), os.NewFile(uintptr(fds[1]), ""), os.NewFile(uintptr(fds[2]), "")}
		cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = files[:1], files[1], files[2]
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		for _, f := range files {
			_ = f.Close()
		}
		go func() {
			_ = cmd.Wait()
			status := os.NewFile(uintptr(fds[3]), "")
			_, _ = fmt.Fprintln(status, int(cmd.ProcessState.Sys().(syscall.WaitStatus)))
			_ = status.Close()
		}()
	}
}

// template starts a template and returns this process's end of its socket.
func template(t testing.TB, how string) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "requests"), os.NewFile(uintptr(fds[1]), "template's end")
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), "RESQUED_FORK_FD=4", "RUNNER_TEST="+how)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{null, theirs}, os.Stderr
	require.NoError(t, cmd.Start())
	_, _ = null.Close(), theirs.Close()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = cmd.Wait()
	})
	return ours
}

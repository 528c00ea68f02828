package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Sentinel starts a Sentinel that watches a server under a name, and returns its
// address. It ends with the test.
func Sentinel(tb testing.TB, server *Server, name string) (addr string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	own := strconv.Itoa(freePort())
	// Sentinel rewrites its configuration, so it needs a file of its own.
	file := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor %s %s %s 1\n", own, name, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr = net.JoinHostPort("127.0.0.1", own)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return addr
		}
		<-time.After(5 * time.Millisecond)
	}
	tb.Fatalf("the sentinel at %s does not answer", addr)
	return ""
}

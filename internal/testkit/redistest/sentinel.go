package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Sentinel starts a Sentinel that watches a server under a name, and returns its address. It
// ends after the test.
func Sentinel(tb testing.TB, server *Server, name string) (addr string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	binary, err := serverBinary()
	if err != nil {
		tb.Fatal(err)
	}
	for range 20 {
		own := takePort()
		addr = own.addr
		_, number, _ := net.SplitHostPort(addr)
		// Sentinel rewrites its configuration, so it needs a file of its own.
		file := filepath.Join(tb.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor %s %s %s 1\n", number, name, host, port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		cmd := exec.Command(binary, file, "--sentinel") //nolint:gosec // of this test
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		tb.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
			own.giveBack()
		})
		if sentinelAnswers(addr, cmd.Process.Pid, ended) {
			return addr
		}
	}
	tb.Fatalf("the sentinel at %s does not answer", addr)
	return ""
}

// sentinelAnswers waits until the Sentinel with this pid answers. It returns false if that has
// ended because another program has its port.
func sentinelAnswers(addr string, pid int, ended <-chan struct{}) bool {
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = c.Close() }()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		// The port may belong to another test's Sentinel.
		if strings.Contains(c.Info(context.Background(), "server").Val(), fmt.Sprintf("process_id:%d\r\n", pid)) {
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return false
}

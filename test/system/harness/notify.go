package harness

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/resqued/resqued/internal/testkit/proctest"
)

// notifications collects the messages of a daemon to its service manager.
type notifications struct {
	path string

	mu       sync.Mutex
	messages []string
}

// listen opens the socket that systemd would provide.
func listen(tb testing.TB) *notifications {
	tb.Helper()
	n := &notifications{path: filepath.Join(tb.TempDir(), "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err != nil {
		tb.Fatalf("notify socket: %v", err)
	}
	done := make(chan struct{})
	tb.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			size, err := conn.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.messages = append(n.messages, string(buf[:size]))
			n.mu.Unlock()
		}
	}()
	return n
}

// Notified returns every line that was sent to the service manager so far.
func (d *Daemon) Notified() []string {
	d.notify.mu.Lock()
	defer d.notify.mu.Unlock()
	var lines []string
	for _, message := range d.notify.messages {
		lines = append(lines, strings.Split(strings.TrimSpace(message), "\n")...)
	}
	return lines
}

// Status returns the text of the last STATUS= line.
func (d *Daemon) Status() string {
	for _, line := range slices.Backward(d.Notified()) {
		if status, ok := strings.CutPrefix(line, "STATUS="); ok {
			return status
		}
	}
	return ""
}

// HasNotified reports whether a line was sent to the service manager.
func (d *Daemon) HasNotified(line string) bool {
	return slices.Contains(d.Notified(), line)
}

// AwaitReady waits until the daemon notifies the service manager that it is ready.
func (d *Daemon) AwaitReady() {
	d.tb.Helper()
	proctest.Within(patience, func() bool { return d.HasNotified("READY=1") || d.Ended() })
	// A daemon that has ended may have been ready before, and its message may still be unread.
	if !proctest.Within(10*time.Second, func() bool { return d.HasNotified("READY=1") }) {
		d.tb.Fatalf("the daemon did not become ready\n%s", d.Log())
	}
}

// AwaitStatus waits until the last STATUS= text contains part.
func (d *Daemon) AwaitStatus(part string) {
	d.tb.Helper()
	ok := proctest.Within(patience, func() bool { return strings.Contains(d.Status(), part) })
	if !ok {
		d.tb.Fatalf("status %q does not say %q within %s", d.Status(), part, patience)
	}
}

// patience is how long a test waits for what should happen at once. It is long because two
// cores run many daemons in parallel.
const patience = time.Minute

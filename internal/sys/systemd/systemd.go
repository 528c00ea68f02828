// Package systemd reports the master's state to the service manager. Without a listening service
// manager its calls do nothing.
package systemd

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// sendPatience bounds one message. The socket of a service manager that does not read is full
// after some hundred messages, and the loop that sends them must not block.
const sendPatience = 50 * time.Millisecond

// Config is what systemd has put into this process's environment.
type Config struct {
	// Socket is NOTIFY_SOCKET: the path of a socket or, with a leading @, an abstract name;
	// empty = none.
	Socket string
	// WatchdogUSec and WatchdogPID are WATCHDOG_USEC and WATCHDOG_PID.
	WatchdogUSec, WatchdogPID string
}

// Notifier sends messages to the service manager. It is safe for concurrent use.
type Notifier struct {
	cfg Config
	log *zap.Logger

	mu     sync.Mutex
	failed bool
	silent bool
	status string
}

// New returns a Notifier.
func New(cfg Config, log *zap.Logger) *Notifier {
	return &Notifier{cfg: cfg, log: log}
}

// Enabled reports whether a service manager listens.
func (n *Notifier) Enabled() bool { return n.cfg.Socket != "" }

// HandOver makes another process of the service its main one and goes silent: the service
// manager listens only to the main process.
func (n *Notifier) HandOver(pid int) {
	n.send(fmt.Sprintf("MAINPID=%d", pid))
	n.Hold()
}

// Hold suppresses messages until Speak.
func (n *Notifier) Hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = true
}

// Speak ends Hold. The next status is sent even if it was said before.
func (n *Notifier) Speak() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent, n.status = false, ""
}

// Ready reports the end of a start or reload.
func (n *Notifier) Ready() { n.send("READY=1") }

// Status shows text in systemctl status. The same text is not sent twice.
func (n *Notifier) Status(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text != n.status {
		n.status = text
		n.say("STATUS=" + strings.ReplaceAll(text, "\n", " "))
	}
}

// Stopping reports that the process is about to end.
func (n *Notifier) Stopping() { n.send("STOPPING=1") }

// Reloading reports that a reload begins; Ready ends it.
func (n *Notifier) Reloading() {
	// Type=notify-reload identifies the reload by this time.
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has this clock
	}
	n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000))
}

// ExtendTimeout asks for d more, from now on, for a long start or stop.
func (n *Notifier) ExtendTimeout(d time.Duration) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

// Watchdog is a sign of life, due more often than WatchdogInterval.
func (n *Notifier) Watchdog() { n.send("WATCHDOG=1") }

// WatchdogInterval returns how long this process may be silent before it counts as hung; 0 = for
// ever.
func (n *Notifier) WatchdogInterval() time.Duration {
	if !n.Enabled() || n.cfg.WatchdogUSec == "" {
		return 0
	}
	if n.cfg.WatchdogPID != "" && n.cfg.WatchdogPID != strconv.Itoa(os.Getpid()) {
		return 0 // meant for another process
	}
	usec, err := strconv.ParseInt(n.cfg.WatchdogUSec, 10, 64)
	if err != nil || usec <= 0 {
		n.log.Warn("the watchdog stays off: WATCHDOG_USEC is not a number of microseconds",
			zap.String("value", n.cfg.WatchdogUSec))
		return 0
	}
	return time.Duration(usec) * time.Microsecond
}

func (n *Notifier) send(message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.say(message)
}

// say does not fail: the daemon works without its service manager. It logs a failure once, not
// once per message.
func (n *Notifier) say(message string) {
	if !n.Enabled() || n.silent {
		return
	}
	err := n.deliver(message)
	if err != nil && !n.failed {
		n.log.Warn("the service manager cannot be told", zap.Error(err))
	}
	n.failed = err != nil
}

// deliver sends one message over a new connection, because the service manager may have been
// re-executed.
func (n *Notifier) deliver(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.cfg.Socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}

// Package systemd tells the service manager how the master is. Without a service
// manager that listens every call does nothing.
package systemd

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Config holds what systemd has put into the environment of this process.
type Config struct {
	// Socket is NOTIFY_SOCKET; empty = nobody listens. It only switches the
	// notifier on: the address itself is read where it stands.
	Socket string
	// WatchdogUSec and WatchdogPID are WATCHDOG_USEC and WATCHDOG_PID.
	WatchdogUSec, WatchdogPID string
}

// Notifier sends messages to the service manager. Use it from one goroutine.
type Notifier struct {
	cfg    Config
	log    *zap.Logger
	failed bool
	status string
}

// New returns a notifier.
func New(cfg Config, log *zap.Logger) *Notifier {
	return &Notifier{cfg: cfg, log: log}
}

// Enabled tells whether a service manager listens.
func (n *Notifier) Enabled() bool { return n.cfg.Socket != "" }

// Ready ends a start or a reload.
func (n *Notifier) Ready() { n.send(daemon.SdNotifyReady) }

// Status shows text in systemctl status. The same text is not sent twice.
func (n *Notifier) Status(text string) {
	if text != n.status {
		n.status = text
		n.send("STATUS=" + strings.ReplaceAll(text, "\n", " "))
	}
}

// Stopping begins the end.
func (n *Notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

// Reloading begins a reload; Ready ends it.
func (n *Notifier) Reloading() {
	// Type=notify-reload wants to know which reload this is about.
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has this clock
	}
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, ts.Nano()/1000))
}

// ExtendTimeout asks that a start or a stop which takes longer is given d more,
// from now on.
func (n *Notifier) ExtendTimeout(d time.Duration) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

// Watchdog is a sign of life. It must come more often than WatchdogInterval.
func (n *Notifier) Watchdog() { n.send(daemon.SdNotifyWatchdog) }

// WatchdogInterval returns how long this process may be silent before it is
// taken for hung; 0 = for ever.
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

// send never fails the caller: the daemon works without its service manager. It
// complains once per failure, not once per message.
func (n *Notifier) send(message string) {
	if !n.Enabled() {
		return
	}
	_, err := daemon.SdNotify(false, message)
	if err != nil && !n.failed {
		n.log.Warn("the service manager cannot be told", zap.Error(err))
	}
	n.failed = err != nil
}

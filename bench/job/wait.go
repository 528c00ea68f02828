package job

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is one of the kernel's. What waits for it is woken by Go's poller, as by a socket.
type timer struct {
	file *os.File
	fd   int // of file; its method Fd would make it one that blocks
}

var timers sync.Pool

// Wait waits as a job does whose answer from elsewhere takes d. time.Sleep takes up to a
// millisecond more where nothing else happens, because an idle Go program waits for its own timers in
// whole milliseconds.
func Wait(d time.Duration) error {
	t, _ := timers.Get().(*timer)
	if t == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("timerfd: %w", err)
		}
		t = &timer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	}
	if err := unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	var expirations [8]byte
	if _, err := t.file.Read(expirations[:]); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	timers.Put(t)
	return nil
}

package job

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a kernel timer. Go's poller wakes its waiter, as for a socket.
type timer struct {
	file *os.File
	fd   int // of file; the method Fd would make the file blocking
}

var timers sync.Pool

// Wait sleeps for d, like a job that waits for a remote answer. time.Sleep may take up to a
// millisecond longer, because an otherwise idle Go program waits for its timers in whole
// milliseconds.
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

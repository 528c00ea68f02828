package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// tap is the reading end of the pipe for a daemon's log. While it is locked, nothing is read.
type tap struct {
	*os.File
	sync.RWMutex
}

// Read waits while the tap is locked.
func (t *tap) Read(b []byte) (int, error) {
	t.RLock()
	defer t.RUnlock()
	n, err := t.File.Read(b)
	return n, err
}

// junk begins lines that only fill the pipe.
const junk = "~"

// block stops reading the log and fills the pipe, so that the next write blocks.
func (t *tap) block() (release func(), err error) {
	// A pending read holds the lock until input comes, and takes only its first part.
	locked := make(chan struct{})
	go func() {
		t.Lock()
		close(locked)
	}()
	release = sync.OnceFunc(func() {
		<-locked
		t.Unlock()
	})
	// The reader may read everything before the lock is requested, and wait again.
	for again := time.NewTicker(time.Millisecond); ; {
		if err := t.fill(); err != nil {
			return release, err
		}
		select {
		case <-locked:
			again.Stop()
			return release, t.fill()
		case <-again.C:
		}
	}
}

func (t *tap) fill() error {
	conn, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var w *os.File
	// Opened again, the pipe blocks neither here nor, because of that, in the daemon.
	if failed := conn.Control(func(fd uintptr) {
		w, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	}); failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	defer func() { _ = w.Close() }()
	if conn, err = w.SyscallConn(); err != nil {
		return err
	}
	failed := conn.Control(func(fd uintptr) {
		for size := 4096; size > 0 && err == nil; {
			line := strings.Repeat(junk, size-1) + "\n"
			if _, err = syscall.Write(int(fd), []byte(line)); errors.Is(err, syscall.EAGAIN) {
				size, err = size/2, nil
			}
		}
	})
	return errors.Join(failed, err)
}

// saidAt returns when a log line was written, by the time in it: a full pipe delays lines.
func (c *chaos) saidAt(text string) time.Duration {
	now := procfs.BootTime()
	var line struct{ Time time.Time }
	if json.Unmarshal([]byte(text), &line) != nil || line.Time.IsZero() {
		return now
	}
	at := time.Duration(line.Time.UnixNano()) - c.history.Epoch
	if at > now || at < now-time.Minute { // the clock was set
		return now
	}
	return at
}

// logBlocked stops reading the log of a daemon. A worker process dies, which its master logs;
// all others send beats. Half of the time the daemon is stopped and exits.
func logBlocked(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	leaves := r.IntN(2) == 0
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	release, err := m.tap.block()
	defer release()
	if err != nil {
		return err
	}
	f.Effect, f.Procs, f.From = check.Kills, []string{w.proc}, procfs.BootTime()
	_ = syscall.Kill(w.PID, syscall.SIGKILL)
	lasted(f, "pid %d", w.PID)
	if err := c.awaitRecovered(ctx, f, f.From, f.Procs); err != nil {
		return err
	}
	recovered := f.Recovered
	// By then each process has logged something.
	if !pause(ctx, between(r, 500*time.Millisecond, 1500*time.Millisecond)) {
		return context.Cause(ctx)
	}
	if err := c.beating(ctx, f, procfs.BootTime(), m); err != nil {
		return err
	}
	if leaves {
		one := check.Fault{Noticed: -1}
		if err := c.restarted(ctx, &one, m, syscall.SIGQUIT); err != nil {
			release() // the following faults and checks need the log
			if _, late := m.awaitExit(ctx, patience); late != nil {
				return errors.Join(err, late)
			}
			return errors.Join(err, m.start(ctx))
		}
		f.Note += fmt.Sprintf(", and it was started again after %s", span(one.To-one.From))
	}
	f.Recovered = recovered
	f.Note += fmt.Sprintf(", not read for %s", span(procfs.BootTime()-f.From))
	return nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// trace is a file of this process in which jobs note when they hold their lock, so that the
// tests can check Redis's locks independently. Each note is one write, so that a killed process
// leaves whole lines.
type trace struct {
	dir  string // empty = none
	once sync.Once
	file *os.File
	err  error
}

// span is one run of a job.
type span struct {
	trace *trace
	job   *resqued.Job
}

// begin notes that the job of ctx has its lock.
func (t *trace) begin(ctx context.Context) (span, error) {
	s := span{trace: t, job: resqued.JobFrom(ctx)}
	return s, s.note("begin")
}

// note writes "<kind> <ns> <pid> <fence> <id> <lock key>"; a key may have blanks.
func (s span) note(kind string) error {
	at, t := procfs.BootTime(), s.trace
	if t.dir == "" {
		return nil
	}
	t.once.Do(func() {
		name := filepath.Join(t.dir, fmt.Sprintf("%d-%d", os.Getpid(), at))
		t.file, t.err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	})
	if t.err != nil {
		return t.err
	}
	_, err := fmt.Fprintf(t.file, "%s %d %d %d %s %s\n", kind, at.Nanoseconds(), os.Getpid(), s.job.Fence(), s.job.ID, s.job.LockKey)
	return err
}

// actEvery is how often an Act job does something as the holder of its lock.
const actEvery = 5 * time.Millisecond

func registerLocked(h *resqued.Handlers, n *notes) {
	// Hold holds its lock for a while.
	resqued.Handle(h, "Hold", func(ctx context.Context, a struct{ Key, Microseconds int }) error {
		s, err := n.trace.begin(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(a.Microseconds) * time.Microsecond):
		}
		return s.note("end")
	})
	// Act acts as the holder again and again, until it is told to stop or the test opens the
	// gate.
	resqued.Handle(h, "Act", func(ctx context.Context, id int) error {
		s, err := n.trace.begin(ctx)
		if err != nil {
			return err
		}
		if err := n.mark("started", id); err != nil {
			return err
		}
		tick := time.NewTicker(actEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			if ctx.Err() != nil {
				_ = s.note("told")
				return context.Cause(ctx)
			}
			if err := s.note("act"); err != nil {
				return err
			}
			open, err := n.client.Exists(ctx, n.space+":test:open").Result()
			if err == nil && open == 1 {
				return s.note("end")
			}
		}
	})
}

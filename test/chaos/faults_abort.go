package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// usr1Crash makes a daemon kill its jobs. A moment later one of its worker processes dies with
// jobs taken since, which were not to be killed.
func usr1Crash(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	a := &check.Aborted{Procs: names(m.workers()), Crashed: w.proc, From: procfs.BootTime()}
	m.signal(syscall.SIGUSR1)
	// Soon after, its master knows that all jobs to be killed have ended.
	_ = within(ctx, 400*time.Millisecond, "the next job", func() bool { return c.hasBegun(w.proc, a.From+30*time.Millisecond) })
	if !pause(ctx, between(r, 0, 60*time.Millisecond)) {
		return context.Cause(ctx)
	}
	f.Effect, f.Procs, f.From = check.Kills, []string{w.proc}, procfs.BootTime()
	_ = syscall.Kill(w.PID, syscall.SIGKILL)
	a.At = f.From
	lasted(f, "pid %d, %s after USR1", w.PID, span(f.From-a.From))
	err = c.awaitRecovered(ctx, f, f.From, f.Procs)
	// A job that ignores its kill may take as long as its grace.
	a.To = procfs.BootTime() + termTimeout + time.Second
	f.Aborted = a
	c.noticed(f, seen, fmt.Sprintf(`worker process died","proc":%q`, w.proc))
	return err
}

// hasBegun reports whether a worker process has started a job since an instant.
func (c *chaos) hasBegun(worker string, since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	runs := c.history.Runs
	for i := len(runs) - 1; i >= max(0, len(runs)-200); i-- {
		if runs[i].Proc == worker && runs[i].At > since {
			return true
		}
	}
	return false
}

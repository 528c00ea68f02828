package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// toolEnv names the program of the class Tool, used by no other class.
const toolEnv = "CHAOS_TOOL"

// brief is how long it runs: the shorter, the more often the file is unused.
const brief = 5 * time.Millisecond

func (c *chaos) tool() string { return filepath.Join(c.dir, "tool") }

// makeTool creates the program of the class Tool.
func (c *chaos) makeTool() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return copyFile(self, c.tool())
}

// lease is a lease of a file (fcntl(2)): a process that executes the file waits until the lease
// is given up, as with a network or a scanner that does not answer.
type lease struct{ file *os.File }

// takeLease takes a lease. It fails with EAGAIN while the program runs.
func takeLease(path string) (*lease, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lease of %s: %w", path, err)
	}
	return &lease{f}, nil
}

// leasedTool replaces the program of the class Tool by a new copy with a lease. Nothing executes
// the copy yet, although commands may run or begin all the time.
func (c *chaos) leasedTool(ctx context.Context) (held *lease, err error) {
	fresh := c.tool() + ".new"
	if err := copyFile(c.tool(), fresh); err != nil {
		return nil, err
	}
	// A process that is starting may have it open for a moment.
	err = c.await(ctx, patience, "a new copy of a program to be closed", func() bool {
		held, err = takeLease(fresh)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err == nil && held == nil {
		err = errors.New("no lease of a program")
	}
	if err == nil {
		err = os.Rename(fresh, c.tool())
	}
	if err != nil {
		_ = os.Remove(fresh)
		if held != nil {
			held.giveUp()
		}
	}
	return held, err
}

// wanted reports whether a process waits for the file.
func (l *lease) wanted() bool {
	kind, err := unix.FcntlInt(l.file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind != unix.F_WRLCK
}

// giveUp lets the waiting processes continue. Closing the file is not enough: a process that was
// just started may have it open, too.
func (l *lease) giveUp() {
	_, _ = unix.FcntlInt(l.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	_ = l.file.Close()
}

// waitForTool returns, when the context ends, the worker processes that have had a job of class
// Tool in hand for longer than normal.
func (c *chaos) waitForTool(ctx context.Context) (waiting []string) {
	since := map[string]time.Time{}
	for pause(ctx, 50*time.Millisecond) {
		for _, worker := range c.server.ctl().ZRange(ctx, key("resqued:procs"), 0, -1).Val() {
			jobs := c.server.ctl().HVals(ctx, key("resqued:inflight:"+worker)).Val()
			switch has := slices.ContainsFunc(jobs, func(job string) bool { return strings.Contains(job, `"class":"Tool"`) }); {
			case !has:
				delete(since, worker)
			case since[worker].IsZero():
				since[worker] = time.Now()
			case time.Since(since[worker]) > 500*time.Millisecond && !slices.Contains(waiting, worker):
				waiting = append(waiting, worker)
			}
		}
	}
	return waiting
}

// execBlocked makes the program of some commands impossible to open for a while. Only their own
// jobs wait for it: each worker process sends beats, and other jobs run.
func execBlocked(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	held, err := c.leasedTool(ctx)
	if err != nil {
		return err
	}
	defer held.giveUp()
	seen := c.marks()
	if err := c.await(ctx, patience, "a command of class Tool", held.wanted); err != nil {
		return err
	}
	f.From = procfs.BootTime()
	// Shorter than all timeouts: a process without beats would count as dead.
	hold, cancel := context.WithTimeout(ctx, c.leaseOf("")+time.Second)
	defer cancel()
	var waiting []string
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		waiting = c.waitForTool(hold)
	}()
	err = errors.New("no heartbeat of each worker process")
	if pause(hold, between(r, 1000*time.Millisecond, 1500*time.Millisecond)) {
		err = c.beating(hold, f, f.From+300*time.Millisecond, c.machines...)
	}
	// The hold ends before silent processes count as dead. If the machine was overloaded, their
	// silence means nothing.
	starved := c.starved(f.From)
	if err != nil && ctx.Err() == nil && hold.Err() != nil && starved {
		err = nil
	}
	beaten := f.Recovered
	cancel()
	<-looking
	held.giveUp()
	lasted(f, "for %s, by %d worker processes", span(procfs.BootTime()-f.From), len(waiting))
	if err != nil {
		return err
	}
	var silent []string
	for worker, at := range c.said(silentLine) {
		if at >= f.From {
			silent = append(silent, worker)
		}
	}
	// An overloaded machine does not explain why exactly the waiting processes are silent.
	others := slices.ContainsFunc(silent, func(worker string) bool { return !slices.Contains(waiting, worker) })
	if i := slices.IndexFunc(silent, func(worker string) bool { return slices.Contains(waiting, worker) }); i >= 0 && (!starved || !others) {
		return fmt.Errorf("%s was ended while it waited for the program of a command, since it gave no sign of life", silent[i])
	}
	err = c.allWorking(ctx, f, seen)
	f.Recovered = max(f.Recovered, beaten)
	return err
}

// starved reports whether the machine was overloaded or stopped since an instant.
func (c *chaos) starved(since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history.Held(since, procfs.BootTime()) > 0
}

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

	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// toolEnv names the program of the class Tool, which no other class runs.
const toolEnv = "CHAOS_TOOL"

// brief is how long it runs: the shorter, the more often the file is not in use.
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

// wanted reports whether a process waits for the file.
func (l *lease) wanted() bool {
	kind, err := unix.FcntlInt(l.file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind != unix.F_WRLCK
}

// giveUp lets the waiting processes go on. Closing the file is not enough: a process that was
// just started may have it open too.
func (l *lease) giveUp() {
	_, _ = unix.FcntlInt(l.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	_ = l.file.Close()
}

// waitForTool returns, when the context ends, the worker processes that have had a job of class
// Tool in hand for longer than its normal duration.
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
	var held *lease
	err := within(ctx, patience, "an instant without a command of class Tool", func() (ok bool) {
		var err error
		if held, err = takeLease(c.tool()); err != nil && !errors.Is(err, unix.EAGAIN) {
			return true
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if held == nil {
		return errors.New("no lease of a program")
	}
	defer held.giveUp()
	seen := c.marks()
	if err := within(ctx, patience, "a command of class Tool", held.wanted); err != nil {
		return err
	}
	f.From = procfs.BootTime()
	// Shorter than all timeouts: a process that sends no beats is taken for dead.
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
	beaten := f.Recovered
	cancel()
	<-looking
	held.giveUp()
	lasted(f, "for %s, by %d worker processes", span(procfs.BootTime()-f.From), len(waiting))
	if err != nil {
		return err
	}
	// An overloaded machine does not explain why exactly these are silent.
	for worker, at := range c.said(silentLine) {
		if at >= f.From && slices.Contains(waiting, worker) {
			return fmt.Errorf("%s was ended while it waited for the program of a command, since it gave no sign of life", worker)
		}
	}
	err = c.allWorking(ctx, f, seen)
	f.Recovered = max(f.Recovered, beaten)
	return err
}

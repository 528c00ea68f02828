package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/test/chaos/check"
)

// toolEnv names the program of the class Tool, which nothing else runs.
const toolEnv = "CHAOS_TOOL"

// brief is how long it runs: the shorter, the more often nobody does.
const brief = 5 * time.Millisecond

func (c *chaos) tool() string { return filepath.Join(c.dir, "tool") }

// makeTool makes the program of the class Tool.
func (c *chaos) makeTool() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return copyFile(self, c.tool())
}

// lease is a lease of a file (fcntl(2)): who executes it has to wait until its holder gives
// it up, as behind a network or a scanner that does not answer.
type lease struct{ file *os.File }

// takeLease fails with EAGAIN while the program runs.
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

// wanted reports whether somebody waits for it.
func (l *lease) wanted() bool {
	kind, err := unix.FcntlInt(l.file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind != unix.F_WRLCK
}

// giveUp lets everybody go on. It is not enough to close the file: a process that was just
// started may have it, too.
func (l *lease) giveUp() {
	_, _ = unix.FcntlInt(l.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	_ = l.file.Close()
}

// execBlocked: the program of some commands cannot be opened for a while. Only their own jobs
// wait for it: each worker process beats, and others work.
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
	f.From = proc.BootTime()
	// Not longer than anybody's patience: whoever does not beat is given up for dead.
	hold, cancel := context.WithTimeout(ctx, c.leaseOf("")+time.Second)
	defer cancel()
	err = errors.New("no heartbeat of each worker process")
	if pause(hold, between(r, 1000*time.Millisecond, 1500*time.Millisecond)) {
		err = c.beating(hold, f, f.From+300*time.Millisecond, c.machines...)
	}
	beaten := f.Recovered
	held.giveUp()
	lasted(f, "for %s", span(proc.BootTime()-f.From))
	if err != nil {
		return err
	}
	err = c.allWorking(ctx, f, seen)
	f.Recovered = max(f.Recovered, beaten)
	return err
}

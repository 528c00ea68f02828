package proc

import (
	"context"
	"os"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// Sweep sends SIGKILL to every process that belongs to the worker process proc, that one
// included, so call it after it was reaped. It returns when none is left, or with an error when
// ctx ends. killed counts the signalled processes. See procfs.Sweeper.Sweep for what is out of
// reach.
func Sweep(ctx context.Context, proc string) (killed int, err error) {
	return newSweeper(proc).Sweep(ctx)
}

// Sweep sends SIGKILL to everything that the worker process has started, but not to itself. It
// returns when nothing is left, or with an error when ctx ends. Call it right after Kill: a
// process with a pending SIGKILL starts nothing more, but may take long to end. Call it again
// after Wait: until then, its descendants may move in the process tree.
func (c *Child) Sweep(ctx context.Context) (killed int, err error) {
	return c.sweeper.Sweep(ctx)
}

func newSweeper(proc string) *procfs.Sweeper {
	return procfs.NewSweeper(proc, func() bool { return ours(proc) })
}

func ours(proc string) bool {
	master, err := ParseIdentity(proc)
	if err != nil || master.PID != os.Getpid() {
		return false
	}
	self, err := Self()
	return err == nil && master == self
}

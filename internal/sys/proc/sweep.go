package proc

import (
	"context"
	"os"

	"github.com/resqued/resqued/internal/sys/procfs"
)

// Sweep kills with SIGKILL every process that belongs to the worker process proc
// and returns when none is left, or with an error when ctx ends before. The
// worker process itself counts too, so call it after it was reaped. killed
// counts the processes to which it was sent.
//
// Out of reach is only a process that has taken off its mark (see package mark), emptied
// its environment, and outlives its parent.
func Sweep(ctx context.Context, proc string) (killed int, err error) {
	return newSweeper(proc).Sweep(ctx)
}

// Sweep kills with SIGKILL everything that the worker process has started, and
// returns when nothing of it is left, or with an error when ctx ends before. The
// worker process itself is neither killed nor waited for. Call it right after Kill: who
// was sent that starts nothing more, but may take its time to end. And again after Wait:
// until then what it has started may move in the tree of processes.
func (c *Child) Sweep(ctx context.Context) (killed int, err error) {
	return c.sweeper.Sweep(ctx)
}

func newSweeper(proc string) *procfs.Sweeper {
	return procfs.NewSweeper(proc, func() bool { return ours(proc) })
}

// ours reports whether this process is the master of the worker process proc.
func ours(proc string) bool {
	master, err := ParseIdentity(proc)
	if err != nil || master.PID != os.Getpid() {
		return false
	}
	self, err := Self()
	return err == nil && master == self
}

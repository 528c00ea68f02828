package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
)

// stuckTimeout is the time limit of the classes whose names end in "Timed".
const stuckTimeout = 300 * time.Millisecond

// registerStuck registers handlers that only a kill ends, each in a different way, with and
// without a time limit.
func registerStuck(h *resqued.Handlers, n *notes) {
	forEver := func(name string, hang func(ctx context.Context) error) {
		run := func(ctx context.Context, id int) error {
			if err := n.mark("started", id); err != nil {
				return err
			}
			err := hang(ctx)
			// This is the code's last action: its lock must not be free before.
			_ = n.mark("stopped", id)
			return err
		}
		resqued.Handle(h, name, run)
		resqued.Handle(h, name+"Timed", run, resqued.Timeout(stuckTimeout))
	}
	forEver("Obedient", func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	forEver("Asleep", func(context.Context) error {
		for {
			time.Sleep(time.Hour) //nolint:forbidigo // nothing ends it, and that is what it is for
		}
	})
	forEver("Blocked", func(context.Context) error {
		<-make(chan int)
		return nil
	})
	forEver("Spinning", func(context.Context) error {
		for spin.Load() == 0 {
		}
		return nil
	})
	forEver("Reading", func(context.Context) error {
		// os.Pipe would wait in the runtime; this read waits in the kernel.
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		_, err := unix.Read(pipe[0], make([]byte, 1))
		return err
	})
	forEver("Flocking", func(context.Context) error {
		var files [2]*os.File
		for i := range files {
			var err error
			if files[i], err = os.OpenFile("flock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
				return err
			}
			if err := unix.Flock(int(files[i].Fd()), unix.LOCK_EX); err != nil {
				return err
			}
		}
		return nil
	})
}

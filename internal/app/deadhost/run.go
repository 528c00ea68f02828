package deadhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

const (
	mostLines = 100
	// drainFor is how long to wait for output after the end.
	drainFor = time.Second
	// sweepFor bounds the search for remaining processes.
	sweepFor = 10 * time.Second
)

type hook struct {
	argv, env []string
	// name is in the environment of all descendants.
	name    string
	timeout time.Duration
	log     *zap.Logger
}

// run runs the command and kills its remaining descendants. It returns nil for exit code 0.
func run(ctx context.Context, h hook) error {
	limit, cancel := context.WithTimeoutCause(ctx, h.timeout, errKilled)
	defer cancel()
	// The kernel kills it with the thread that started it, this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(limit, h.argv[0], h.argv[1:]...) //nolint:gosec // it is configured
	cmd.Env = h.env
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = drainFor
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	var reading sync.WaitGroup
	reading.Go(func() { h.tell(out) })
	err := cmd.Run()
	_ = in.Close()
	reading.Wait()
	if cmd.Process != nil {
		h.sweep(ctx)
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // a descendant held the output open; it is gone
		return nil
	case err != nil && limit.Err() != nil:
		return context.Cause(limit)
	case err != nil:
		return err
	}
	return nil
}

func (h hook) tell(from io.Reader) {
	n := 0
	program.EachLine(from, func(line []byte, left int) {
		if n++; n > mostLines {
			return
		}
		fields := []zap.Field{zap.String("line", wire.Printable(string(line), program.MaxLine))}
		if left > 0 {
			fields = append(fields, zap.Int("bytes_left_out", left))
		}
		h.log.Info("host_dead_hook output", fields...)
	})
	if n > mostLines {
		h.log.Info("host_dead_hook output", zap.String("line", fmt.Sprintf("… and %d more lines", n-mostLines)))
	}
}

func (h hook) sweep(ctx context.Context) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepFor)
	defer cancel()
	if killed, err := proc.Sweep(limit, h.name); err != nil {
		h.log.Warn("processes that host_dead_hook has left do not end", zap.Error(err))
	} else if killed > 0 {
		h.log.Info("killed processes that host_dead_hook had left", zap.Int("processes", killed))
	}
}

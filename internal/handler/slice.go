package handler

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/sys/program"
)

const (
	// replyFD is the descriptor for replies to a long job's command.
	replyFD = 4
	// exitTerm is the exit code with which a shell reports that a program died of TERM, and with
	// which some runtimes then end themselves.
	exitTerm = 128 + int(syscall.SIGTERM)
)

// slices performs a job of a class of long jobs: the class decides the command's input and the
// result.
func (c *command) slices(ctx context.Context, job *resqued.Job) error {
	return cmdslice.Of(&c.Command)(ctx, job, func(ctx context.Context, s *cmdslice.Slice) error {
		named := *job
		named.Args, named.Deadline = s.Args, s.Ends
		if c.stay != nil {
			return c.stay.Perform(ctx, &named, c.KillAfter, s)
		}
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		return c.run(ctx, &named, &slice{Slice: s, ctx: ctx, stop: stop})
	})
}

type slice struct {
	*cmdslice.Slice
	ctx     context.Context //nolint:containedctx // of the run: its reports come from a reader of their own
	stop    context.CancelCauseFunc
	replies replies
	// broken is what ended the reports; only their reader writes it.
	broken error
}

func (s *slice) environ() []string {
	return []string{
		"RESQUED_REPLY_FD=" + strconv.Itoa(replyFD),
		"RESQUED_LONG_RUN=" + s.Run,
		"RESQUED_LONG_SLICE=" + strconv.FormatInt(s.Number, 10),
		"RESQUED_LONG_FENCE=" + strconv.FormatInt(s.Fence, 10),
	}
}

// report takes a line of fd 3, unless an earlier one has ended the slice.
func (s *slice) report(line cmdslice.Line) {
	if s.broken != nil {
		return
	}
	reply, err := s.Report(s.ctx, line)
	if err != nil {
		s.broken = err
		s.stop(err)
		return
	}
	if reply != nil {
		s.replies.put(reply)
	}
}

// judge turns the program's end into the slice's.
func (s *slice) judge(c *command, status syscall.WaitStatus, how stopped, stderr string) error {
	stderr = program.RunError(stderr)
	s.Stderr = stderr
	if s.broken != nil {
		return s.broken
	}
	byTerm := status.Signaled() && status.Signal() == syscall.SIGTERM || status.ExitStatus() == exitTerm
	switch {
	case how.killed:
	case how.outOfTime:
		s.End = cmdslice.ByKill
		return nil
	case how.told && byTerm:
		s.End = cmdslice.ByTerm
		return nil
	case how.told && status.ExitStatus() == exitDone:
		s.End = cmdslice.Told
		return nil
	}
	return c.judge(status, how.killed, stderr)
}

// replies writes lines into the pipe of a command that may not read them. Each reply covers all
// earlier ones, so only the latest one waits, and neither the command nor the reader of its
// reports waits for the other. A command that asks for a lock must read the answer before it
// reports a state.
type replies struct {
	mu     sync.Mutex
	latest []byte
	ready  chan struct{}
	pipe   *os.File
	done   sync.WaitGroup
}

// open returns the command's end of the pipe. close ends its goroutine.
func (r *replies) open() (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.ready, r.pipe = make(chan struct{}, 1), write
	r.done.Go(r.write)
	return read, nil
}

func (r *replies) put(line []byte) {
	r.mu.Lock()
	r.latest = line
	r.mu.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

func (r *replies) write() {
	for range r.ready {
		r.mu.Lock()
		line := r.latest
		r.mu.Unlock()
		// On error the command has closed its end or has ended.
		if _, err := r.pipe.Write(append(line, '\n')); err != nil {
			return
		}
	}
}

// close must come after the last put.
func (r *replies) close() {
	if r.pipe == nil {
		return
	}
	close(r.ready)
	// A deadline ends a write that waits for the command.
	_ = r.pipe.SetWriteDeadline(time.Now())
	r.done.Wait()
	_ = r.pipe.Close()
	r.pipe = nil // it may be opened again
}

// eachReport calls fn for each line of r that is not blank; it keeps only the first most bytes
// of a longer line.
func eachReport(r io.Reader, most int, fn func(line cmdslice.Line)) {
	buf := make([]byte, program.MaxLine)
	var line []byte
	left := 0
	for {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			part, behind, whole := bytes.Cut(rest, []byte("\n"))
			keep := min(len(part), max(most-len(line), 0))
			line, left = append(line, part[:keep]...), left+len(part)-keep
			if !whole {
				break
			}
			emit(line, left, false, fn)
			rest, line, left = behind, line[:0], 0
		}
		if err != nil {
			emit(line, left, true, fn)
			return
		}
	}
}

func emit(line []byte, left int, torn bool, fn func(line cmdslice.Line)) {
	if len(bytes.TrimSpace(line)) > 0 || left > 0 {
		fn(cmdslice.Line{Text: line, Left: left, Torn: torn})
	}
}

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
)

// ahead is how many lines of a job may wait while one is worked.
const ahead = 16

// task is a job for a runner; see Pool.Perform.
type task struct {
	job       *resqued.Job
	killAfter time.Duration
	slice     *cmdslice.Slice
	refresh   func()
}

// call is a job in the hands of a runner process.
type call struct {
	task
	number   int64
	process  *process
	ended    bool // under the process's mu: it has said how
	messages chan message

	stopping sync.Once
	// Under the process's mu. stopped: it was told to stop. told: it was told that its slice is
	// over. outOfTime: it ran on for all the time that it had then.
	stopped, told, outOfTime bool
}

// Error is the failure of a job in its runner.
type Error struct {
	exception, message string
	backtrace          []string
}

// Error returns what the runner says of it.
func (e *Error) Error() string { return e.message }

// Exception is the class of the exception.
func (e *Error) Exception() string { return e.exception }

// Backtrace is that of the exception.
func (e *Error) Backtrace() []string { return e.backtrace }

func (c *call) fields() []zap.Field {
	return []zap.Field{zap.String("class", wire.Printable(c.job.Class, 120)), zap.String("job", wire.Printable(c.job.ID, 120))}
}

// why is the word for a cause in a cancel.
func why(cause error) string {
	switch {
	case errors.Is(cause, resqued.ErrTimeout):
		return "timeout"
	case errors.Is(cause, resqued.ErrLockLost):
		return "lock_lost"
	default:
		return "killed"
	}
}

// patience is how long a job may take to stop: less where whoever ended its context gives it less,
// because after that the worker process has to go.
func patience(cause error, killAfter time.Duration) time.Duration {
	if told, ok := errors.AsType[interface {
		error
		Grace() time.Duration
	}](cause); ok {
		return min(killAfter, told.Grace()/2)
	}
	return killAfter
}

// cancel tells the job to stop, and kills its process when it does not. Its process gets no other
// job: nobody can know what the interrupted code has left behind.
func (c *call) cancel(cause error) {
	c.stopping.Do(func() {
		c.process.mu.Lock()
		c.stopped = true
		c.process.mu.Unlock()
		c.process.pool.retire(c.process)
		c.process.tell(`{"cancel":%d,"why":%q}`, c.number, why(cause))
		time.AfterFunc(patience(cause, c.killAfter), func() { c.process.abort(c, errIgnores) })
	})
}

// errIgnores: the job has not stopped in time.
var errIgnores = errors.New("was killed because a job did not stop")

// abort kills the process unless the job has ended.
func (p *process) abort(c *call, why error) {
	p.mu.Lock()
	over := c.ended || p.calls[c.number] != c
	p.mu.Unlock()
	if !over {
		p.fail(why)
	}
}

// await takes the lines of the job until one ends it, or its process is gone.
func (c *call) await(ctx context.Context) error {
	if c.slice != nil {
		over := make(chan struct{})
		defer close(over)
		go c.watchSlice(ctx, over)
	}
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	defer stop()
	var broken error
	for {
		m, ok := c.next()
		switch {
		case !ok && broken != nil, ok && m.kind.ends() && broken != nil:
			return broken
		case !ok:
			return c.died(ctx)
		case m.kind.ends():
			return c.outcome(m)
		}
		if err := c.note(ctx, m); err != nil && broken == nil {
			broken = err
			c.cancel(err)
		}
	}
}

// next waits for a line of the job; false when its process is gone.
func (c *call) next() (m message, ok bool) {
	select {
	case m = <-c.messages:
		return m, true
	case <-c.process.gone:
	}
	select {
	case m = <-c.messages: // its last words
		return m, true
	default:
		return m, false
	}
}

// died is the end of a job whose process is gone.
func (c *call) died(ctx context.Context) error {
	p := c.process
	text := p.death(p.broken)
	p.mu.Lock()
	outOfTime := c.outOfTime
	p.mu.Unlock()
	switch {
	case outOfTime:
		c.slice.End = cmdslice.ByKill
		return nil
	case ctx.Err() != nil: // it was to be stopped, and it is known why
		return &Error{exception: "Resque::DirtyExit", message: text}
	}
	return &jobctx.DeathError{Err: errors.New(text), Shared: p.slots() > 1}
}

// outcome is what the runner says of the end of the job.
func (c *call) outcome(m message) error {
	if s := c.slice; s != nil {
		s.End = cmdslice.ByItself
		if _, told := c.how(); told {
			s.End = cmdslice.Told
		}
	}
	switch m.kind {
	case failed:
		return &Error{exception: m.exception, message: m.text, backtrace: m.backtrace}
	case requeue:
		return fmt.Errorf("runner %s: %w", c.process.pool.o.Name, resqued.Requeue(m.after))
	case discard:
		return fmt.Errorf("%w: %s", resqued.Discard, m.text)
	default:
		return nil
	}
}

// note takes a line that does not end the job.
func (c *call) note(ctx context.Context, m message) error {
	switch {
	case m.kind == progress:
		c.process.log.Debug("job progress", append(c.fields(), zap.Stringer("done", m.of), zap.Stringer("total", m.total))...)
	case m.kind == refreshLock && c.refresh != nil:
		c.refresh()
	case m.kind == report && c.slice != nil:
		line := cmdslice.Line{Text: m.line}
		if over := len(m.line) - c.slice.MaxLine; over > 0 {
			line = cmdslice.Line{Text: m.line[:c.slice.MaxLine], Left: over}
		}
		reply, err := c.slice.Report(ctx, line)
		if err != nil {
			return err
		}
		if len(reply) > 0 && json.Valid(reply) {
			c.process.tell(`{"reply":{"job":%d,"line":%s}}`, c.number, reply)
		}
	}
	return nil
}

// watchSlice tells the job that its slice is over, and kills its process when it runs on for the
// whole grace.
func (c *call) watchSlice(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
		return
	case <-c.slice.Over:
	}
	c.process.mu.Lock()
	c.told = true
	c.process.mu.Unlock()
	c.process.tell(`{"slice_over":%d}`, c.number)
	grace := time.NewTimer(c.slice.Grace)
	defer grace.Stop()
	select {
	case <-over:
	case <-ctx.Done():
	case <-grace.C:
		p := c.process
		p.mu.Lock()
		c.outOfTime = !c.ended
		p.mu.Unlock()
		p.pool.retire(p)
		p.abort(c, errIgnores)
	}
}

// how reports whether the job was told to stop, and that its slice is over.
func (c *call) how() (stopped, told bool) {
	c.process.mu.Lock()
	defer c.process.mu.Unlock()
	return c.stopped, c.told
}

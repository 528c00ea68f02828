package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// exitFor is how long a process that has closed its socket may take to end by itself, to get
	// its own last words and exit code.
	exitFor = 500 * time.Millisecond
	// keptLine is the largest buffer for a job's line that a process keeps, in bytes.
	keptLine = 64 << 10
)

var errNotStarted = errors.New("it was not given to its runner")

type call struct {
	q         *process
	ctx       context.Context //nolint:containedctx // of the job: it is told to stop when that ends
	job       *resqued.Job
	slice     *cmdslice.Slice
	killAfter time.Duration
	// died is how the job's process has died, if this call only tells its failure hooks.
	died death

	number int64
	// lines are the process's lines about the job.
	lines   chan answer
	refresh *program.Refresher
	end     context.CancelFunc // ends the requests of refresh
	stop    context.CancelCauseFunc
	broken  error // what ended the reports of a slice

	// cancelling is done when cancel has returned.
	cancelling sync.WaitGroup
	mu         sync.Mutex
	timer      *time.Timer
	// cancelled: the job was told to stop. told: it was told that its slice is over. outOfTime:
	// it then used up the grace.
	cancelled, told, outOfTime bool
}

// perform hands out the job and returns when it has ended. begun is false if the process has
// certainly not begun it, so that another one may have it.
func (c *call) perform() (begun bool, err error) {
	q, p := c.q, c.q.pool
	if c.ctx.Err() != nil {
		p.put(q, false)
		return true, errNotStarted
	}
	token := jobctx.RunOf(c.job).Token
	q.hold(token)
	defer q.release(token)
	if c.slice != nil {
		c.ctx, c.stop = context.WithCancelCause(c.ctx)
		defer c.stop(nil)
	}
	begun, err = c.carryOut()
	if c.refresh != nil {
		late := time.AfterFunc(program.DrainFor, c.end)
		c.refresh.End()
		late.Stop()
		c.end()
	}
	return begun, err
}

// hand writes the job and arranges for cancel; over removes the arrangement.
func (c *call) hand() (over func() bool, err error) {
	q := c.q
	// cancel waits for this lock: the job's line comes first.
	q.conn.writing.Lock()
	defer q.conn.writing.Unlock()
	q.conn.after = false
	q.line = appendJob(q.line[:0], c.number, c.job, c.slice, c.died, q.hello.Classes...)
	c.cancelling.Add(1)
	over = context.AfterFunc(c.ctx, c.cancel)
	_, err = q.conn.file.Write(q.line)
	if cap(q.line) > keptLine {
		q.line = nil
	}
	return over, err
}

// settle undoes hand's arrangement, and reports whether the job was told to stop.
func (c *call) settle(over func() bool) (cancelled bool) {
	if over() {
		return false
	}
	c.cancelling.Wait()
	return true
}

// cancel tells the process to stop the job, and kills it when time is up.
func (c *call) cancel() {
	defer c.cancelling.Done()
	wait := program.Patience(c.ctx, c.killAfter)
	c.mu.Lock()
	c.cancelled = true
	c.timer = time.AfterFunc(wait, func() { c.q.kill(stubborn(wait)) })
	c.mu.Unlock()
	if c.q.slots > 1 {
		c.q.pool.leave(c.q) // it would put new jobs back
	}
	c.q.log.Debug("runner told to stop a job", zap.Int64("runner_pid", c.q.pid.Load()), zap.Duration("kill_after", wait))
	// On error it has ended. A process that does not read is killed, which ends the write.
	_ = c.q.conn.write(cancelLine(c.number, why(context.Cause(c.ctx)), final(c.ctx)))
}

// final reports whether the context's job must not run again, because a person requested its
// end.
func final(ctx context.Context) bool {
	told, ok := errors.AsType[interface {
		error
		Final() bool
	}](context.Cause(ctx))
	return ok && told.Final()
}

// why is the protocol's word for the cause of a context's end.
func why(cause error) string {
	switch {
	case errors.Is(cause, resqued.ErrTimeout):
		return "timeout"
	case errors.Is(cause, resqued.ErrLockLost):
		return "lock_lost"
	}
	return "killed"
}

// watch tells the process when the job should save its progress, until end is called.
func (c *call) watch() (end func()) {
	switch {
	case c.slice != nil:
		ended, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			c.tellOver(ended)
		}()
		return func() {
			close(ended)
			<-watched
		}
	case !c.q.hello.Leaving || c.died.how != "":
		return func() {}
	}
	// Without a goroutine: nearly all jobs end first.
	var told sync.Once
	tell := func() { told.Do(c.tellLeaving) }
	worker, own := context.AfterFunc(jobctx.LeavingContext(c.ctx), tell), context.AfterFunc(c.q.leaves, tell)
	return func() {
		worker()
		own()
		// With several slots, a process that does not read must not delay the ends of its jobs.
		// It ignores lines after the end of a job, and the write ends with it.
		if c.q.slots == 1 {
			told.Do(func() {}) // a line under way must not follow the next job's
		}
	}
}

func (c *call) tellLeaving() {
	if c.ctx.Err() == nil {
		_ = c.q.conn.write(leavingLine(c.number)) // on error it has ended
	}
}

// tellOver waits for the end of the slice and tells the process. It returns when ended is
// closed.
func (c *call) tellOver(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-c.ctx.Done():
		return
	case <-c.slice.Over:
	}
	c.mu.Lock()
	c.told = true
	c.mu.Unlock()
	written := make(chan struct{})
	go func() { // a process that does not read is killed, which ends the write
		defer close(written)
		_ = c.q.conn.write(sliceOverLine(c.number))
	}()
	if c.q.slots == 1 {
		defer func() { <-written }() // nothing may follow the next job's line
	}
	grace := time.NewTimer(c.slice.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-c.ctx.Done():
	case <-grace.C:
		c.mu.Lock()
		c.outOfTime = true
		c.mu.Unlock()
		c.q.kill(fmt.Sprintf("was killed, because it ran on for %s after it was told that its slice is over", c.slice.Grace))
	}
}

func (c *call) take(a *answer) {
	log := c.q.log.With(aboutJob(c.job)...)
	switch a.kind {
	case kindProgress:
		log.Debug("job progress", zap.Stringer("done", a.done), zap.Stringer("total", a.total))
	case kindRefresh:
		c.ask(log)
	case kindLog:
		write(log, a.level, "job says", zap.String("message", wire.PrintableLines(a.text, program.MaxLine)))
	case kindReport:
		c.report(a.line)
	default:
	}
}

func (c *call) ask(log *zap.Logger) {
	if c.refresh == nil {
		// Without an answer from Redis, a refresh must not outlive the job for long.
		var asking context.Context
		asking, c.end = context.WithCancel(c.ctx)
		c.refresh = program.NewRefresher(log, func() error { return resqued.RefreshLock(asking) })
	}
	c.refresh.Ask()
}

// report handles a report of a slice, unless the slice has failed before.
func (c *call) report(text []byte) {
	s := c.slice
	if s == nil || c.broken != nil {
		return
	}
	line := cmdslice.Line{Text: text}
	if len(text) > s.MaxLine {
		line.Text, line.Left = text[:s.MaxLine], len(text)-s.MaxLine
	}
	reply, err := s.Report(c.ctx, line)
	if err != nil {
		c.broken = err
		c.stop(err)
		return
	}
	if reply != nil {
		_ = c.q.conn.write(replyLine(c.number, reply))
	}
}

func (c *call) judge(a *answer) error {
	if c.broken != nil {
		return c.broken
	}
	switch a.kind {
	case kindFailed:
		return newJobError(a)
	case kindRequeue:
		return fmt.Errorf("runner %s: %w", c.q.pool.o.Name, resqued.Requeue(a.after))
	case kindLimitHit:
		return fmt.Errorf("runner %s: %w", c.q.pool.o.Name, resqued.LimitHit(a.text, time.Now().Add(a.after)))
	case kindDiscard:
		text := wire.PrintableLines(a.text, maxMessage)
		if c.slice != nil {
			c.slice.Stderr = program.RunError(text)
		}
		if text == "" {
			return resqued.Discard
		}
		return fmt.Errorf("%w: %s", resqued.Discard, text)
	default:
	}
	if c.slice == nil {
		jobctx.RunOf(c.job).Interrupted = a.interrupted
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told {
		c.slice.End = cmdslice.Told
	}
	return nil
}

func (c *call) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ending := c.q.ending
	switch {
	case c.broken != nil:
		return c.broken
	case c.cancelled:
		return ending
	case c.outOfTime:
		c.slice.End = cmdslice.ByKill
		return nil
	case c.slice != nil:
		return ending // the next slice resumes from the saved state
	}
	return &jobctx.DeathError{Err: ending, Shared: c.q.slots > 1}
}

// hangUp ends a process whose socket is closed or broken.
func (q *process) hangUp(err error) {
	late := time.NewTimer(exitFor)
	defer late.Stop()
	select {
	case <-q.exited:
	case <-late.C:
		how := "closed its socket, and was killed"
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, os.ErrDeadlineExceeded) {
			how = "was killed, because its socket broke: " + err.Error()
		}
		q.kill(how)
	}
}

// aside handles a line about no job.
func (q *process) aside(a *answer) {
	pid := zap.Int64("runner_pid", q.pid.Load())
	switch a.kind {
	case kindLog:
		write(q.log, a.level, "runner says", pid, zap.String("message", wire.PrintableLines(a.text, program.MaxLine)))
	case kindError:
		q.log.Error("a runner does not understand resqued", pid, zap.String("error", wire.PrintableLines(a.text, program.MaxLine)))
	default:
		if !q.puzzled { // once: a process that does not read must not block this
			q.puzzled = true
			q.log.Warn("a runner wrote a line of an unknown kind; it is ignored, and what follows of its kind, too",
				pid, zap.String("kind", shown(a.text)))
			_ = q.conn.write(errorLine("unknown kind of line: " + shown(a.text)))
		}
	}
}

// write logs a runner's text at the runner's level.
func write(log *zap.Logger, level, what string, fields ...zap.Field) {
	switch level {
	case "debug":
		log.Debug(what, fields...)
	case "warn", "warning":
		log.Warn(what, fields...)
	case "error", "fatal":
		log.Error(what, fields...)
	default:
		log.Info(what, fields...)
	}
}

func shown(text string) string { return wire.Printable(text, shownName) }

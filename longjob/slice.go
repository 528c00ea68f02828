package longjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
)

const (
	// lookEvery is how often a slice checks whether it is still wanted.
	lookEvery = 2 * time.Second
	// lastWords is how long a slice whose job was told to stop tries to save.
	lastWords = 5 * time.Second
	// behindPause is the time between two checks whether the code of the previous run has
	// returned.
	behindPause = time.Second
	// unreadPause is the time until a slice is tried again if another version of resqued has
	// written its run. A process of that version may take it in between.
	unreadPause = 10 * time.Second
)

type function func(ctx context.Context, r *Runner, args resqued.Args) error

// perform is the handler of a class. It runs one slice.
func perform(ctx context.Context, job *resqued.Job, class string, o Options, fn function) error {
	s := longstore.FromContext(ctx)
	if s == nil {
		return errors.New("longjob: slices run in a worker process of resqued only")
	}
	uuid, ok := uuidOf(job)
	if !ok {
		return adopt(ctx, s, job, class, o)
	}
	named := jobctx.RunOf(job)
	slice := longstore.Slice{UUID: uuid, Number: longstore.SliceOf(uuid, job.ID), Run: rdb.RunName{Proc: named.Proc, Token: named.Token}, Share: o.share(), Queues: servedBy(job.Worker), Class: class}
	record, err := begin(ctx, s, slice)
	switch {
	case errors.Is(err, longstore.ErrOther): // it names a run without being its slice
		return adopt(ctx, s, job, class, o)
	case slice.Number == 0 && (errors.Is(err, longstore.ErrGone) || errors.Is(err, longstore.ErrOver)):
		if o.UUIDArgument {
			return adopt(ctx, s, job, class, o)
		}
		return foreign(uuid, class, err)
	case errors.Is(err, longstore.ErrGone), errors.Is(err, longstore.ErrOver), errors.Is(err, longstore.ErrStale), errors.Is(err, longstore.ErrBusy),
		errors.Is(err, longstore.ErrWait), errors.Is(err, longstore.ErrPaused):
		return fmt.Errorf("%w: %w", resqued.Discard, err)
	case errors.Is(err, longstore.ErrBehind):
		return resqued.Requeue(behindPause)
	case errors.Is(err, longstore.ErrUnread):
		return resqued.Requeue(unreadPause) // a process of the other version may take it then
	case err != nil:
		return again() // the next process that begins it finds out
	}
	slice.Number, slice.Fence = record.Number("slice"), record.Number("fence")
	r := newRunner(s, slice, class, o, record)
	if deaths := int(record.Number("deaths")); deaths > o.MaxDeaths {
		return r.close(ctx, longstore.Failed, fmt.Sprintf("%d worker processes died with it, one after the other, and nothing was completed", deaths), 0)
	}
	var args resqued.Args
	if err := json.Unmarshal([]byte(record.Fields["args"]), &args); err != nil {
		return r.close(ctx, longstore.Failed, "its arguments are not a JSON array: "+err.Error(), 0)
	}
	err = r.end(ctx, r.run(ctx, fn, args))
	if record.Fields["tenant"] != "" && errors.Is(err, ErrCancelled) {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		_ = s.Leave(leave, slice) // otherwise the periodic check of tenants does it
	}
	return err
}

// servedBy returns the queues in the id of a worker; nil = any.
func servedBy(worker string) []string {
	parts := strings.SplitN(worker, ":", 3)
	if len(parts) < 3 || strings.ContainsAny(parts[2], "*?[!") {
		return nil
	}
	return strings.Split(parts[2], ",")
}

// uuidOf returns the UUID of the run of which a job may be a slice.
func uuidOf(job *resqued.Job) (string, bool) {
	var uuid string
	if len(job.Args) != 1 || job.Args.Get(0, &uuid) != nil {
		return "", false
	}
	return uuid, uuidForm().MatchString(uuid)
}

var uuidForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`) })

// foreign is the error of a job whose only argument is a UUID without a waiting or running run.
// It is most likely a long job of another program, whose runs are not in this Redis. Treating
// it as a run with that argument would make it look done.
func foreign(uuid, class string, err error) error {
	what := "it is not a run in this Redis, so this looks like the LongJob of another program (that of the Files.com fork of Resque keeps its runs in a database); let the workers of that program work its queue"
	if errors.Is(err, longstore.ErrOver) {
		what = "that run is over, and the payload does not name one of its slices"
	}
	return fmt.Errorf("longjob: the only argument is the UUID %s, and %s. If jobs of class %q have UUIDs as arguments, say so: longjob.Options.UUIDArgument, or long_job: {uuid_argument: true}", uuid, what, class)
}

// adopt makes a job that was enqueued as a plain one, by a schedule or by a program in another
// language, a run. It does nothing if a run with the same arguments waits or runs, so a
// repetition of the job, for example after a crash, changes nothing.
func adopt(ctx context.Context, s *longstore.Store, job *resqued.Job, class string, o Options) error {
	c := &Client{store: s}
	run, err := c.newRun(class, job.Args, []EnqueueOption{Queue(o.Queue)})
	if err != nil {
		return err
	}
	if _, err := s.AddRuns(ctx, longstore.Unique, []longstore.NewRun{run}); err != nil {
		return again()
	}
	return nil
}

// again puts the payload back unchanged. That is always safe: if the slice was taken over or
// has ended, the payload has no effect.
func again() error { return resqued.Requeue(0) }

func begin(ctx context.Context, s *longstore.Store, slice longstore.Slice) (longstore.Record, error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		record, err := s.Begin(ctx, slice)
		if !passing(err) {
			return record, err
		}
		if !sleep(ctx, wait) {
			return record, context.Cause(ctx)
		}
	}
}

func passing(err error) bool {
	return err != nil && !longstore.Replied(err)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// run calls the function on a goroutine of its own, so runtime.Goexit ends only that.
func (r *Runner) run(ctx context.Context, fn function, args resqued.Args) error {
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	r.ctx, r.leaving = ctx, resqued.Leaving(ctx)
	watch, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { r.watch(watch) })
	result := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine (runtime.Goexit) instead of returning")
		defer func() { result <- err }()
		err = guarded(ctx, func(ctx context.Context) error { return fn(ctx, r, args) })
	}()
	err := <-result
	stop()
	watcher.Wait()
	return err
}

// watch saves at each check-in, and ends the slice when it is no longer wanted.
func (r *Runner) watch(ctx context.Context) {
	look, checkIn := time.NewTicker(min(lookEvery, r.o.CheckIn)), time.NewTicker(r.o.CheckIn)
	defer look.Stop()
	defer checkIn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-checkIn.C:
			_ = r.save(ctx, longstore.GoesOn, "", 0) // an error shows at the next save
		case <-look.C:
			status, err := r.store.Status(ctx, r.slice.UUID)
			switch {
			case err != nil: // try again at the next tick
			case status.Status != "running":
				r.stop(ErrCancelled)
			case status.Fence != r.slice.Fence:
				r.stop(ErrTakenOver)
			default:
				if status.Paused {
					r.pause()
				}
				if r.hasNews() {
					_ = r.save(ctx, longstore.GoesOn, "", 0)
				}
			}
		}
	}
}

func (r *Runner) hasNews() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news
}

// pause ends the slice before its next unit, because the run is paused.
func (r *Runner) pause() { r.pauseOnce.Do(func() { close(r.pausing) }) }

// stop ends the slice for an external reason.
func (r *Runner) stop(why error) {
	r.mu.Lock()
	if r.stopped == nil {
		r.stopped = why
	}
	r.mu.Unlock()
	r.cancel(why)
}

// end decides how the slice ends after the function has returned err.
func (r *Runner) end(ctx context.Context, err error) error {
	r.mu.Lock()
	stopped, yielded := r.stopped, r.yielded
	r.mu.Unlock()
	cause := context.Cause(ctx) // of the job's own context
	switch {
	case stopped != nil && errors.Is(stopped, ErrTakenOver), errors.Is(cause, resqued.ErrLockLost):
		return again()
	case stopped != nil:
		return fmt.Errorf("%w: %w", resqued.Discard, stopped)
	}
	for _, fn := range r.atEnd {
		if fnErr := guarded(ctx, fn); fnErr != nil && (err == nil || errors.Is(err, ErrYield)) {
			err, yielded = fmt.Errorf("at the end of the slice: %w", fnErr), false
		}
	}
	var requeue *resqued.RequeueError
	switch {
	case yielded && (err == nil || errors.Is(err, ErrYield)):
		if err == nil {
			r.warn(swallowed)
		}
		r.mu.Lock()
		if r.ended > 0 { // the slice did something and succeeded
			r.failures = 0
		}
		r.mu.Unlock()
		return r.close(ctx, longstore.Yields, "", 0)
	case err == nil:
		return r.close(ctx, longstore.Completed, "", 0)
	case ctx.Err() != nil:
		if closed := r.close(ctx, longstore.Interrupted, "", 0); closed != nil {
			return closed
		}
		return again()
	case errors.As(err, &requeue) && requeue != nil:
		return r.close(ctx, longstore.Waits, "", requeue.After)
	case errors.Is(err, resqued.Discard):
		r.Message(err.Error())
		return r.close(ctx, longstore.Completed, "", 0)
	case r.failures < r.o.Retries && !errors.Is(err, ErrFinal):
		r.failures++
		return r.close(ctx, longstore.Waits, err.Error(), r.o.RetryAfter)
	default:
		r.failures++
		return r.close(ctx, longstore.Failed, err.Error(), 0)
	}
}

// guarded calls a function of the program and turns a panic into an error.
func guarded(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return fn(ctx)
}

// close ends the slice in Redis. It tries as long as the job may run: until then no other
// process can run the slice.
func (r *Runner) close(ctx context.Context, op longstore.Op, failure string, wait time.Duration) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })
	defer stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := r.save(work, op, failure, wait)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrCancelled):
			return fmt.Errorf("%w: %w", resqued.Discard, err)
		case errors.Is(err, ErrTakenOver), errors.Is(context.Cause(ctx), resqued.ErrLockLost):
			return again()
		}
		if !sleep(work, pause) {
			return again()
		}
	}
}

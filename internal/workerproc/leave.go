package workerproc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// hurried bounds the clean-up of a leaving process that holds nothing, where it is bounded.
// Tests have more time.
var hurried = 2 * time.Second

// errUnrecorded means that the process leaves although Redis has not accepted all ends of its
// jobs.
var errUnrecorded = errors.New("redis has not taken all that has ended; it will be recovered")

// leaving ends the process in order. The loop owns all fields. A goroutine started by
// leaveIfDone executes unregister, which reads only id and d, and answers over left.
type leaving struct {
	*shared
	work      context.Context // of the whole process
	helpers   *sync.WaitGroup
	exchanges *exchanges

	left      chan error
	hurry     func()    // bounds a leaving that waits for Redis; nil until it begins
	doneAt    time.Time // since when a drain only waits for unrecorded ends; see leaveUnrecorded
	drainEnds time.Time // end of the drain of a process without a master; zero = never
	empty     bool      // it leaves because all queues are empty
}

func newLeaving(work context.Context, helpers *sync.WaitGroup, s *shared, exchanges *exchanges) *leaving {
	return &leaving{shared: s, work: work, helpers: helpers, exchanges: exchanges, left: make(chan error, 1)}
}

func (v *leaving) hurryUp() {
	if v.hurry != nil {
		v.hurry()
	}
}

func (v *leaving) boundDrain() {
	if v.cfg.DrainTimeout > 0 {
		v.drainEnds = time.Now().Add(v.cfg.DrainTimeout)
	}
}

// drainOver reports, once, that DrainTimeout is over.
func (v *leaving) drainOver() bool {
	if v.drainEnds.IsZero() || !time.Now().After(v.drainEnds) {
		return false
	}
	v.drainEnds = time.Time{}
	return true
}

// leaveIfDone begins to leave once the process has to and holds nothing.
func (v *leaving) leaveIfDone() {
	if v.life.leaving || len(v.jobs) > 0 {
		v.doneAt = time.Time{}
		return
	}
	switch v.life.state {
	case signals.Retiring, signals.Draining, signals.Killing:
	default:
		return
	}
	if v.exchanges.unsettled() || len(v.exchanges.stuck.ends) > 0 && v.life.state != signals.Killing {
		v.leaveUnrecorded()
		return
	}
	v.life.leaving = true
	ctx, cancel := context.WithCancel(v.work)
	if v.life.state == signals.Draining {
		// A deadline also ends a call to a server that hangs.
		ctx, cancel = context.WithTimeout(v.work, hurried)
	}
	v.hurry = func() { time.AfterFunc(hurried, cancel) }
	if v.life.state == signals.Killing {
		v.hurry()
	}
	v.helpers.Go(func() {
		defer cancel()
		v.left <- v.unregister(ctx)
	})
}

// leaveUnrecorded ends a drain in which Redis does not accept what has ended. Redis still has
// these jobs' records: they are tried as long as a kill would try, then left to recovery. A call
// that only asks for jobs is not awaited for that long.
func (v *leaving) leaveUnrecorded() {
	if v.life.state != signals.Draining {
		return
	}
	now := time.Now()
	if v.doneAt.IsZero() {
		v.doneAt = now
	}
	untold := v.exchanges.untold()
	limit := v.cfg.TermTimeout
	if untold == 0 {
		limit = hurried
	}
	if ends := v.doneAt.Add(limit); now.Before(ends) {
		v.alarm.wake(ends)
		return
	}
	v.life.leaving = true
	v.log.Error("redis does not take what has ended; it is left to recovery, which has these jobs run again or fail",
		zap.Int("ended", untold), zap.Duration("tried", now.Sub(v.doneAt)))
	v.left <- errUnrecorded
}

// unregister removes the process from Redis. While Redis is away, a process that has only used
// up its jobs keeps trying; for others, their master or the next one removes the entry.
func (v *leaving) unregister(ctx context.Context) error {
	for wait := 20 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		held, err := v.d.Store.Unregister(ctx, v.id.proc)
		switch {
		case err == nil && held == 0:
			return nil
		case err == nil:
			return fmt.Errorf("unregister: redis still records %d jobs of this process; they will be recovered", held)
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", errListed, err)
		}
		sleep(ctx, wait)
	}
}

// errListed means that the process holds nothing, but is still registered in Redis.
var errListed = errors.New("unregister")

// farewell says goodbye to the master. err is the result of leaving, done the number of ended
// jobs.
func (v *leaving) farewell(err error, done int) {
	reason := ""
	switch {
	case errors.Is(err, errListed) && len(v.exchanges.stuck.ends) == 0:
		v.log.Warn("left while redis is away; the registration of this process is removed later", zap.Error(err))
		reason = proc.Listed
	case err != nil:
		v.log.Warn("left without tidying up; the master will", zap.Error(err))
		reason = proc.Untidy
	case v.empty:
		reason = proc.Empty
	}
	if err := v.link.send(proc.Message{Type: proc.Bye, Done: done, Reason: reason}); err != nil {
		v.log.Debug("the master does not hear the goodbye", zap.Error(err))
	}
}

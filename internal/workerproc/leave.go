package workerproc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
)

// hurried is how long a process that leaves and holds nothing tries to tidy up, where that
// is bounded. Tests have more time.
var hurried = 2 * time.Second

// errUnrecorded: the process leaves although Redis has not taken all ends of its jobs.
var errUnrecorded = errors.New("redis has not taken all that has ended; it will be recovered")

// leaveIfDone begins the end once the process shall leave and holds nothing.
func (p *Process) leaveIfDone() {
	if p.leaving || len(p.threads.jobs) > 0 {
		p.doneAt = time.Time{}
		return
	}
	switch p.life.state {
	case signals.Retiring, signals.Draining, signals.Killing:
	default:
		return
	}
	if p.exchanges.unsettled() || len(p.exchanges.stuck.ends) > 0 && p.life.state != signals.Killing {
		p.leaveUnrecorded()
		return
	}
	p.leaving = true
	ctx, cancel := context.WithCancel(p.work)
	if p.life.state == signals.Draining {
		// A deadline also ends a call to a server that hangs.
		ctx, cancel = context.WithTimeout(p.work, hurried)
	}
	p.hurry = func() { time.AfterFunc(hurried, cancel) }
	if p.life.state == signals.Killing {
		p.hurry()
	}
	p.helpers.Go(func() {
		defer cancel()
		p.left <- p.unregister(ctx)
	})
}

// leaveUnrecorded ends a drain in which Redis does not take what has ended. The records of
// these jobs stand in Redis: they are tried for as long as a kill would have tried, then
// recovery has them. A call that only asks for jobs need not be waited for that long.
func (p *Process) leaveUnrecorded() {
	if p.life.state != signals.Draining {
		return
	}
	now := time.Now()
	if p.doneAt.IsZero() {
		p.doneAt = now
	}
	untold := p.exchanges.untold()
	limit := p.cfg.TermTimeout
	if untold == 0 {
		limit = hurried
	}
	if ends := p.doneAt.Add(limit); now.Before(ends) {
		p.alarm.wake(ends)
		return
	}
	p.leaving = true
	p.log.Error("redis does not take what has ended; it is left to recovery, which has these jobs run again or fail",
		zap.Int("ended", untold), zap.Duration("tried", now.Sub(p.doneAt)))
	p.left <- errUnrecorded
}

// unregister removes the process from Redis. While Redis is away one that has only used
// up its jobs goes on trying; its master, or the next, removes what others leave.
func (p *Process) unregister(ctx context.Context) error {
	for wait := 20 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		held, err := p.d.Store.Unregister(ctx, p.id.proc)
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

// errListed: the process holds nothing, but Redis still has its registration.
var errListed = errors.New("unregister")

// farewell ends an orderly life.
func (p *Process) farewell(err error) error {
	reason := ""
	switch {
	case errors.Is(err, errListed) && len(p.exchanges.stuck.ends) == 0:
		p.log.Warn("left while redis is away; the registration of this process is removed later", zap.Error(err))
		reason = proc.Listed
	case err != nil:
		p.log.Warn("left without tidying up; the master will", zap.Error(err))
		reason = proc.Untidy
	case p.empty:
		reason = proc.Empty
	}
	if err := p.link.send(proc.Message{Type: proc.Bye, Done: p.threads.done, Reason: reason}); err != nil {
		p.log.Debug("nobody to say goodbye to", zap.Error(err))
	}
	return nil
}

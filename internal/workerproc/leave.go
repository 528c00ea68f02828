package workerproc

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
)

// hurried is how long a killed process that holds nothing tries to tidy up. Tests have
// more time.
var hurried = 2 * time.Second

// leaveIfDone begins the end once the process shall leave and holds nothing.
func (p *Process) leaveIfDone() {
	if p.leaving || p.underway() > 0 || len(p.jobs) > 0 || len(p.ended) > 0 || len(p.stuck) > 0 && p.state != signals.Killing {
		return
	}
	switch p.state {
	case signals.Retiring, signals.Draining, signals.Killing:
	default:
		return
	}
	p.leaving = true
	ctx, cancel := context.WithCancel(p.work)
	p.hurry = func() { time.AfterFunc(hurried, cancel) }
	if p.state == signals.Killing {
		p.hurry()
	}
	p.helpers.Go(func() {
		defer cancel()
		p.left <- p.unregister(ctx)
	})
}

// unregister removes the process from Redis. While Redis is away a process that
// drains goes on trying, one that is killed does not: its master, or the next,
// removes what is left.
func (p *Process) unregister(ctx context.Context) error {
	for wait := 20 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		held, err := p.d.Store.Unregister(ctx, p.name.Proc)
		switch {
		case err == nil && held == 0:
			return nil
		case err == nil:
			return fmt.Errorf("unregister: redis still records %d jobs of this process; they will be recovered", held)
		case ctx.Err() != nil:
			return fmt.Errorf("unregister: %w", err)
		}
		p.sleep(ctx, wait)
	}
}

// farewell ends an orderly life.
func (p *Process) farewell(err error) error {
	reason := ""
	switch {
	case err != nil:
		p.log.Warn("left without tidying up; the master will", zap.Error(err))
		reason = proc.Untidy
	case p.empty:
		reason = proc.Empty
	}
	if err := p.send(proc.Message{Type: proc.Bye, Done: p.done, Reason: reason}); err != nil {
		p.log.Debug("nobody to say goodbye to", zap.Error(err))
	}
	return nil
}

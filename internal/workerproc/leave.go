package workerproc

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/signals"
)

// leaveIfDone begins the end once the process shall leave and holds nothing.
func (p *Process) leaveIfDone() {
	if p.leaving || p.exchanging || len(p.jobs) > 0 || len(p.ended) > 0 || len(p.stuck) > 0 && p.state != signals.Killing {
		return
	}
	switch p.state {
	case signals.Retiring, signals.Draining, signals.Killing:
	default:
		return
	}
	p.leaving = true
	p.helpers.Go(func() { p.left <- p.unregister() })
}

// unregister removes the process from Redis. While Redis is away a process that
// drains goes on trying, one that is killed does not: its master, or the next,
// removes what is left.
func (p *Process) unregister() error {
	ctx := p.work
	if p.state == signals.Killing {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
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

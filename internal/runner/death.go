package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/program"
)

// tellFor is how long the failure hooks of a job whose process has died may take.
const tellFor = 10 * time.Second

// tellDeath tells the failure hooks of a job that its process has died, in another process, and
// returns how the job has ended: Resque's worker does so when its child dies, and plugins count on
// it to release their locks. The job is in hand until then, and keeps its own lock.
func (p *Pool) tellDeath(c *call, err error) error {
	end, ok := errors.AsType[*EndError](err)
	if !ok || c.slice != nil || !c.q.hello.FailureHooks {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.ctx))
	defer stop()
	// A job that was told to stop has to be over soon: a kill has taken up to half of its grace, this
	// takes a quarter, and the kill of hooks that do not end an eighth.
	most := p.o.killAfter(tellFor)
	defer context.AfterFunc(c.ctx, func() { time.AfterFunc(program.Patience(c.ctx, most)/2, stop) })()
	for {
		q, absent := p.take(ctx, time.Now().Add(p.o.BootTimeout))
		if absent != nil {
			return p.untold(c, err, absent)
		}
		within, over := context.WithTimeout(ctx, tellFor)
		told := call{q: q, ctx: within, job: c.job, killAfter: most / 4, died: end.brief()}
		begun, answer := told.perform()
		over()
		switch requeue := (*resqued.RequeueError)(nil); {
		case !begun, errors.As(answer, &requeue): // it was leaving
		case errors.Is(answer, errNotStarted):
			return p.untold(c, err, answer)
		default:
			return p.afterDeath(c, err, answer)
		}
	}
}

// untold is the end of a job whose failure hooks could not be told of its death.
func (p *Pool) untold(c *call, err, why error) error {
	p.log.Error("the failure hooks of a job whose runner died were not told; locks of plugins may be left",
		append(aboutJob(c.job), zap.Error(why))...)
	return err
}

// afterDeath returns how a job has ended whose process died with err, by what its failure hooks
// have answered.
func (p *Pool) afterDeath(c *call, err, answer error) error {
	var said *JobError
	discarded := errors.Is(answer, resqued.Discard)
	switch {
	case answer == nil: // its class has no hooks
		return err
	case !discarded && !errors.As(answer, &said):
		p.log.Error("the failure hooks of a job whose runner died did not end", append(aboutJob(c.job), zap.Error(answer))...)
	}
	death, ok := errors.AsType[*jobctx.DeathError](err)
	switch {
	case ok:
		death.Told, death.Discarded = true, discarded
		if discarded {
			death.Err = fmt.Errorf("%w; %w", death.Err, answer)
		}
	case discarded:
		return answer // as if it had ended by itself when it was told to
	}
	return err
}

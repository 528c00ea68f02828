package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/program"
)

// tellFor bounds the failure hooks of a job whose process has died.
const tellFor = 10 * time.Second

// diedBefore describes an earlier death; the job's record does not say how it happened.
const diedBefore = "a worker process, or its host, died with the job before this run"

// tellDeath runs a job's failure hooks about the death of its process, in another process, and
// returns the job's result. Resque's worker runs them when its child dies, and plugins rely on
// that to release their locks. Until then the job is in hand and keeps its own lock.
func (p *Pool) tellDeath(c *call, err error) error {
	end, ok := errors.AsType[*EndError](err)
	if !ok || c.slice != nil || !c.q.hello.FailureHooks {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.ctx))
	defer stop()
	// A job told to stop must end soon: the kill has used up to half of its grace. This may use
	// a quarter, and killing hooks that do not end an eighth.
	most := p.o.killAfter(tellFor)
	defer context.AfterFunc(c.ctx, func() { time.AfterFunc(program.Patience(c.ctx, most)/2, stop) })()
	go func() { // the next process for the job may have a runner sooner
		select {
		case <-jobctx.Leaving(ctx):
			time.AfterFunc(p.o.patience, stop)
		case <-ctx.Done():
		}
	}()
	answer, untold := p.tell(ctx, time.Now().Add(p.o.BootTimeout), c.job, death{end.brief(), final(c.ctx)}, most/4)
	if untold != nil {
		p.log.Error("the failure hooks of a job whose runner died were not told; locks of plugins may be left",
			append(aboutJob(c.job), zap.Error(untold))...)
		return err
	}
	return p.afterDeath(c.job, err, answer)
}

// tellEarlier is tellDeath for a job that comes again because its worker process has died with
// it. It returns nil if the job may run.
func (p *Pool) tellEarlier(ctx context.Context, until time.Time, job *resqued.Job, killAfter time.Duration) error {
	answer, untold := p.tell(ctx, until, job, death{how: diedBefore}, killAfter)
	if untold != nil || answer == nil {
		return untold
	}
	return p.afterDeath(job, &jobctx.DeathError{Err: errors.New(diedBefore), Earlier: true}, answer)
}

// tell runs the failure hooks of a job about a death and returns their result; nil = no hooks.
// untold is why no process could do it.
func (p *Pool) tell(ctx context.Context, until time.Time, job *resqued.Job, died death, killAfter time.Duration) (answer, untold error) {
	for {
		q, absent := p.take(ctx, until)
		if absent != nil {
			return nil, absent
		}
		if !q.hello.FailureHooks {
			p.put(q, false)
			return nil, nil
		}
		within, over := context.WithTimeout(ctx, tellFor)
		told := call{q: q, ctx: within, job: job, killAfter: killAfter, died: died}
		begun, answer := told.perform()
		over()
		switch requeue := (*resqued.RequeueError)(nil); {
		case !begun, errors.As(answer, &requeue): // it was leaving
		case errors.Is(answer, errNotStarted):
			return nil, answer
		default:
			return answer, nil
		}
	}
}

// afterDeath combines err, the death of a job's process, with answer, the result of its failure
// hooks.
func (p *Pool) afterDeath(job *resqued.Job, err, answer error) error {
	var said *JobError
	discarded := errors.Is(answer, resqued.Discard)
	switch {
	case answer == nil: // its class has no hooks
		return err
	case !discarded && !errors.As(answer, &said):
		p.log.Error("the failure hooks of a job whose process died did not end", append(aboutJob(job), zap.Error(answer))...)
	}
	died, ok := errors.AsType[*jobctx.DeathError](err)
	switch {
	case ok:
		died.Told, died.Discarded = true, discarded
		if discarded {
			died.Err = fmt.Errorf("%w; %w", died.Err, answer)
		}
	case discarded:
		return answer // like a job that ended when told to
	}
	return err
}

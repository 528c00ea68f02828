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

// tellFor is how long the failure hooks of a job whose process has died may take.
const tellFor = 10 * time.Second

// diedBefore is how the process of a job that comes again has died. How it did is not in the record.
const diedBefore = "a worker process, or its host, died with the job before this run"

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
	go func() { // the process that gets the job next may have a runner sooner
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

// tellEarlier does what tellDeath does for a job whose worker process has died with it. That is known
// when the job comes again. It returns nil for one that may run.
func (p *Pool) tellEarlier(ctx context.Context, until time.Time, job *resqued.Job, killAfter time.Duration) error {
	answer, untold := p.tell(ctx, until, job, death{how: diedBefore}, killAfter)
	if untold != nil || answer == nil {
		return untold
	}
	return p.afterDeath(job, &jobctx.DeathError{Err: errors.New(diedBefore), Earlier: true}, answer)
}

// tell tells the failure hooks of a job of a death and returns what they answer; nil: there are none.
// untold is why no process could be asked.
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

// afterDeath returns how a job has ended whose process died with err, by what its failure hooks
// have answered.
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
		return answer // as if it had ended by itself when it was told to
	}
	return err
}

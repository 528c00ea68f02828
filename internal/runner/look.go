package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// Process describes a process of a runner.
type Process struct {
	Runner string
	PID    int
	// Forked: forked by its template; otherwise started by its worker process.
	Forked bool
	// Ready: it has said hello. Leaving: it takes no new job.
	Ready, Leaving bool
	// Busy is how many jobs it performs, of Slots; Jobs how many it was ever given.
	Busy, Slots, Jobs int
	// Tokens name the runs of the jobs in hand.
	Tokens []string
	// Since is when the last job began or ended.
	Since time.Time
	// RSS is its memory in bytes, as of a second ago; 0 = unknown.
	RSS int64
	// Language and App are from its hello, printable.
	Language, App string
}

// Info returns the existing processes, and why the last one was unusable unless another was
// usable since; "" = no trouble.
func (p *Pool) Info() (list []Process, trouble string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.processes {
		shownOf := Process{
			Runner: p.o.Name, PID: int(q.pid.Load()), Busy: q.busy, Jobs: q.jobs, Since: q.since, RSS: q.rss,
			Tokens: q.inHand(),
			Ready:  q.state == ready || q.state == leaving, Leaving: q.state == leaving, Forked: p.forks.Load(),
		}
		if shownOf.Ready {
			shownOf.Slots, shownOf.Forked = q.slots, q.forked
			shownOf.Language, shownOf.App = shown(q.hello.Language), shown(q.hello.App)
		}
		list = append(list, shownOf)
	}
	if p.failures > 0 && p.last != nil {
		trouble = p.last.Error()
	}
	return list, trouble
}

// hold notes that the process performs a run, release that it no longer does.
func (q *process) hold(token string) {
	q.holding.Lock()
	defer q.holding.Unlock()
	q.tokens = append(q.tokens, token)
}

func (q *process) release(token string) {
	q.holding.Lock()
	defer q.holding.Unlock()
	q.tokens = without(q.tokens, token)
}

func (q *process) inHand() []string {
	q.holding.Lock()
	defer q.holding.Unlock()
	return slices.Sorted(slices.Values(q.tokens))
}

// Tell tells the processes, and those that boot later, whether the worker process takes new
// jobs.
func (p *Pool) Tell(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	for _, q := range p.processes {
		p.inform(q)
	}
}

// inform tells a process about the start or end of a pause, if it does not know. p.mu must be
// held. One writer per process keeps the lines in order. A pause may go untold if it ends while
// a process does not read.
func (p *Pool) inform(q *process) {
	if p.closed || q.informing || q.state != ready || q.paused == p.paused {
		return
	}
	q.informing = true
	p.lives.Go(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for q.state == ready && q.paused != p.paused {
			q.paused = p.paused
			line := resumeLine
			if q.paused {
				line = pauseLine
			}
			p.mu.Unlock()
			_ = q.conn.write(line) // on error it has ended
			p.mu.Lock()
		}
		q.informing = false
	})
}

func (p *Pool) stopWaiting(ctx context.Context, wait chan *process) (*process, error) {
	p.mu.Lock()
	p.waiters = without(p.waiters, wait)
	var why error
	if p.failures > 0 && p.last != nil {
		why = p.last
	}
	p.mu.Unlock()
	select {
	case q := <-wait: // at the last moment
		return q, nil
	default:
	}
	absent := &absentError{p.o.Name, why}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), resqued.ErrTimeout) {
		return nil, absent
	}
	// A job that has not begun has not exceeded its time limit.
	return nil, fmt.Errorf("%w: %w", absent, resqued.Requeue(requeueAfter))
}

func (p *Pool) give(q *process) {
	p.mu.Lock()
	q.useless = true
	p.mu.Unlock()
	p.leave(q)
	p.put(q, false)
}

func (p *Pool) leave(q *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dismissNow(q)
}

func (p *Pool) look() {
	ticks := time.NewTicker(p.o.tick)
	defer ticks.Stop()
	for {
		select {
		case <-p.closing:
			return
		case <-ticks.C:
		}
		p.mu.Lock()
		list := slices.Clone(p.processes)
		p.mu.Unlock()
		for _, q := range list {
			p.lookAt(q)
		}
	}
}

// lookAt replaces a process when it is too large or too old, or has begun a line without a job
// and not ended it.
func (p *Pool) lookAt(q *process) {
	p.mu.Lock()
	if q.state != ready {
		p.mu.Unlock()
		return
	}
	idle, pid, old := q.busy == 0, int(q.pid.Load()), q.replaced
	age, half := time.Since(q.born), q.conn.half.Load()
	p.mu.Unlock()
	if idle && half != 0 && time.Since(time.Unix(0, half)) > p.o.lineFor {
		q.breaks(nil, errHalf)
		return
	}
	rss := procfs.Resident(pid)
	why := ""
	switch {
	case old:
	case p.o.MaxAge > 0 && age > p.o.MaxAge:
		why = "max_age"
	case p.o.MaxRSS > 0 && rss > p.o.MaxRSS && (!q.forked || procfs.Proportional(pid, rss) > p.o.MaxRSS):
		why = "max_rss"
	}
	p.mu.Lock()
	q.rss = rss
	if why != "" && q.state == ready && !q.replaced {
		p.log.Info("a runner is replaced", zap.Int("runner_pid", pid), zap.String("because", why), zap.Int64("rss", rss), zap.Duration("age", age))
		q.dismiss = true
		p.succeed(q)
	}
	p.mu.Unlock()
}

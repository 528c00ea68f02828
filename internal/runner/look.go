package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
)

// Process is a process of a runner as others may see it.
type Process struct {
	// Runner is the name of the runner.
	Runner string
	PID    int
	// Forked: its template has forked it; else it was started by its worker process.
	Forked bool
	// Ready: it has said hello. Leaving: it takes no new job.
	Ready, Leaving bool
	// Busy is how many jobs it performs, of Slots; Jobs how many it was given so far.
	Busy, Slots, Jobs int
	// Tokens name the runs of the jobs in hand.
	Tokens []string
	// Since is when the last job began or ended.
	Since time.Time
	// RSS is the memory that it uses, in bytes, as of a second ago; 0 = not known.
	RSS int64
	// Language and App are what it says of itself, printable.
	Language, App string
}

// Info returns the processes that there are, and why the last one could not be used, if no
// other has since; empty = there is no trouble.
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

// hold notes that the process performs a run, release that it does not any more.
func (q *process) hold(token string) {
	q.holding.Lock()
	defer q.holding.Unlock()
	q.tokens = append(q.tokens, token)
}

func (q *process) release(token string) {
	q.holding.Lock()
	defer q.holding.Unlock()
	if i := slices.Index(q.tokens, token); i >= 0 {
		q.tokens = slices.Delete(q.tokens, i, i+1)
	}
}

func (q *process) inHand() []string {
	q.holding.Lock()
	defer q.holding.Unlock()
	return slices.Sorted(slices.Values(q.tokens))
}

// Tell has the processes know whether the worker process takes new jobs, those that boot later
// included.
func (p *Pool) Tell(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	for _, q := range p.processes {
		p.inform(q)
	}
}

// inform has a process know of a pause, or of its end, if it does not. The caller holds the lock
// of the pool. One writer for each process keeps the lines in order; a pause that is over before
// a process that does not read has heard of it is not told.
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
			_ = q.conn.write(line) // an error: it has ended
			p.mu.Lock()
		}
		q.informing = false
	})
}

// stopWaiting is the end of a wait for a slot that has brought none.
func (p *Pool) stopWaiting(ctx context.Context, wait chan *process) (*process, error) {
	p.mu.Lock()
	for i, w := range p.waiters {
		if w == wait {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			break
		}
	}
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
	// What has not begun has not taken too long.
	return nil, fmt.Errorf("%w: %w", absent, resqued.Requeue(requeueAfter))
}

// give takes back the slot of a process that is of no use any more.
func (p *Pool) give(q *process) {
	p.mu.Lock()
	q.useless = true
	p.mu.Unlock()
	p.leave(q)
	p.put(q, false)
}

// leave has a process take no new job.
func (p *Pool) leave(q *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dismissNow(q)
}

// look looks after the processes now and then, until the pool ends.
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
		list := append([]*process(nil), p.processes...)
		p.mu.Unlock()
		for _, q := range list {
			p.lookAt(q)
		}
	}
}

// lookAt hears what a process says that has no job, and has it replaced when it is too large or
// too old.
func (p *Pool) lookAt(q *process) {
	p.mu.Lock()
	if q.state != ready {
		p.mu.Unlock()
		return
	}
	borrowed := q.slots == 1 && q.busy == 0
	if borrowed {
		for i, other := range p.idle {
			if other == q {
				p.idle = append(p.idle[:i], p.idle[i+1:]...)
				break
			}
		}
		q.busy++
	}
	since, pid, old := q.since, int(q.pid.Load()), q.replaced
	age := time.Since(q.born)
	p.mu.Unlock()
	if borrowed && !q.strays() {
		p.give(q)
		return
	}
	rss := resident(pid)
	why := ""
	switch {
	case old:
	case p.o.MaxAge > 0 && age > p.o.MaxAge:
		why = "max_age"
	case p.o.MaxRSS > 0 && rss > p.o.MaxRSS && (!q.forked || proportional(pid, rss) > p.o.MaxRSS):
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
	if borrowed {
		p.put(q, false)
		p.mu.Lock()
		q.since = since
		p.mu.Unlock()
	}
}

package workerproc

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// maxBatch bounds what one exchange carries, because a script blocks the server.
const maxBatch = 100

// maxRetries is how often in a row an exchange that found nothing is repeated at
// once because there are jobs that it has not looked at.
const maxRetries = 512

// manyQueues is how many queue names an exchange may carry; beyond, only those
// that held jobs at the last poll.
const manyQueues = 64

type exchangeResult struct {
	lane  *lane
	req   store.ExchangeRequest
	reply store.ExchangeReply
	// names answer the Unnamed of the reply.
	names []store.LockName
	// sent is the boot time at which the try was sent that was answered.
	sent time.Duration
	err  error
}

// resolve notes the queues to try, in order of priority, as of the last poll.
func (p *Process) resolve() {
	choices := p.cfg.Queues.Resolve(p.waiting)
	queues := make([]store.Queue, 0, len(choices))
	for _, c := range choices {
		if len(choices) > manyQueues {
			if _, waits := slices.BinarySearch(p.waiting, c.Queue); !waits {
				continue
			}
		}
		locked, unique := p.cfg.Locketed(c.Queue), p.cfg.Unique(c.Queue)
		queues = append(queues, store.Queue{
			Name: c.Queue, Cap: c.Cap, Locked: locked, Named: locked && p.cfg.NamedLocks,
			Unique: unique, Strict: unique && p.cfg.StrictUnique,
		})
	}
	p.queues, p.skippable, p.passed = queues, 0, 0
}

// nameAll names the locks that a reply has asked for. Programs may do this by a
// function of their own, so it is not the loop's business.
func (p *Process) nameAll(unnamed []store.LockName) []store.LockName {
	for i := range unnamed {
		unnamed[i].Name = p.d.Namer.Name(unnamed[i].Queue, unnamed[i].Payload)
	}
	return unnamed
}

// insist repeats a request until Redis has answered it. A request whose fate is
// unknown is repeated as such, so that nothing is popped twice; sending numbers
// the tries, so that one that was held up on its way pops nothing either.
func (p *Process) insist(l *lane, req store.ExchangeRequest) exchangeResult {
	backoff := 20 * time.Millisecond
	var down time.Time
	failed := 0            // answers that the script did not come to its end
	var sent time.Duration // of the first try that may have taken locks
	for {
		l.sending++
		req.Lane, req.Sending = l.number, l.sending
		if !req.Repeat {
			sent = proc.BootTime()
		}
		reply, err := p.d.Store.Exchange(p.work, req)
		switch {
		case err == nil:
			if !down.IsZero() {
				p.log.Info("redis is back", zap.Duration("after", time.Since(down)))
				p.beatAtOnce()
			}
			since, err := p.renewed(reply.Jobs, sent)
			return exchangeResult{lane: l, req: req, reply: reply, sent: since, err: err}
		case p.work.Err() != nil:
			return exchangeResult{lane: l, req: req, err: err}
		case errors.Is(err, store.ErrFenced):
			// The lease is past, or has not been extended for long. If nobody recovered us,
			// a beat revives it.
			_, err := p.d.Store.Beat(p.work, store.BeatRequest{Proc: p.name.Proc})
			if err != nil && !req.Repeat {
				req.Wants, req.Queues = nil, nil // what has ended does not wait for one
			}
			if errors.Is(err, store.ErrFenced) {
				return exchangeResult{lane: l, req: req, err: ErrFenced}
			}
			if errors.Is(err, store.ErrWiped) && p.rejoin() == nil {
				p.beatAtOnce() // the loop's beat knows the locks
			}
		default:
			req.Repeat = req.Repeat || !rdb.Unexecuted(err)
			if down.IsZero() {
				what := "redis refuses"
				if rdb.Unreachable(err) {
					what = "redis does not answer"
				}
				p.log.Error(what+"; what has ended is kept, trying again", zap.Error(err),
					zap.Int("ended", len(req.Completions)), zap.Int("wanted", len(req.Wants)))
				down = time.Now()
			}
			if !rdb.Unreachable(err) && !rdb.Unexecuted(err) {
				failed++
			}
			if failed >= apartAfter && len(req.Completions) > 0 {
				return p.oneByOne(l, req, sent)
			}
		}
		p.sleep(p.work, backoff/2+time.Duration(rand.Int64N(int64(backoff))))
		backoff = min(backoff*2, 2*time.Second)
	}
}

// apartAfter is after how many failures of its script a request is taken apart.
const apartAfter = 4

// oneByOne ends each job of a request by itself, because the script fails on one of them:
// the others must not wait for that. Nothing more is asked for. What an earlier try has taken
// all the same begins now: the first of them was sent at sent, and none that comes later takes
// anything.
func (p *Process) oneByOne(l *lane, req store.ExchangeRequest, sent time.Duration) exchangeResult {
	r := exchangeResult{lane: l, req: req, reply: store.ExchangeReply{
		Applied: make([]bool, len(req.Completions)), Stuck: map[int]string{}, Parked: map[int]string{},
	}}
	r.req.Repeat = true // some may have been applied
	for i := 0; i < len(req.Completions) && p.work.Err() == nil; {
		l.sending++
		one := store.ExchangeRequest{
			Proc: req.Proc, Master: req.Master, Completions: req.Completions[i : i+1 : i+1], Lane: l.number, Sending: l.sending, Repeat: true,
		}
		reply, err := p.d.Store.Exchange(p.work, one)
		switch {
		case err == nil:
			r.reply.Applied[i] = reply.Applied[0]
			if reason, ok := reply.Stuck[0]; ok {
				r.reply.Stuck[i] = reason
			}
			if reason, ok := reply.Parked[0]; ok {
				r.reply.Parked[i] = reason
			}
			i++
			continue
		case errors.Is(err, store.ErrFenced):
			if _, err := p.d.Store.Beat(p.work, store.BeatRequest{Proc: p.name.Proc}); errors.Is(err, store.ErrFenced) {
				r.err = ErrFenced
				return r
			}
		case !rdb.Unreachable(err) && !rdb.Unexecuted(err):
			r.reply.Stuck[i] = err.Error()
			i++
			continue
		}
		p.sleep(p.work, 100*time.Millisecond)
	}
	for len(req.Wants) > 0 && p.work.Err() == nil {
		jobs, err := p.d.Store.Records(p.work, req.Proc, tokensOf(req.Wants))
		if err == nil {
			r.reply.Jobs = jobs
			r.sent, r.err = p.renewed(jobs, sent)
			return r
		}
		if !rdb.Unreachable(err) && !rdb.Unexecuted(err) {
			break // beats will tell of them
		}
		p.sleep(p.work, 100*time.Millisecond)
	}
	r.err = p.work.Err()
	return r
}

func tokensOf(wants []store.Want) []string {
	tokens := make([]string, len(wants))
	for i, want := range wants {
		tokens[i] = want.Token
	}
	return tokens
}

// renewed returns since when the locks of jobs count that were taken at sent. Where
// that is long ago, a beat extends them before the jobs begin. The machine may have been
// frozen in between: then they may be others' by now, and the error is ErrFenced.
func (p *Process) renewed(jobs []store.Reserved, sent time.Duration) (since time.Duration, err error) {
	now := proc.BootTime()
	if len(jobs) == 0 || now-sent < part(p.cfg.LockDuration, lockStop)/4 {
		return sent, nil
	}
	b := store.BeatRequest{Proc: p.name.Proc}
	for _, j := range jobs {
		b.Jobs = append(b.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey})
	}
	// One that is lost is told so by the loop's own beat, which follows.
	switch _, err := p.d.Store.Beat(p.work, b); {
	case errors.Is(err, store.ErrFenced):
		return sent, ErrFenced
	case err != nil:
		return sent, nil
	}
	return now, nil
}

func (p *Process) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// apply takes an exchange's answer: it starts the new jobs, or gives them back if
// the process has been told to stop taking any since it asked.
func (p *Process) apply(r exchangeResult) {
	overlapped := p.answered(r.lane)
	if r.err != nil {
		p.fatal = r.err
		return
	}
	p.moreOutcomes()
	p.judge(&r)
	clear(r.req.Completions) // their jobs are not kept
	p.spare = r.req.Completions[:0]
	p.names = r.names
	jobs := r.reply.Jobs
	if p.state != signals.Running {
		// Last first: each goes to the very head of its queue.
		for _, job := range slices.Backward(jobs) {
			p.ended = append(p.ended, store.Completion{Job: &job, Kind: store.Returned})
		}
		return
	}
	now := time.Now()
	p.fresh = len(p.jobs) == 0
	for i := range jobs {
		p.begin(&jobs[i], r.sent, now)
	}
	if len(r.req.Completions)+len(jobs) > 0 {
		p.stir()
	}
	if len(jobs) > 0 && len(jobs) == len(r.req.Wants) && len(p.idle) == 0 && !p.name.Alone && time.Since(p.foundAt) >= p.cfg.Interval {
		p.foundAt = time.Now()
		if err := p.send(proc.Message{Type: proc.Found}); err != nil {
			p.complain("report", "the master does not read", zap.Error(err))
		}
	}
	p.hungry = len(r.req.Wants) == 0 && p.hungry || len(r.req.Wants) > 0 && len(jobs) == len(r.req.Wants)
	if len(p.ended) > 0 {
		p.hungry = true // a payload that was no job has already ended
	}
	if overlapped && len(jobs) < len(r.req.Wants) {
		p.hungry = true // the other call may have come later and freed what this one did not find
	}
	switch {
	case !r.reply.More && len(p.names) == 0 || len(jobs) == len(r.req.Wants):
		p.retries = 0
	case len(jobs) > 0 || p.retries < maxRetries:
		p.hungry = true
		p.retries++
	default:
		p.retries = 0
	}
	p.sawSuspects(r)
	p.passOver(jobs)
	if p.ahead.unlooked && len(r.req.Wants) > len(jobs) {
		p.look()
	}
	p.ahead.unlooked = false
	if p.cfg.Quota > 0 {
		if p.begun >= p.cfg.Quota {
			p.retire("quota")
		} else {
			p.foresee(now)
		}
	}
}

// passOver notes how many queues come before the one of the first job. Of many
// queues it counts how often exchanges have looked at such: when that is more than a look at
// all queues looks at, that is due, and leaves the empty ones out.
func (p *Process) passOver(jobs []store.Reserved) {
	if len(jobs) == 0 {
		return
	}
	p.skippable = max(0, slices.IndexFunc(p.queues, func(q store.Queue) bool { return q.Name == jobs[0].Queue }))
	if len(p.queues) <= manyQueues {
		return
	}
	p.passed += p.skippable
	if p.passed > 2*len(p.queues) {
		p.passed = 0
		p.look()
	}
}

// judge looks at what became of the completions.
func (p *Process) judge(r *exchangeResult) {
	p.d.Stats.Count(statsd.Locked, r.reply.Bounced)
	p.d.Stats.Count(statsd.Duplicate, len(r.reply.Duplicates))
	for _, queue := range r.reply.OutOfStep {
		p.outOfStep(queue)
	}
	for _, queue := range r.reply.WrongType {
		p.complain("queue "+queue, "a queue's key holds no list; it is skipped until that is repaired",
			zap.String("queue", wire.Printable(queue, 200)))
	}
	if r.reply.Unlockable != "" {
		p.complain("fence", "no locked job is taken until that is repaired: delete the key, then fencing tokens go on from the clock of Redis",
			zap.String("reason", wire.Printable(r.reply.Unlockable, 300)))
	}
	for i, applied := range r.reply.Applied {
		c := r.req.Completions[i]
		if reason, stuck := r.reply.Stuck[i]; stuck {
			p.stick(c, reason)
			continue
		}
		if reason, parked := r.reply.Parked[i]; parked {
			p.log.Error("the end of a job could not be recorded and was parked: it takes its place when that is repaired; see: resqued parked",
				zap.String("reason", printable(reason)), zap.String("queue", wire.Printable(c.Job.Queue, 200)),
				zap.String("parked", p.name.Proc+"#"+c.Job.Token))
		}
		delete(p.stuckSince, c.Job.Token)
		delete(p.killed, c.Job.Token)
		if slices.Contains(r.reply.Duplicates, i) {
			p.log.Info("a job that was to go back to its queue was dropped: an equal one waits there",
				zap.String("queue", wire.Printable(c.Job.Queue, 200)), zap.String("token", c.Job.Token))
		}
		if !applied && !r.req.Repeat {
			p.log.Warn("late: the record of a job was gone when it ended, so its end changed nothing",
				zap.String("queue", wire.Printable(c.Job.Queue, 200)), zap.String("token", c.Job.Token))
		}
	}
}

// outOfStep tells of a unique queue whose companions do not match it: a program
// that does not know them has pushed to it, or taken from it.
func (p *Process) outOfStep(queue string) {
	name := wire.Printable(queue, 200)
	if p.cfg.StrictUnique {
		p.complain("step "+queue, "a unique queue is skipped: its keys do not match; run: resqued locks repair "+name, zap.String("queue", name))
		return
	}
	p.d.Stats.Count(statsd.Healed, 1)
	if time.Since(p.complained["step "+queue]) >= time.Minute {
		p.complained["step "+queue] = time.Now()
		p.log.Warn("the keys of a unique queue did not match and were repaired; some program pushes to it, or takes from it, that does not know them",
			zap.String("queue", name))
	}
}

// complain logs a lasting trouble once a minute.
func (p *Process) complain(subject, text string, fields ...zap.Field) {
	if time.Since(p.complained[subject]) < time.Minute {
		return
	}
	p.complained[subject] = time.Now()
	p.log.Error(text, fields...)
}

func printable(reason string) string { return wire.Printable(reason, 300) }

// redisAway notes that Redis has not answered a look or a beat, or has refused it.
func (p *Process) redisAway() {
	if p.away.IsZero() {
		p.away = time.Now()
	}
}

// redisBack says so when it has answered one again. What comes next is complained of at once.
func (p *Process) redisBack() {
	if p.away.IsZero() {
		return
	}
	p.log.Info("redis is back", zap.Duration("after", time.Since(p.away)))
	p.away = time.Time{}
	delete(p.complained, "poll")
	delete(p.complained, "beat")
}

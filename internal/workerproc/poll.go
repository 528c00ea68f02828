package workerproc

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/statsd"
)

// What the poller shall do; the loop sets it.
const (
	pollOff    = iota
	pollSeldom // as pollQuiet, but now and then
	pollQuiet  // speak up only when there is something to do
	pollAlways
)

const (
	// awake is how long a process that has worked looks for jobs at every interval
	// although it is not the lookout. It is longer than two reports to the master,
	// who finds a lookout among those that have an idle thread.
	awake = 5 * time.Second
	// asleep is how often the others look: only in case the lookout hangs. Those
	// that are busy do, too: a look also finds suspects.
	asleep = time.Second
)

// pollResult is what one look at all queues has found.
type pollResult struct {
	// waiting are the queues that hold jobs, sorted; any says that one of them is
	// ours to work and may have a job that is not locked, locked that one of ours
	// holds locked jobs alone.
	waiting     []string
	any, locked bool
	// suspects counts the jobs of our queues that have to run alone.
	suspects int
	// later: a job of ours waits for its time; only looked for until empty.
	later bool
	// sends is how many exchanges had been sent before the look, which was at began.
	sends int64
	began time.Time
	err   error
}

// poller looks for queues with jobs: at each interval that the loop wants it to,
// and at once when asked or woken by a push. An idle process is this goroutine alone: as long as
// nothing waits, not even the loop wakes up.
func (p *Process) poller() {
	var fixed []string
	for _, c := range p.cfg.Queues.Resolve(nil) {
		fixed = append(fixed, c.Queue)
	}
	timer := time.NewTimer(p.cfg.Interval)
	defer timer.Stop()
	w := newWaker(p)
	defer w.close()
	var last pollResult
	var looked time.Time
	for {
		asked := false
		select {
		case <-p.work.Done():
			return
		case <-p.pollNow:
			asked = true
		case e := <-w.ended:
			if asked = w.took(e); !asked {
				continue
			}
		case <-p.calm:
			w.calm()
			continue
		case <-p.turned:
			w.turned()
			continue
		case <-w.timer.C:
			w.rested()
		case <-timer.C:
		}
		timer.Reset(p.pause())
		mode := p.pollMode.Load()
		if !asked && (mode == pollOff || mode == pollSeldom && time.Since(looked) < asleep) {
			continue
		}
		looked = time.Now()
		r := p.lookAround(fixed)
		w.saw(r)
		if asked || mode == pollAlways || r.any || last.any || r.suspects+last.suspects > 0 || r.err != nil {
			select {
			case p.polls <- r:
			case <-p.work.Done():
				return
			}
		}
		last = r
	}
}

// pause is the time until the next look. An interval is a twentieth shorter than it is
// called, so that a job that is found then has begun within it.
func (p *Process) pause() time.Duration {
	if p.lookout.Load() || p.cfg.UntilEmpty || time.Since(p.started)-time.Duration(p.worked.Load()) < awake {
		return p.cfg.Interval - p.cfg.Interval/20
	}
	return max(p.cfg.Interval, asleep)
}

// stir makes the process look for jobs at every interval for a while.
func (p *Process) stir() { p.worked.Store(int64(time.Since(p.started))) }

// look makes the poller look now.
func (p *Process) look() {
	select {
	case p.pollNow <- struct{}{}:
	default:
	}
}

// lookAround asks for all queues, a part at a time if there are very many.
func (p *Process) lookAround(fixed []string) pollResult {
	r := pollResult{sends: p.sends.Load(), began: time.Now()}
	dynamic := p.cfg.Queues.Dynamic()
	if p.cfg.UntilEmpty {
		// Before the queues: a job that comes back meanwhile is seen there.
		later, err := p.d.Store.DelayedQueues(p.work)
		if err != nil {
			r.err = err
			return r
		}
		r.later = p.ours(later)
	}
	var blocked []string
	var suspects map[string]int
	moved := false
	for cursor := ""; ; {
		reply, err := p.d.Store.Poll(p.work, dynamic, cursor, fixed)
		if err != nil {
			r.err = err
			return r
		}
		if reply.Due && !moved {
			// The master does so, too, and tells what keeps it from it; but that it need
			// not look as often.
			due, _ := p.d.Store.MoveDue(p.work, p.cfg.Unique)
			p.d.Stats.Count(statsd.Duplicate, due.Dropped)
			moved, cursor, r.waiting, blocked = true, "", nil, nil
			continue
		}
		r.waiting, blocked = append(r.waiting, reply.Waiting...), append(blocked, reply.Blocked...)
		suspects = reply.Suspects
		if cursor = reply.Cursor; cursor == "" || cursor == "0" {
			break
		}
	}
	if p.name.Alone {
		r.waiting = slices.Collect(maps.Keys(suspects))
	}
	slices.Sort(r.waiting)
	r.any, r.locked, r.suspects = p.ours(r.waiting), p.ours(blocked), p.count(suspects)
	if !p.name.Alone {
		r.waiting = append(r.waiting, blocked...) // the end of any job may free one
	}
	slices.Sort(r.waiting)
	r.waiting = slices.Compact(r.waiting)
	return r
}

// ours reports whether this process works one of the queues.
func (p *Process) ours(queues []string) bool {
	return len(queues) > 0 && slices.ContainsFunc(p.cfg.Queues.Resolve(queues), func(c selector.Choice) bool {
		return slices.Contains(queues, c.Queue)
	})
}

// setPolling tells the poller what the state of the process calls for. Threads
// that are all busy seldom need a look, unless new queues can only be found that way.
func (p *Process) setPolling() {
	mode := int32(pollOff)
	switch {
	case p.leaving || p.state != signals.Running:
	case p.name.Alone && p.begun > 0:
	case !p.vacant() && !p.cfg.Queues.Dynamic():
		mode = pollSeldom
	case p.cfg.UntilEmpty || p.name.Alone:
		mode = pollAlways
	default:
		mode = pollQuiet
	}
	if old := p.pollMode.Swap(mode); old != mode && (old == pollOff || mode == pollOff) {
		p.turn()
	}
	if mode == pollQuiet && !p.hungry && p.underway() == 0 && p.unarmed.Load() {
		select {
		case p.calm <- struct{}{}:
		default:
		}
	}
}

// turn tells the waker that it may not be wanted any more.
func (p *Process) turn() {
	select {
	case p.turned <- struct{}{}:
	default:
	}
}

// sawQueues takes what the poller has found.
func (p *Process) sawQueues(r pollResult) {
	if r.err != nil {
		p.complain("poll", "cannot look for jobs; trying again", zap.Error(r.err))
		p.redisAway()
		return
	}
	p.redisBack()
	p.waiting, p.polled = r.waiting, true
	p.resolve()
	// A look from before a pause ended, or the start, does not tell that all is empty.
	calm := r.began.After(p.since) && r.sends == p.sends.Load() && p.underway() == 0 && len(p.jobs) == 0 && len(p.ended) == 0 && len(p.stuck) == 0
	if p.name.Alone {
		p.sawAlone(r)
		return
	}
	p.tellSuspects(r.suspects, false)
	switch {
	case r.any:
		p.hungry = true
	case p.cfg.UntilEmpty && calm && !r.later && !r.locked && r.suspects == 0 && p.state == signals.Running:
		p.empty = true
		p.enter(signals.Draining)
	}
}

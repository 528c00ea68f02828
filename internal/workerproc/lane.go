package workerproc

import (
	"slices"
	"strconv"
	"strings"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
)

const (
	// lanes are the exchanges that a process may have under way at the same time. With
	// two, the server works on one while the jobs of the other run; with one, server and
	// process take turns.
	lanes = 2
	// lanesFrom is the number of threads from which there is more than one lane.
	lanesFrom = 4
	// A second exchange leaves when so many percent of the threads have ended their job.
	// With less, calls are small and cost more than the wait for the one before; with
	// more, they seldom overlap. Jobs that take a while leave the server time for smaller
	// calls, and end one by one. Measured for 10 and 50 threads, see docs/performance.md.
	overlapBrief, overlapOther = 30, 15
)

// lane carries one exchange at a time. The loop owns all but requests and sending.
type lane struct {
	number   int
	requests chan store.ExchangeRequest
	sending  int64 // numbers the tries; the exchanger's

	busy bool
	// ended is what the call that is under way tells of, threads those for which it
	// wants a job, first and last its tokens.
	ended       []store.Completion
	threads     []int
	first, last int
	// overlapped: another call was under way at the same time.
	overlapped bool
}

// startLanes starts the exchangers. Where programs name locks, a name that one call asks
// for has to go with the next; and a process that is Alone asks for one job only.
func (p *Process) startLanes() {
	n := lanes
	if p.cfg.Threads < lanesFrom || p.cfg.NamedLocks || len(p.cfg.NamedClasses) > 0 || p.id.alone {
		n = 1
	}
	for i := range n {
		l := &lane{number: i, requests: make(chan store.ExchangeRequest, 1)}
		p.lanes = append(p.lanes, l)
		p.helpers.Go(func() { p.exchanger(l) })
	}
}

// exchanger carries out the calls of a lane until it is certain what came of them.
func (p *Process) exchanger(l *lane) {
	for {
		select {
		case <-p.work.Done():
			return
		case req := <-l.requests:
			r := p.insist(l, req)
			r.names = p.nameAll(r.reply.Unnamed)
			p.exchanged <- r
		}
	}
}

// exchange sends what has ended and asks for what can start. What ends while a call is
// under way goes with the next one, so that the batch grows with the load and nothing
// ever waits for a timer; when that is much, the next one leaves at once.
func (p *Process) exchange() {
	for _, l := range p.lanes {
		switch {
		case l.busy:
		case p.leaving || p.underway() > 0 && !p.overlaps():
			return
		case !p.dispatch(l):
			return
		}
	}
}

// overlaps reports whether so much has ended that a second call is worth it.
func (p *Process) overlaps() bool {
	percent := overlapOther
	if p.brief {
		percent = overlapBrief
	}
	return 100*len(p.ended) >= percent*p.cfg.Threads
}

// share is of how many jobs one call may tell. Jobs that end at once are all there when
// the next call leaves: if that took them all, the other lane would stay empty, and if it
// took most of them, the server would be done with the rest before they have come back.
func (p *Process) share() int {
	if len(p.lanes) == 1 || !p.brief {
		return maxBatch
	}
	return min((p.cfg.Threads+1)/2, maxBatch)
}

// dispatch sends a call on a free lane. It returns false if there is nothing to tell and
// nothing to ask for.
func (p *Process) dispatch(l *lane) bool {
	req := store.ExchangeRequest{Proc: p.id.proc, Master: p.id.master}
	n, wanted := min(len(p.ended), p.share()), p.appetite()
	req.Completions = p.ended[:n:n]
	// Whoever has ended a job that goes with the next call asks with that, too.
	wanted = min(wanted, max(0, len(p.idle)-(len(p.ended)-n)))
	if wanted > 0 && len(p.queues) == 0 {
		wanted, p.hungry = 0, false
	}
	if wanted == 0 && n == 0 {
		return false
	}
	l.overlapped = p.underway() > 0
	for _, other := range p.lanes {
		other.overlapped = other.overlapped || other.busy
	}
	l.busy, l.ended, l.first = true, req.Completions, p.sequence+1
	if wanted > 0 {
		p.want(l, wanted, &req)
	}
	l.last = p.sequence
	p.ended = p.ended[n:]
	if len(p.ended) == 0 {
		p.ended, p.spare = p.spare, nil
	}
	p.sends.Add(1)
	l.requests <- req
	return true
}

// want asks for a job for each of the last n idle threads, the very last one first.
func (p *Process) want(l *lane, n int, req *store.ExchangeRequest) {
	req.Queues, req.Empty = p.queues, p.skippable
	req.Names, req.NamedClasses, req.Suspects = p.names, p.cfg.NamedClasses, p.onSuspects()
	rest := len(p.idle) - n
	l.threads = append(l.threads[:0], p.idle[rest:]...)
	p.idle = p.idle[:rest]
	p.digits = p.digits[:0]
	for i := range n {
		p.digits = strconv.AppendInt(p.digits, int64(p.sequence+1+i), 10)
		p.digits = append(p.digits, ' ')
	}
	tokens := string(p.digits) // the memory of all of them
	p.sequence += n
	req.Wants = make([]store.Want, n)
	for i := range req.Wants {
		var token string
		token, tokens, _ = strings.Cut(tokens, " ")
		req.Wants[i] = store.Want{Token: token, Worker: p.threads[l.threads[n-1-i]].brief}
	}
}

// appetite is how many jobs may be asked for now.
func (p *Process) appetite() int {
	if !p.hungry || !p.polled || p.life.state != signals.Running {
		return 0
	}
	n := min(len(p.idle), maxBatch)
	if p.cfg.Quota > 0 {
		n = min(n, p.cfg.Quota-p.begun-p.awaited())
	}
	return max(n, 0)
}

// answered frees a lane whose call has been answered, and its threads. It reports whether
// another call was under way at the same time.
func (p *Process) answered(l *lane) (overlapped bool) {
	p.idle = append(p.idle, l.threads...)
	l.busy, l.ended, l.threads = false, nil, l.threads[:0]
	return l.overlapped
}

// underway is how many calls have no answer yet.
func (p *Process) underway() int {
	n := 0
	for _, l := range p.lanes {
		if l.busy {
			n++
		}
	}
	return n
}

// awaited is for how many threads jobs were asked for without an answer yet.
func (p *Process) awaited() int {
	n := 0
	for _, l := range p.lanes {
		n += len(l.threads)
	}
	return n
}

// vacant reports whether a thread has no job.
func (p *Process) vacant() bool { return len(p.idle)+p.awaited() > 0 }

// carries reports whether the call that is under way may end, or begin, the job of a token.
func (l *lane) carries(token string, n int) bool {
	return l.busy && (l.first <= n && n <= l.last ||
		slices.ContainsFunc(l.ended, func(c store.Completion) bool { return c.Job.Token == token }))
}

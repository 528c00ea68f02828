package workerproc

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/resqued/resqued/internal/store"
)

// maxBatch bounds one exchange, because a script blocks the server.
const maxBatch = 100

// maxRetries is how often in a row an exchange that found nothing is repeated at once because it
// has not looked at all jobs.
const maxRetries = 512

// exchanges decides what the next exchange reports and asks for, and on which lane. The loop
// owns all fields; the poller reads sends.
type exchanges struct {
	*shared
	threads *threads

	lanes   []*lane
	answers chan exchangeResult // from the exchangers
	sends   atomic.Int64        // exchanges sent

	ended []store.Completion // not sent yet
	spare []store.Completion // ended's other buffer
	// killed are tokens of killed jobs whose end has not reached Redis.
	killed map[string]bool
	stuck  stuckEnds

	// hungry: the next exchange asks for jobs. retries counts immediate repetitions of an
	// incomplete scan.
	hungry   bool
	retries  int
	sequence int // the last token

	candidates
	names []store.LockName // for the next exchange
	turn  *alarm           // a job that waits for a limit may go
}

func newExchanges(s *shared) *exchanges {
	return &exchanges{
		shared: s, answers: make(chan exchangeResult, lanes), killed: map[string]bool{}, stuck: newStuckEnds(), hungry: true, turn: newAlarm(),
		candidates: candidates{shared: s},
	}
}

func (x *exchanges) start(work context.Context, helpers *sync.WaitGroup, e *exchanger) {
	for i := range laneCount(x.cfg, x.id, x.d.Limits != nil) {
		l := newLane(i)
		x.lanes = append(x.lanes, l)
		helpers.Go(func() { e.run(work, l, x.answers) })
	}
}

// send reports what has ended and asks for jobs to start. Jobs that end while a call is under
// way go with the next one, so batches grow with the load and nothing waits for a timer. If
// there are many, the next call leaves at once.
func (x *exchanges) send() {
	for _, l := range x.lanes {
		switch {
		case l.busy:
		case x.underway() > 0 && !x.overlaps():
			return
		case !x.dispatch(l):
			return
		}
	}
}

// overlaps reports whether enough has ended for a second call.
func (x *exchanges) overlaps() bool {
	percent := overlapOther
	if x.threads.pace.brief {
		percent = overlapBrief
	}
	return 100*len(x.ended) >= percent*x.cfg.Threads
}

// share returns how many completions one call may carry. Brief jobs have all ended when the next
// call leaves. If it took all of them, the other lane would stay empty. If it took most, the
// server would finish the rest before they are back.
func (x *exchanges) share() int {
	if len(x.lanes) == 1 || !x.threads.pace.brief {
		return maxBatch
	}
	return min((x.cfg.Threads+1)/2, maxBatch)
}

// dispatch sends a call on a free lane, and reports whether there was anything to send.
func (x *exchanges) dispatch(l *lane) bool {
	req := store.ExchangeRequest{Proc: x.id.proc, Master: x.id.master}
	n, wanted := min(len(x.ended), x.share()), x.wantedJobs()
	req.Completions = x.ended[:n:n]
	// A thread whose job's end goes with the next call asks with that call, too.
	wanted = min(wanted, max(0, x.threads.vacant()-(len(x.ended)-n)))
	if wanted > 0 && len(x.queues) == 0 {
		wanted, x.hungry = 0, false
	}
	if wanted == 0 && n == 0 {
		return false
	}
	l.overlapped = x.underway() > 0
	for _, other := range x.lanes {
		other.overlapped = other.overlapped || other.busy
	}
	l.busy, l.ended, l.first = true, req.Completions, x.sequence+1
	if wanted > 0 {
		x.want(l, wanted, &req)
	}
	l.last = x.sequence
	x.ended = x.ended[n:]
	if len(x.ended) == 0 {
		x.ended, x.spare = x.spare, nil
	}
	x.sends.Add(1)
	l.requests <- req
	return true
}

// want asks for a job for each of the last n idle threads, last thread first.
func (x *exchanges) want(l *lane, n int, req *store.ExchangeRequest) {
	req.Queues, req.Empty = x.queues, x.skippable
	req.Names, req.NamedClasses, req.Suspects = x.names, x.cfg.NamedClasses, x.onSuspects()
	l.threads = x.threads.take(n, l.threads[:0])
	req.Wants = make([]store.Want, n)
	for i := range req.Wants {
		x.sequence++
		req.Wants[i] = store.Want{Token: strconv.Itoa(x.sequence), Worker: x.threads.slots[l.threads[n-1-i]].brief}
	}
}

func (x *exchanges) wantedJobs() int {
	if !x.hungry || !x.polled || !x.life.running() {
		return 0
	}
	n := min(x.threads.vacant(), maxBatch)
	if x.cfg.JobsPerFork > 0 {
		n = min(n, x.cfg.JobsPerFork-x.threads.used-x.awaited())
	}
	return max(n, 0)
}

// answered frees a lane and its threads, and reports whether another call was under way at the
// same time.
func (x *exchanges) answered(l *lane) (overlapped bool) {
	x.threads.free(l.threads)
	l.busy, l.ended, l.threads = false, nil, l.threads[:0]
	return l.overlapped
}

func (x *exchanges) underway() int {
	n := 0
	for _, l := range x.lanes {
		if l.busy {
			n++
		}
	}
	return n
}

// awaited returns the number of threads whose request has no answer yet.
func (x *exchanges) awaited() int {
	n := 0
	for _, l := range x.lanes {
		n += len(l.threads)
	}
	return n
}

func (x *exchanges) vacant() bool { return x.threads.vacant()+x.awaited() > 0 }

// onSuspects returns how the next request treats suspects.
func (x *exchanges) onSuspects() store.Suspects {
	switch {
	case x.id.alone:
		return store.OnlySuspects
	case x.cfg.Threads == 1 && x.threads.begun == 0:
		return store.TakeSuspects
	default:
		return store.SetApart
	}
}

// pushed notes that a queue of ours, empty until now, holds something.
func (x *exchanges) pushed(queue string) {
	x.candidates.add(queue)
	x.hungry = x.hungry || x.polled
}

func (x *exchanges) add(c store.Completion) { x.ended = append(x.ended, c) }

// end makes the next exchange report the end of a job and ask for others. killed: the job was
// told to stop and must not run again.
func (x *exchanges) end(c store.Completion, killed bool) {
	x.add(c)
	if killed {
		x.killed[c.Job.Token] = true
	}
	x.hungry = true
}

// untold returns how many ends Redis has not accepted.
func (x *exchanges) untold() int {
	n := len(x.ended) + len(x.stuck.ends)
	for _, l := range x.lanes {
		n += len(l.ended)
	}
	return n
}

// settledSince reports whether no call is under way, none was sent since, and all ends are
// recorded.
func (x *exchanges) settledSince(sends int64) bool {
	return sends == x.sends.Load() && !x.unsettled() && len(x.stuck.ends) == 0
}

// unsettled reports whether a call is under way or an end is unsent.
func (x *exchanges) unsettled() bool { return x.underway() > 0 || len(x.ended) > 0 }

// carries reports whether an exchange, now or later, begins or ends a token's job.
func (x *exchanges) carries(token string, n int) bool {
	return n > x.sequence || x.stuck.has(token) ||
		slices.ContainsFunc(x.ended, func(c store.Completion) bool { return c.Job.Token == token }) ||
		slices.ContainsFunc(x.lanes, func(l *lane) bool { return l.carries(token, n) })
}

func (x *exchanges) giveBack(jobs []store.Reserved) {
	// Last first: each goes to the very head of its queue.
	for _, job := range slices.Backward(jobs) {
		x.add(store.Completion{Job: &job, Kind: store.Returned})
	}
}

// updateHunger decides whether to ask again after the jobs of an answer have begun.
func (x *exchanges) updateHunger(r *exchangeResult, overlapped bool) {
	jobs := r.reply.Jobs
	x.hungry = len(r.req.Wants) == 0 && x.hungry || len(r.req.Wants) > 0 && len(jobs) == len(r.req.Wants)
	if len(x.ended) > 0 {
		x.hungry = true // an invalid payload has already ended
	}
	if overlapped && len(jobs) < len(r.req.Wants) {
		x.hungry = true // the other call may have come later and freed what this one missed
	}
	switch {
	case !r.reply.More && len(x.names) == 0 || len(jobs) == len(r.req.Wants):
		x.retries = 0
	case len(jobs) > 0 || x.retries < maxRetries:
		x.hungry = true
		x.retries++
	default:
		x.retries = 0
	}
}

func (x *exchanges) killedTokens() []string { return slices.Collect(maps.Keys(x.killed)) }

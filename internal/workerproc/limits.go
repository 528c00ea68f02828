package workerproc

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// limitRequeue is how long a job over a limit that does not wait in a line stays away at least.
const limitRequeue = time.Second

// limit applies the limits of the jobs that a call has taken. Jobs that wait leave the reply.
func (e *exchanger) limit(work context.Context, r *exchangeResult) {
	if e.d.Limits == nil || r.err != nil || len(r.reply.Jobs) == 0 {
		return
	}
	r.refused = map[string]error{}
	var gated []store.Gated
	var limitsOf [][]jobkey.Limit // of gated
	for i := range r.reply.Jobs {
		job := &r.reply.Jobs[i]
		limits, err := e.d.Limits.Of(job.Queue, job.Payload)
		if err != nil {
			r.refused[job.Token], limits = &limitedError{text: wire.Printable(err.Error(), 500)}, nil
		}
		if len(limits) > 0 || job.Passed != "" { // its line waits for an answer
			job.Limited = true
			gated = append(gated, store.Gated{Token: job.Token, Lined: job.Lined, Passed: job.Passed, Gates: e.gates(limits)})
			limitsOf = append(limitsOf, limits)
		}
	}
	if len(gated) == 0 {
		return
	}
	told, next, err := e.limitUntilKnown(work, gated)
	if err != nil {
		r.err = err
		return
	}
	waits, counts := map[string]bool{}, map[string]bool{}
	for i, a := range told {
		switch g := gated[i]; {
		case a.Begins:
			counts[g.Token] = a.Counts
		case a.Waits:
			waits[g.Token] = true
		default:
			r.refused[g.Token] = overLimit(&limitsOf[i][a.Gate], a)
		}
	}
	jobs := r.reply.Jobs[:0]
	for _, job := range r.reply.Jobs {
		if job.Counts = counts[job.Token]; !waits[job.Token] {
			jobs = append(jobs, job)
		}
	}
	// Those behind jobs that wait may go.
	r.reply.Jobs, r.reply.More = jobs, r.reply.More || len(waits) > 0
	if next >= 0 {
		r.turn = time.Now().Add(next)
	}
	r.sent, r.err = e.renewed(work, jobs, r.sent)
}

func (e *exchanger) gates(limits []jobkey.Limit) []store.Gate {
	gates := make([]store.Gate, len(limits))
	for i, l := range limits {
		gates[i] = store.Gate{
			Rule: l.Name, Key: l.Key, Concurrency: l.Concurrency, Every: l.Every, Burst: l.Burst, Cost: l.Cost,
			Ends: l.OnLimit != resqued.LimitWait && l.OnLimit != resqued.LimitReplace, Replaces: l.OnLimit == resqued.LimitReplace,
		}
		switch l.Per {
		case resqued.PerHost:
			gates[i].Scope = "@" + e.cfg.Host
		case resqued.PerProcess:
			gates[i].Scope = "@" + e.id.proc
		}
	}
	return gates
}

// limitUntilKnown repeats the question until Redis has answered it. Meanwhile the jobs have their records.
func (e *exchanger) limitUntilKnown(work context.Context, gated []store.Gated) ([]store.Admission, time.Duration, error) {
	for backoff, again := 20*time.Millisecond, false; ; backoff, again = min(2*backoff, 2*time.Second), true {
		told, next, err := e.d.Store.Limit(work, e.id.proc, gated, again)
		if err == nil || work.Err() != nil {
			e.troubles.exchange.note(nil)
			return told, next, err
		}
		e.troubles.exchange.note(err)
		e.troubles.complain("limits", "the limits of jobs cannot be asked for; trying again", zap.Error(err), zap.Int("jobs", len(gated)))
		sleep(work, backoff)
	}
}

// overLimit returns what ends a job that may not begin because of a limit.
func overLimit(l *jobkey.Limit, a store.Admission) error {
	name := wire.Printable((&store.Gate{Rule: l.Name, Key: l.Key}).Name(), 200)
	switch {
	case a.Replaced:
		return fmt.Errorf("%w: a newer job replaces it, limit %s", resqued.Discard, name)
	case l.OnLimit == resqued.LimitDiscard:
		return fmt.Errorf("%w: limit %s is reached", resqued.Discard, name)
	case l.OnLimit == resqued.LimitRequeue:
		return resqued.Requeue(max(a.After, limitRequeue))
	default:
		return &limitedError{text: name + " is reached"}
	}
}

// limitedError is why a job fails because of a limit.
type limitedError struct{ text string }

func (e *limitedError) Error() string { return resqued.ErrLimit.Error() + " " + e.text }

func (e *limitedError) Unwrap() error { return resqued.ErrLimit }

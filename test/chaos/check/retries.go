package check

import (
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Retries is C9: a job with a retry runs again after each failure, with the next number, not
// before its wait is over, and no more often than needed.
func Retries(h *History) Result {
	r := Result{Name: "C9 retries"}
	failures, last, disturbed := 0, 0, 0
	attempts := map[string]int{}
	for _, f := range h.Failed {
		attempts[f.ID] = f.Attempts
	}
	for _, p := range sorted(h.Pushes) {
		if p.Attempts == 0 {
			continue
		}
		r.Looked++
		runs := h.byID[p.ID]
		explained := 0
		// skipped counts the attempts used up by processes that died with the job before its
		// code began.
		skipped := 0
		if len(runs) > 0 {
			skipped = runs[0].Attempt - 1
			if skipped > h.deathsBetween(p.Tried, runs[0].At) {
				r.fail([]string{p.ID}, "%s: its first run, at %s, was attempt %d", p.ID, seconds(runs[0].At), runs[0].Attempt)
			}
		}
		for i := 1; i < len(runs); i++ {
			before, again := runs[i-1], runs[i]
			cause := h.whyAgain(before, again)
			if cause == "" && !p.fails(before) {
				cause = h.whyRetried(p, before, again)
			}
			if cause != "" {
				explained++
				continue
			}
			if !p.fails(before) {
				continue // C4 reports it
			}
			failures++
			least := before.Attempt + 1
			if h.emptiedWithin(before.Ended, again.At) {
				least = 1 // the job was already taken, and its count was lost before its thread asked for it
			}
			if again.Attempt < least || again.Attempt > before.Attempt+1+h.deathsBetween(before.Ended, again.At) {
				r.fail([]string{p.ID}, "%s: attempt %d at %s follows attempt %d", p.ID, again.Attempt, seconds(again.At), before.Attempt)
			}
			skipped += max(0, again.Attempt-before.Attempt-1)
			if wait := p.wait(before.Attempt); again.At < before.Ended+wait-clockError {
				r.fail([]string{p.ID}, "%s ran again %s after it had failed for the %dth time, and was to wait %s", p.ID,
					seconds(again.At-before.Ended), before.Attempt, seconds(wait))
			}
		}
		most := min(p.Fails+1, p.Attempts)
		if len(runs) > most+explained {
			r.fail([]string{p.ID}, "%s ran %d times, %d of them for a reason of its own, and was to run %d times", p.ID, len(runs), len(runs)-explained, most)
		}
		if explained > 0 || len(runs) > 0 && h.rolledBack(runs[len(runs)-1]) {
			disturbed++
		}
		// A job that was also killed has failed for good one run earlier or later.
		n, hasFailed := attempts[p.ID]
		if p.Fails >= p.Attempts && hasFailed {
			last++
			if explained == 0 && (n != p.Attempts || len(runs)+skipped != p.Attempts) {
				r.fail([]string{p.ID}, "%s failed for good after %d runs, attempt %d, not after %d", p.ID, len(runs), n, p.Attempts)
			}
		}
	}
	r.note("%d failures followed by another run, %d jobs that used up their attempts, %d disturbed", failures, last, disturbed)
	return r
}

// clockError is the tolerance between clocks of one machine that are read one after the other.
const clockError = 5 * time.Millisecond

// fails reports whether a run of the job is expected to fail.
func (p *Push) fails(r *Run) bool {
	return p.Attempts > 0 && r.Outcome == ledger.Fail && r.Attempt <= p.Fails
}

// wait returns the minimum wait after a run of the job.
func (p *Push) wait(attempt int) time.Duration {
	if len(p.Waits) == 0 {
		return 0
	}
	return p.Waits[min(max(attempt, 1), len(p.Waits))-1]
}

// deathsBetween returns how many processes may have died between two instants after taking a
// job and before starting it; each counts as an attempt.
func (h *History) deathsBetween(from, to time.Duration) (n int) {
	for _, f := range h.Faults {
		if f.Effect&(Kills|Fences|Freezes) != 0 && f.From < to && f.To+noticing > from {
			n++
		}
	}
	for _, at := range h.died {
		if at < to && at+dying > from {
			n++
		}
	}
	return n
}

// noticing is how long after its end a process may be found dead.
const noticing = time.Second

// whyRetried returns why a job with a retry ran again although its process was not disturbed.
func (h *History) whyRetried(p *Push, before, again *Run) string {
	switch {
	case p.fails(before):
		return "a failure"
	case h.killed(before, again.At):
		return "a kill, which is a failure"
	}
	return ""
}

// killed reports whether a run of a job with a retry was killed because of a fault of its
// process, which counts as a failure.
func (h *History) killed(r *Run, until time.Duration) bool {
	_, ok := h.explains(r.Proc, r.At-time.Second, min(until, r.Last+time.Second), Fails|Disturbs)
	return ok && r.Outcome != ledger.End
}

// retried bounds how many failures were followed by another run, and so were counted in addition
// to those in failed.
func (h *History) retried() (least, most int64) {
	failed := map[string]bool{}
	for _, f := range h.Failed {
		failed[f.ID] = true
	}
	for _, p := range h.Pushes {
		if p.Attempts == 0 {
			continue
		}
		runs := h.byID[p.ID]
		for i, run := range runs {
			switch {
			case run.Outcome == ledger.End || run.Outcome == ledger.Requeue || i+1 == len(runs) && failed[p.ID]:
			case p.fails(run) && i+1 < len(runs) && h.whyAgain(run, runs[i+1]) == "" && !h.emptied(run):
				least++
				most++
			default:
				most++
			}
		}
	}
	return least, most
}

// Delayed is C10: a delayed job never runs before its time, and at a quiet time at most limit
// after it. C1 and C4 check that it runs once.
func Delayed(h *History, limit time.Duration) Result {
	r := Result{Name: "C10 delayed"}
	var late []time.Duration
	for _, p := range sorted(h.Pushes) {
		if p.Due == 0 {
			continue
		}
		runs := h.byID[p.ID]
		for _, run := range runs {
			r.Looked++
			if run.Reserved > 0 && run.Reserved < p.Due {
				r.fail([]string{p.ID}, "%s was taken %d ms before its time", p.ID, p.Due-run.Reserved)
			}
		}
		if !h.quiet(p.DueAt, limit) || len(p.More) > 0 {
			continue
		}
		if len(runs) == 0 && (h.Forgotten[p.ID] || h.lostPush(p.tries()[0])) {
			continue
		}
		if len(runs) == 0 {
			r.fail([]string{p.ID}, "%s was due at %s, at a quiet time, and has not run", p.ID, seconds(p.DueAt))
			continue
		}
		wait := time.Duration(runs[0].Reserved-p.Due) * time.Millisecond
		late = append(late, wait)
		if wait > limit+h.Held(p.DueAt, p.DueAt+wait) {
			r.fail([]string{p.ID}, "%s was taken %s after its time, a quiet one", p.ID, seconds(wait))
		}
	}
	r.note("%d due at quiet times, median %s late", len(late), seconds(median(late)))
	return r
}

// quiet reports whether a quiet time surrounds an instant and a time after it.
func (h *History) quiet(at, long time.Duration) bool {
	for _, s := range h.Quiet {
		if at > s.From+quietMargin && at+long < s.To {
			return true
		}
	}
	return false
}

const quietMargin = time.Second

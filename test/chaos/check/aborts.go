package check

import (
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Aborted is a USR1 to a daemon, one of whose worker processes died soon after.
type Aborted struct {
	// Procs are the worker processes that the daemon had; Crashed is the one that died at At.
	Procs   []string
	Crashed string
	At      time.Duration
	// From is when the signal was sent; To is when each job to be killed had ended.
	From, To time.Duration
}

// killedNote begins the failure record of a killed job.
const killedNote = "Job was killed"

// near is the distance from the signal within which an instant counts as neither before nor
// after.
const near = 20 * time.Millisecond

// Aborts is C14: of the jobs of a process that died after USR1, those in hand at the signal
// count as killed and have not run again. Later ones were not to be killed, and run again.
func Aborts(h *History) Result {
	r := Result{Name: "C14 kills"}
	inHand, later := 0, 0
	for _, f := range h.Faults {
		a := f.Aborted
		if a == nil {
			continue
		}
		r.Looked++
		began := h.killsBegan(a)
		for _, run := range h.Runs {
			p := h.Pushes[run.ID]
			if run.Proc != a.Crashed || run.At >= a.At || p == nil || len(p.More) > 0 || h.lostOrTold(run, a) {
				continue
			}
			open := run.Outcome == "" || run.Ended > a.At
			killed := slices.IndexFunc(h.Failed, func(f Failed) bool {
				return f.ID == run.ID && strings.HasPrefix(f.Error, killedNote) && f.At > a.From-time.Second
			}) >= 0
			switch next := h.next(run); {
			case run.At < a.From-near && (run.Outcome == "" || run.Ended > a.From) && run.Outcome != ledger.End:
				inHand++
				if next != nil && p.Attempts == 0 && run.Outcome != ledger.Requeue && run.Outcome != ledger.Lost {
					r.fail([]string{run.ID}, "%s was in hand in %s from %s on, USR1 came at %s, and it ran again at %s in %s", run.ID, run.Proc,
						seconds(run.At), seconds(a.From), seconds(next.At), next.Proc)
				}
			case open && began > 0 && run.At > began && h.reserved(run) > a.From+near:
				later++
				if killed && next == nil {
					r.fail([]string{run.ID}, "%s began at %s in %s, after USR1 at %s, and counts as killed, since the process died at %s", run.ID,
						seconds(run.At), run.Proc, seconds(a.From), seconds(a.At))
				}
			}
		}
	}
	r.note("%d jobs in hand at USR1, %d taken after it by a process that died then", inHand, later)
	return r
}

// killsBegan returns when the process had certainly begun to kill its jobs: at the first failure
// of a job that would not fail by itself. 0 = unknown.
func (h *History) killsBegan(a *Aborted) (at time.Duration) {
	for _, run := range h.Runs {
		p := h.Pushes[run.ID]
		if run.Proc != a.Crashed || p == nil || p.Expect != ExpectDone || p.Attempts > 0 {
			continue
		}
		if run.Outcome == ledger.Fail && run.At < a.From && run.Ended >= a.From && (at == 0 || run.Ended < at) {
			at = run.Ended
		}
	}
	return at
}

// reserved returns when the job of a run was taken from its queue; 0 = unknown.
func (h *History) reserved(r *Run) time.Duration {
	if r.Reserved == 0 {
		return 0
	}
	return time.Duration(r.Reserved)*time.Millisecond - h.Epoch
}

// next returns the next run of the same job.
func (h *History) next(r *Run) *Run {
	runs := h.byID[r.ID]
	if i := slices.Index(runs, r); i >= 0 && i+1 < len(runs) {
		return runs[i+1]
	}
	return nil
}

// lostOrTold reports whether something else explains the fate of a run: an earlier job killed
// its process, or Redis lost writes.
func (h *History) lostOrTold(r *Run, a *Aborted) bool {
	died, ok := h.died[a.Crashed]
	return ok && died < a.At || h.rolledBack(r) || h.emptied(r)
}

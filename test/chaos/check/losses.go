package check

import (
	"slices"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Loss is an interval whose writes Redis has lost. The harness writes a number every few
// milliseconds; the last remaining number is the beginning.
type Loss struct {
	Kind string
	// From is when the last kept write began; To is when the server was gone.
	From, To time.Duration
	// Proven: a later number had been acknowledged. Otherwise only writes of the last few
	// milliseconds may be missing.
	Proven bool
}

// The margins before and after a run in which its job may have been taken and reported. A
// command that leaves processes is reported seconds after it has noted its end. An unproven loss
// is too short for large margins.
const (
	aroundProven = 3 * time.Second
	around       = 50 * time.Millisecond
)

// lostPush reports whether Redis may have lost a push.
func (h *History) lostPush(t Try) bool {
	return slices.ContainsFunc(h.Losses, func(l Loss) bool { return t.Answered > l.From && t.Tried < l.To })
}

// rolledBack reports whether Redis may have lost the beginning or the end of a run, so that its
// job was back in its earlier state.
func (h *History) rolledBack(r *Run) bool {
	return slices.ContainsFunc(h.Losses, func(l Loss) bool {
		margin, reported := around, r.Last+around
		if l.Proven {
			margin, reported = aroundProven, h.reported(r)
		}
		touches := func(from, to time.Duration) bool { return from < l.To && to > l.From }
		return touches(r.At-margin, r.At) || touches(r.Last, reported)
	})
}

// reported returns when the end of a run had certainly been reported: while Redis is away the
// report waits.
func (h *History) reported(r *Run) time.Duration {
	until := r.Last + aroundProven
	for again := true; again; {
		again = false
		for _, f := range h.Faults {
			later := f.To + aroundProven
			if f.Effect&Disturbs != 0 && f.From < until && f.To > r.Last && later > until && (f.Daemon == "" || f.Daemon == h.DaemonOf(r.Proc)) {
				until, again = later, true
			}
		}
	}
	return until
}

// emptied reports whether Redis lost everything, including the lock, while a run was under way.
func (h *History) emptied(r *Run) bool {
	return h.emptiedWithin(r.At-around, r.Last+around)
}

// emptiedWithin reports whether Redis may have lost everything between two instants.
func (h *History) emptiedWithin(from, to time.Duration) bool {
	return slices.ContainsFunc(h.Emptied, func(s Span) bool { return s.From < to && s.To > from })
}

// drift returns by how many jobs Redis's counters may be off.
func (h *History) drift() (n int64) {
	if len(h.Losses) == 0 {
		return 0
	}
	for _, runs := range h.byID {
		if slices.ContainsFunc(runs, h.rolledBack) {
			n++
		}
	}
	return n
}

// Try is one push of a payload.
type Try struct {
	Answer Answer
	// Tried and Answered are when the push began and when its answer came.
	Tried, Answered time.Duration
	// Duplicate: the answer was that an equal payload waits already.
	Duplicate bool
}

// tries returns all pushes of the payload.
func (p *Push) tries() []Try {
	return append([]Try{{Answer: p.Answer, Tried: p.Tried, Answered: p.Answered}}, p.More...)
}

// copies bounds how often the payload was pushed until an instant.
func (p *Push) copies(until time.Duration) (least, most int) {
	for _, t := range p.tries() {
		switch {
		case t.Duplicate || t.Answer == Refused:
		case t.Answer == Acknowledged && t.Answered <= until:
			least++
			most++
		default:
			most++
		}
	}
	return least, most
}

// ends returns how many runs of a job ended successfully until an instant.
func (h *History) ends(id string, until time.Duration) (n int) {
	for _, r := range h.byID[id] {
		if r.Outcome == ledger.End && r.Ended <= until {
			n++
		}
	}
	return n
}

const always = time.Duration(1<<63 - 1)

// several judges a payload that was pushed more than once: each copy has run, or in a unique
// queue each push was followed by a run. It returns the number of lost jobs, how many of them
// Redis lost, and bounds of how many jobs Redis must have counted.
func (h *History) several(p *Push, there int) (lost, byRedis int, least, most int64) {
	ends := h.ends(p.ID, always)
	sure, maybe := p.copies(always)
	if !p.Unique {
		if missing := sure - ends - there; missing > 0 {
			for _, t := range p.tries() {
				if missing > 0 && t.Answer == Acknowledged && (h.lostPush(t) || h.Forgotten[p.ID]) {
					missing, byRedis = missing-1, byRedis+1
				}
			}
			lost = missing
		}
		return lost, byRedis, int64(min(sure, ends)), int64(min(maybe, ends))
	}
	for _, t := range p.tries() {
		if t.Answer != Acknowledged && !t.Duplicate || there > 0 {
			continue
		}
		if slices.ContainsFunc(h.byID[p.ID], func(r *Run) bool { return r.Outcome == ledger.End && r.Ended >= t.Tried }) {
			continue
		}
		if h.lostPush(t) || h.Forgotten[p.ID] {
			byRedis++
		} else {
			lost++
		}
	}
	return lost, byRedis, int64(min(1, sure, ends)), int64(min(maybe, ends))
}

// lostSpan describes the total length of the proven losses.
func (h *History) lostSpan() string {
	var d time.Duration
	for _, l := range h.Losses {
		if l.Proven {
			d += l.To - l.From
		}
	}
	return seconds(d)
}

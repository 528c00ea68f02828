package check

import (
	"slices"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Loss is a span whose writes Redis has lost by itself. The harness writes a number
// every few milliseconds: the last that is still there shows where the span begins.
type Loss struct {
	Kind string
	// From is when the last write that was kept began, To when the server was gone.
	From, To time.Duration
	// Proven: a later number had been acknowledged. Otherwise only what was written
	// within the few milliseconds may be missing.
	Proven bool
}

// Around a run its job is taken and reported: where a command leaves processes behind
// that is seconds after the command has said that it ends. An unproven loss is too short
// for more than what happened right there.
const (
	aroundProven = 3 * time.Second
	around       = 50 * time.Millisecond
)

// lostPush says whether Redis may have lost a push by itself.
func (h *History) lostPush(t Try) bool {
	return slices.ContainsFunc(h.Losses, func(l Loss) bool { return t.Answered > l.From && t.Tried < l.To })
}

// rolledBack says whether Redis may have forgotten the beginning or the end of a run,
// so that its job went back to where it was.
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

// reported is when the end of a run had certainly been reported: while Redis is away it
// is kept.
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

// emptied says whether Redis lost everything while a run was under way, its lock
// included.
func (h *History) emptied(r *Run) bool {
	return slices.ContainsFunc(h.Emptied, func(at time.Duration) bool { return r.At-around < at && at < r.Last+around })
}

// drift is how many jobs Redis may have counted too often or not at all.
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
	// Duplicate: an equal payload was said to wait already.
	Duplicate bool
}

// tries are all pushes of the payload.
func (p *Push) tries() []Try {
	return append([]Try{{Answer: p.Answer, Tried: p.Tried, Answered: p.Answered}}, p.More...)
}

// copies is how often the payload was certainly pushed, until an instant, and how
// often at most.
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

// ends is how many runs of a job came to a good end until an instant.
func (h *History) ends(id string, until time.Duration) (n int) {
	for _, r := range h.byID[id] {
		if r.Outcome == ledger.End && r.Ended <= until {
			n++
		}
	}
	return n
}

const always = time.Duration(1<<63 - 1)

// several judges a payload that was pushed more than once, in the end: each copy has
// run, or in a unique queue each push was followed by a run. It returns how many are
// lost, by whom, and how many Redis has to have counted.
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

// lostSpan is how much time of writes Redis has lost, as far as that is proven.
func (h *History) lostSpan() string {
	var d time.Duration
	for _, l := range h.Losses {
		if l.Proven {
			d += l.To - l.From
		}
	}
	return seconds(d)
}

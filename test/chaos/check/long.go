package check

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Long is one run of a long job as logged by its producer.
type Long struct {
	ID string
	// UUID is its id in resqued; "" if the answer did not come.
	UUID            string
	Units           int
	Answer          Answer
	Tried, Answered time.Duration
	// Status is its final status in Redis; "" if Redis does not know it.
	Status string
}

// addUnit adds a unit of a long job, or its completion.
func (h *History) addUnit(r *Run, e ledger.Entry) {
	if !slices.Contains(h.slices[e.Long], r) {
		h.slices[e.Long] = append(h.slices[e.Long], r)
	}
	if e.What == ledger.Complete {
		r.Completed = e.At
		return
	}
	r.Units = append(r.Units, e)
}

// Completed reports whether the code of a long job has completed by an instant.
func (h *History) Completed(id string, until time.Duration) bool {
	return slices.ContainsFunc(h.slices[id], func(r *Run) bool { return r.Completed > 0 && r.Completed <= until })
}

// slice reports whether an id is a slice's of a long job, <uuid>.<number>.
func (h *History) slice(id string) bool {
	uuid, _, ok := strings.Cut(id, ".")
	for _, l := range h.Longs {
		if ok && (l.UUID == uuid || l.UUID == "" && l.Answer == Ambiguous) {
			return true
		}
	}
	return false
}

// emptiedSince reports whether Redis has lost everything since an instant.
func (h *History) emptiedSince(at time.Duration) bool {
	return slices.ContainsFunc(h.Emptied, func(s Span) bool { return s.To > at })
}

func (h *History) lostLong(l *Long) bool {
	forgotten := slices.ContainsFunc(h.slices[l.ID], func(r *Run) bool { return h.Forgotten[r.ID] })
	return forgotten || l.UUID != "" && h.Forgotten[l.UUID] || h.lostPush(Try{Answer: l.Answer, Tried: l.Tried, Answered: l.Answered}) || h.lostSlice(l)
}

// lostSlice reports whether Redis may have lost the slice that the last run one enqueued between
// its last unit and its end.
func (h *History) lostSlice(l *Long) bool {
	var last *Run
	for _, r := range h.slices[l.ID] {
		if last == nil || r.At > last.At {
			last = r
		}
	}
	if last == nil || last.Outcome != ledger.End || last.Completed > 0 || len(last.Units) == 0 {
		return false
	}
	return h.lostPush(Try{Tried: last.Units[len(last.Units)-1].At, Answered: last.Ended})
}

// LongJobs is C12: the units of a long job are done in order, and repeated only after an
// interruption. Its saved state counts the units done, and it completes once.
func LongJobs(h *History) Result {
	r := Result{Name: "C12 long jobs"}
	units, again, interrupted, byRedis := 0, 0, 0, 0
	for _, l := range longs(h) {
		r.Looked++
		runs := h.slices[l.ID]
		if l.Answer == Refused && len(runs) > 0 {
			r.fail([]string{l.ID}, "%s was refused and runs all the same", l.ID)
		}
		done := map[int]int{}
		var before *Run
		completed := 0
		for _, run := range runs {
			for i, u := range run.Units {
				units++
				done[u.Unit]++
				if u.State != u.Unit {
					r.fail([]string{l.ID}, "%s: in unit %d at %s the run remembered %d units", l.ID, u.Unit, seconds(u.At), u.State)
				}
				if i > 0 && u.Unit != run.Units[i-1].Unit+1 {
					r.fail([]string{l.ID}, "%s: unit %d at %s follows unit %d", l.ID, u.Unit, seconds(u.At), run.Units[i-1].Unit)
				}
			}
			if run.Completed > 0 {
				completed++
			}
			if before != nil {
				cause := h.interrupted(before, run)
				if cause != "" {
					interrupted++
				}
				again += h.judgeSlices(&r, l, before, run, cause)
			} else if len(run.Units) > 0 && run.Units[0].Unit != 0 {
				r.fail([]string{l.ID}, "%s began with unit %d", l.ID, run.Units[0].Unit)
			}
			if len(run.Units) > 0 || run.Completed > 0 {
				before = run
			}
		}
		switch missing := l.Units - len(done); {
		case h.lostLong(l) && (missing > 0 || completed == 0):
			byRedis++
		case l.Answer == Acknowledged && (missing > 0 || completed == 0):
			r.fail([]string{l.ID}, "%s (%s, pushed at %s, now %q): %d of %d units were not done, completed %d times", l.ID, l.UUID, seconds(l.Answered),
				l.Status, missing, l.Units, completed)
		case l.Answer == Ambiguous && len(runs) > 0 && completed == 0 && !h.lostLong(l):
			r.fail([]string{l.ID}, "%s was pushed, perhaps, and begun, and was not completed", l.ID)
		case completed > 0 && l.UUID != "" && l.Status != "completed" && !h.lostLong(l) && !h.emptiedSince(l.Tried):
			r.fail([]string{l.ID}, "%s (%s) was completed and is %q", l.ID, l.UUID, l.Status)
		}
	}
	r.note("%d units, %d of them again, %d slices interrupted", units, again, interrupted)
	if byRedis > 0 {
		r.note("%d lost by redis", byRedis)
	}
	return r
}

// judgeSlices checks where a slice continues after the previous one, and returns how many units
// it repeats.
func (h *History) judgeSlices(r *Result, l *Long, before, run *Run, cause string) (again int) {
	if before.Completed > 0 {
		if cause == "" {
			r.fail([]string{l.ID}, "%s went on at %s and was completed at %s", l.ID, seconds(run.At), seconds(before.Completed))
		}
		if len(run.Units) == 0 {
			return 0
		}
	}
	if len(run.Units) == 0 || len(before.Units) == 0 {
		return 0
	}
	last, next := before.Units[len(before.Units)-1], run.Units[0]
	again = last.Unit + 1 - next.Unit
	switch {
	case again < 0:
		r.fail([]string{l.ID}, "%s: unit %d at %s follows unit %d of the slice before", l.ID, next.Unit, seconds(next.At), last.Unit)
	case again == 0:
	case again == 1 && cause != "":
	case h.forgot(before, run):
	default:
		why := "without a reason"
		if cause != "" {
			why = "after " + cause
		}
		r.fail([]string{l.ID}, "%s: %d units were done again from %d on, at %s in %s, %s; before in %s until %s (%s)", l.ID, again, next.Unit, seconds(next.At),
			run.Proc, why, before.Proc, seconds(last.At), outcome(before))
	}
	return max(again, 0)
}

// interrupted returns what explains that a slice's last unit was repeated.
func (h *History) interrupted(before, run *Run) string {
	if cause := h.whyAgain(before, run); cause != "" && before.Outcome != ledger.Requeue {
		return cause
	}
	if f, ok := h.explains(before.Proc, before.At-time.Second, run.At, Fails|Disturbs|Kills|Fences|Freezes); ok {
		return f.Kind
	}
	return ""
}

// forgot reports whether Redis may have lost what a slice had saved.
func (h *History) forgot(before, run *Run) bool {
	return slices.ContainsFunc(h.Losses, func(l Loss) bool {
		margin := around
		if l.Proven {
			margin = aroundProven
		}
		return before.At-margin < l.To && run.At+margin > l.From && l.From < run.At
	})
}

// longs returns the long jobs in order of their ids.
func longs(h *History) []*Long {
	all := make([]*Long, 0, len(h.Longs))
	for _, l := range h.Longs {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *Long) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// longPlaces is C1 for long jobs in a snapshot: an acknowledged run that is not completed has a
// slice.
func (h *History) longPlaces(r *Result, s Snapshot) {
	there := map[string]bool{}
	for id := range s.Places {
		if uuid, _, ok := strings.Cut(id, "."); ok {
			there[uuid] = true
		}
	}
	for _, l := range h.Longs {
		if l.Answer != Acknowledged || l.Answered > s.From || there[l.UUID] || h.Completed(l.ID, s.To) || h.lostLong(l) {
			continue
		}
		r.fail([]string{l.ID}, "at %s the long job %s (%s) had no slice anywhere", seconds(s.To), l.ID, l.UUID)
	}
}

// sliced bounds the number of slices that Redis may have counted. Each slice counts once,
// however often it was interrupted.
func (h *History) sliced() (least, most int64) {
	for id, runs := range h.byID {
		if !strings.Contains(id, ".") {
			continue
		}
		if !slices.ContainsFunc(runs, func(r *Run) bool { return r.Outcome == ledger.End }) {
			continue
		}
		most++
		last := runs[len(runs)-1]
		if last.Outcome == ledger.End && !h.mayRepeat(last) && !h.Forgotten[id] {
			least++
		}
	}
	return least, most
}

package check

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Limit is what each key of a limit allows.
type Limit struct {
	Concurrency int
	// Rate is how many jobs may begin a second, Burst how many at once; Rate 0 = any number.
	Rate, Burst float64
}

// makesUp is for how long jobs that have waited may make up.
const makesUp = 500 * time.Millisecond

// Limits is C15: of the jobs under a limit no more run at any instant than it allows, and in any
// time no more begin. A run lasts as in Overlap, with the same excuses. When a job began to count is
// known to be between the time at which it was taken and its start.
func Limits(h *History, limits map[string]Limit) Result {
	r := Result{Name: "C15 limits"}
	runs := map[string][]*Run{}
	for _, run := range h.Runs {
		for _, name := range run.Limits {
			r.Looked++
			runs[name] = append(runs[name], run)
		}
	}
	full := 0
	for name, all := range runs {
		rule, _, _ := strings.Cut(name, ":")
		limit := limits[rule]
		full += h.atOnce(&r, name, limit.Concurrency, all)
		if limit.Rate > 0 {
			h.inTime(&r, name, limit, all)
		}
	}
	r.note("%d starts that made a limit full", full)
	return r
}

// atOnce checks how many of the runs, in the order of their starts, there are at a time.
func (h *History) atOnce(r *Result, name string, most int, all []*Run) (full int) {
	var now []*Run
	for _, run := range all {
		now = append(slices.DeleteFunc(now, func(o *Run) bool { return o.Last <= run.At }), run)
		if len(now) == most {
			full++
		}
		if len(now) <= most {
			continue
		}
		known := slices.DeleteFunc(slices.Clone(now), func(o *Run) bool {
			_, frozen := h.explains(o.Proc, o.At, o.Last, Freezes)
			return frozen || h.rolledBack(o) || h.emptied(o)
		})
		if len(known) > most {
			ids, texts := make([]string, len(known)), make([]string, len(known))
			for i, o := range known {
				ids[i], texts[i] = o.ID, o.ID+" in "+o.Proc+" from "+seconds(o.At)+" to "+seconds(o.Last)
			}
			r.fail(ids, "%s: %d jobs at once: %s", name, len(known), strings.Join(texts, ", "))
		}
	}
	return full
}

// inTime checks how many of the runs began in each time that begins when one was taken and ends
// with the start of one.
func (h *History) inTime(r *Result, name string, limit Limit, all []*Run) {
	for _, first := range all {
		from := h.reserved(first)
		later := slices.DeleteFunc(slices.Clone(all), func(o *Run) bool { return h.reserved(o) < from })
		slices.SortFunc(later, func(a, b *Run) int { return cmp.Compare(a.At, b.At) })
		for n, last := range later {
			if h.lostPush(Try{Tried: from, Answered: last.At}) || h.emptiedWithin(from, last.At) {
				break
			}
			may := limit.Burst + limit.Rate*(last.At-from+makesUp).Seconds()
			if float64(n+1) > may+1e-6 {
				r.fail([]string{first.ID, last.ID}, "%s: %d jobs began from %s to %s, not %.1f", name, n+1, seconds(from), seconds(last.At), may)
				return
			}
		}
	}
}

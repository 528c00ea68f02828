package check

import (
	"cmp"
	"slices"
	"time"
)

// byLock returns the runs that held locks, per lock, in the order of their starts.
func (h *History) byLock() map[string][]*Run {
	locks := map[string][]*Run{}
	for _, r := range h.Runs {
		if r.Lock != "" {
			locks[r.Lock] = append(locks[r.Lock], r)
		}
	}
	return locks
}

// Overlap is C2: of the jobs with one lock only one runs at a time. A run lasts until its last
// entry, whatever its outcome. The only excuse is that its process was frozen with its master
// for longer than its lease.
func Overlap(h *History) Result {
	r := Result{Name: "C2 overlap"}
	excused, forgotten, contended := 0, 0, 0
	for lock, runs := range h.byLock() {
		if len(runs) > 1 {
			contended++
		}
		var holder *Run // the run with the latest last entry
		for _, run := range runs {
			r.Looked++
			if holder != nil && run.At < holder.Last {
				if _, ok := h.explains(holder.Proc, holder.At, holder.Last, Freezes); ok {
					excused++
				} else if h.rolledBack(holder) || h.emptied(holder) {
					forgotten++
				} else {
					r.fail([]string{holder.ID, run.ID}, "%s: %s began at %s in %s while %s ran in %s from %s to %s", lock,
						run.ID, seconds(run.At), run.Proc, holder.ID, holder.Proc, seconds(holder.At), seconds(holder.Last))
				}
			}
			if holder == nil || run.Last > holder.Last {
				holder = run
			}
		}
	}
	r.note("%d locks with several holders, %d overlaps of frozen machines", contended, excused)
	if forgotten > 0 {
		r.note("%d of locks that redis lost", forgotten)
	}
	return r
}

// Fence is C3: each later holder of a lock has a larger fencing token.
func Fence(h *History) Result {
	r := Result{Name: "C3 fence"}
	excused := 0
	for lock, runs := range h.byLock() {
		var last *Run
		for _, run := range runs {
			r.Looked++
			if run.Fence <= 0 {
				r.fail([]string{run.ID}, "%s: %s holds the lock without a fencing token", lock, run.ID)
			}
			if last != nil && run.Fence <= last.Fence {
				if _, ok := h.explains(run.Proc, run.At-time.Minute, run.At, Freezes); ok {
					excused++ // it woke up late, and its small number must be refused
					continue
				}
				r.fail([]string{last.ID, run.ID}, "%s: %s has the fence %d after %s had %d", lock, run.ID, run.Fence, last.ID, last.Fence)
			}
			last = run
		}
	}
	if excused > 0 {
		r.note("%d late risers with a smaller one", excused)
	}
	return r
}

// Starvation is C5: without faults, a job of the lowest queue waits no longer than limit,
// although jobs in higher queues wait for locks.
func Starvation(h *History, probes []Probe, limit time.Duration) Result {
	r := Result{Name: "C5 starvation"}
	var waits []time.Duration
	for _, p := range probes {
		if !p.QuietUntilDone {
			continue
		}
		r.Looked++
		wait := p.Ran - p.Pushed
		waits = append(waits, wait)
		if p.Ran == 0 || wait > limit+h.Held(p.Pushed, p.Ran) {
			r.fail([]string{p.ID}, "%s waited %s at a quiet time, ran: %v", p.ID, seconds(wait), p.Ran > 0)
		}
	}
	if len(waits) > 0 {
		r.note("median %s, worst %s", seconds(median(waits)), seconds(slices.Max(waits)))
	}
	return r
}

// Order is the other half of C5: without faults, the jobs of a queue without locks or limits are taken in
// the order in which they were pushed.
func Order(h *History) Result {
	r := Result{Name: "C5 order"}
	type stream struct {
		producer int
		queue    string
	}
	streams := map[stream][]*Push{}
	for _, p := range h.Pushes {
		runs := h.byID[p.ID]
		if p.Quiet && p.Answer == Acknowledged && len(runs) > 0 && runs[0].Lock == "" && runs[0].Limits == nil && runs[0].Reserved > 0 {
			streams[stream{p.Producer, p.Queue}] = append(streams[stream{p.Producer, p.Queue}], p)
		}
	}
	for _, pushes := range streams {
		slices.SortFunc(pushes, func(a, b *Push) int { return cmp.Compare(a.Sequence, b.Sequence) })
		for i := 1; i < len(pushes); i++ {
			r.Looked++
			before, after := pushes[i-1], pushes[i]
			if a, b := h.byID[before.ID][0].Reserved, h.byID[after.ID][0].Reserved; b < a {
				r.fail([]string{before.ID, after.ID}, "%s was pushed after %s and taken %d ms before it", after.ID, before.ID, a-b)
			}
		}
	}
	return r
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return (d[(len(d)-1)/2] + d[len(d)/2]) / 2
}

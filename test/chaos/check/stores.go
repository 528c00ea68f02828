package check

import (
	"slices"
	"time"
)

// Home is C15: each job has run in a process of the store that it was pushed to, and no store
// knows the jobs of another one.
func Home(h *History) Result {
	r := Result{Name: "C15 home"}
	for _, run := range h.Runs {
		r.Looked++
		if h.DaemonOf(run.Proc) == "" {
			r.fail([]string{run.ID}, "%s of queue %s ran in %s, which is no process of this store", run.ID, run.Queue, run.Proc)
		}
		if h.Pushes[run.ID] == nil && h.Schedules[run.ID] == nil && !h.slice(run.ID) {
			r.fail([]string{run.ID}, "%s of queue %s ran, which was not pushed to this store", run.ID, run.Queue)
		}
	}
	return r
}

// leastSpan is how long another store must be broken to show something, and watchedSpan how long
// to show something of each daemon.
const (
	leastSpan   = 500 * time.Millisecond
	watchedSpan = 5 * time.Second
)

// Unstopped is C16: while another store alone is broken, jobs of this one begin all the time, and
// in each daemon. faults are those of all stores.
func Unstopped(h *History, store string, faults []Fault, limit time.Duration) Result {
	r := Result{Name: "C16 unstopped"}
	var worst, all time.Duration
	for _, s := range others(store, faults) {
		r.Looked++
		all += s.To - s.From
		last := s.From
		daemons := map[string]int{}
		judge := func(at time.Duration) {
			gap := at - last
			worst = max(worst, gap)
			if gap > limit+h.Held(last, at) {
				r.fail(nil, "no job began for %s from %s on, while another store was broken", seconds(gap), seconds(last))
			}
			last = at
		}
		for _, run := range h.Runs {
			if run.At > s.From && run.At < s.To {
				judge(run.At)
				daemons[h.DaemonOf(run.Proc)]++
			}
		}
		judge(s.To)
		if s.To-s.From < watchedSpan+h.Held(s.From, s.To) {
			continue
		}
		for _, daemon := range h.Daemons {
			if daemons[daemon] == 0 {
				r.fail(nil, "daemon %s began no job for %s from %s on, while another store was broken", daemon, seconds(s.To-s.From), seconds(s.From))
			}
		}
	}
	r.note("%d times, %s, no job began for %s at most", r.Looked, seconds(all), seconds(worst))
	return r
}

// others returns the times in which other stores were broken, and this one was not.
func others(store string, faults []Fault) (spans []Span) {
	for _, f := range faults {
		if f.Store == "" || f.Store == store {
			continue
		}
		s := Span{f.From, f.To}
		for _, o := range faults {
			if o.Store != "" && o.Store != store && o.Kind != Stall {
				continue
			}
			// What comes later ends it. What has begun before is over when its daemon works again.
			if o.From >= s.From {
				s.To = min(s.To, o.From)
			} else {
				s.From = max(s.From, o.To+max(0, o.Recovered))
			}
		}
		if s.To-s.From >= leastSpan {
			spans = append(spans, s)
		}
	}
	return slices.Clip(spans)
}

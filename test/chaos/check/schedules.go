package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Schedule is a schedule that enqueues a job at each multiple of its period.
type Schedule struct {
	// ID is in each of its jobs; Name is its name in the configuration.
	ID, Name string
	Period   time.Duration
	// From is when the schedule had certainly begun; To is when its removal began. Before
	// MaybeFrom and after MaybeTo it does not tick. All are in ms by the wall clock.
	MaybeFrom, From, To, MaybeTo int64
	// CatchUp is what happens to ticks more than a minute late: all, last or none.
	CatchUp string
	// Reborn are the intervals from a loss of everything in Redis until the schedule had begun
	// again, with the number of its lost jobs.
	Reborn []Rebirth
	// Digest is the queue and the SHA-1 by which deaths of its jobs are counted.
	Digest string
}

// Rebirth is an interval whose ticks may not have counted.
type Rebirth struct {
	From, To int64
	Gone     int
}

// Absence is an interval without any daemon, in ms by the wall clock. The daemons began to
// leave at MaybeFrom and were gone at From. The first was back between To and MaybeTo.
type Absence struct{ MaybeFrom, From, To, MaybeTo int64 }

// grace is the delay after which a tick counts as missed.
const grace = 60_000 // ms

// window is the time between two ticks.
type window struct {
	tick int64
	// least and most bound the number of ticks at its beginning.
	least, most int
	// jobs counts the runs that began in it; may of them may be repetitions or have been
	// repeated.
	jobs, may int
	failed    int
	gone      int
	disturbed bool
}

// clean reports whether exactly the expected jobs ran.
func (w window) clean() bool {
	return !w.disturbed && w.least == 1 && w.most == 1 && w.jobs == 1 && w.may == 0 && w.failed == 0 && w.gone == 0
}

// anchors is how many clean windows in a row show that no earlier jobs are left.
const anchors = 2

// Ticks is C11: each tick of a schedule becomes one job, which runs. Jobs of one schedule are
// equal, so they are counted: between two clean stretches there are as many jobs as ticks. On a busy
// machine a clean stretch may lag behind its ticks by some jobs, which come in a later one.
func Ticks(h *History) Result {
	r := Result{Name: "C11 schedules"}
	ticks, stretches := 0, 0
	for _, s := range schedules(h) {
		windows := h.windows(s)
		var part []window
		calm, owed := 0, 0
		for i, w := range windows {
			part = append(part, w)
			if w.clean() {
				calm++
			} else {
				calm = 0
			}
			ticks += w.least
			if calm < anchors && i+1 < len(windows) {
				continue
			}
			r.Looked += len(part)
			if len(part) > 1 {
				stretches++
			}
			owed = judgeTicks(&r, s, part, owed)
			part = part[:0]
		}
		if owed > 0 {
			r.fail([]string{s.ID}, "schedule %s: %d jobs have not run by %s", s.Name, owed, clock(windows[len(windows)-1].tick))
		}
	}
	r.note("%d ticks of %d schedules, %d stretches that were disturbed", ticks, len(h.Schedules), stretches)
	return r
}

// judgeTicks counts the jobs of a stretch before which owed jobs had not run, and returns how many
// have not run after it.
func judgeTicks(r *Result, s *Schedule, part []window, owed int) int {
	var least, most, sure, atMost int
	for _, w := range part {
		least, most = least+w.least-w.gone, most+w.most
		sure, atMost = sure+w.jobs-w.may, atMost+w.jobs+w.failed
		if sure > most+owed {
			r.fail([]string{s.ID}, "schedule %s: %d jobs have run by %s for %d ticks since %s", s.Name, sure, clock(w.tick), most+owed, clock(part[0].tick))
			return 0
		}
	}
	// Only jobs that are certainly more than the ticks are late ones.
	return max(least-atMost, 0) + max(owed-max(sure-most, 0), 0)
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05") }

// windows returns the intervals between the ticks of a schedule.
func (h *History) windows(s *Schedule) []window {
	period := s.Period.Milliseconds()
	first := (s.MaybeFrom + period - 1) / period * period
	if s.MaybeTo < first {
		return nil
	}
	all := make([]window, (s.MaybeTo-first)/period+1)
	for i := range all {
		tick := first + int64(i)*period
		all[i] = window{tick: tick, most: 1}
		if tick > s.From && tick < s.To {
			all[i].least = 1
		}
		for _, b := range s.Reborn {
			if tick+period > b.From && tick < b.To+period {
				all[i].least, all[i].disturbed = 0, true
			}
		}
	}
	for _, a := range h.Absences {
		miss(all, a, s.CatchUp)
	}
	for _, f := range h.Faults {
		if f.Effect&Kills == 0 {
			continue
		}
		// Jobs of dead processes come when they are recovered, however many ticks later.
		from, to := h.wall(f.From), h.wall(f.To+max(0, f.Recovered))
		for i := range all {
			if all[i].tick+period > from && all[i].tick <= to {
				all[i].disturbed = true
			}
		}
	}
	at := func(ms int64) *window { return &all[min(max((ms-first)/period, 0), int64(len(all)-1))] }
	for _, b := range s.Reborn {
		at(b.From).gone += b.Gone
	}
	lost := 0 // runs that did not end
	for _, run := range h.byID[s.ID] {
		w := at(run.Reserved)
		w.jobs++
		if run.Outcome != ledger.End {
			lost++
		}
		if run.Outcome != ledger.End || h.mayRepeat(run) {
			w.may++
		}
	}
	for _, f := range h.Failed {
		if f.ID != s.ID {
			continue
		}
		if lost--; lost >= 0 {
			continue // one of the lost
		}
		at(h.wall(f.At)).failed++
	}
	return all
}

// miss removes the ticks missed because no daemon ran, except those that are caught up.
func miss(all []window, a Absence, catchUp string) {
	if catchUp == "all" {
		return
	}
	last := -1
	for i := range all {
		w := &all[i]
		switch {
		case w.tick < a.MaybeFrom:
		case w.tick < a.From: // a daemon that had not left yet may have handled it
			w.least, w.disturbed = 0, true
		case w.tick+grace < a.To:
			w.least, w.most, w.disturbed = 0, 0, true
			last = i
		case w.tick+grace < a.MaybeTo:
			w.least, w.disturbed = 0, true
		}
	}
	if catchUp == "last" && last >= 0 {
		all[last].least, all[last].most = 1, 1
	}
}

// mayRepeat reports whether something happened to a run that may have made its job run again, or
// before.
func (h *History) mayRepeat(r *Run) bool {
	later := &Run{Entry: ledger.Entry{At: h.reported(r)}}
	return h.whyAgain(r, later) != "" || h.emptied(r)
}

// wall converts an instant to ms by the wall clock.
func (h *History) wall(at time.Duration) int64 { return (at + h.Epoch).Milliseconds() }

func schedules(h *History) []*Schedule {
	all := make([]*Schedule, 0, len(h.Schedules))
	for _, s := range h.Schedules {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ticked bounds the number of jobs of schedules that Redis may have counted.
func (h *History) ticked() (least, most int64) {
	for id := range h.Schedules {
		for _, run := range h.byID[id] {
			if run.Outcome != ledger.End {
				continue // it has run again, or failed
			}
			most++
			if !h.mayRepeat(run) {
				least++
			}
		}
	}
	for _, f := range h.Failed {
		if h.Schedules[f.ID] != nil {
			least++
			most++
		}
	}
	return least, most
}

// whyTickFailed returns why a job of a schedule may have failed. Its jobs look the same, so any
// fault around that time counts.
func (h *History) whyTickFailed(f Failed) string {
	const about = 2 * time.Second
	for _, t := range h.Faults {
		if t.Effect&(Fails|Kills|Disturbs) != 0 && t.From < f.At+about && t.To > f.At-about {
			return t.Kind
		}
	}
	for _, at := range h.died {
		if at > f.At-about-dying && at < f.At+about {
			return "the death of its process"
		}
	}
	return ""
}

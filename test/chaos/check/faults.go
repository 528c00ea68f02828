package check

import (
	"slices"
	"time"
)

// Stall is the kind of fault that nobody has injected: the machine stood still, and
// with it everything that is measured.
const Stall = "machine stalled"

// stalled is how long the machine stood still between two instants.
func stalled(faults []Fault, from, to time.Duration) (d time.Duration) {
	for _, f := range faults {
		if f.Kind == Stall && f.From < to && f.To > from {
			d += f.To - f.From
		}
	}
	return d
}

// disturbed is how long after f had begun an earlier fault still kept its daemon from Redis,
// as one that a process notices only when its patience ends.
func disturbed(faults []Fault, f Fault) (d time.Duration) {
	for _, o := range faults {
		if o.Effect&Disturbs != 0 && o.From < f.From && (o.Daemon == f.Daemon || o.Daemon == "" || f.Daemon == "") {
			d = max(d, o.To-f.From)
		}
	}
	return d
}

// Bound is how long a daemon may take to get over a kind of fault: Recover, and so many
// times the lease of whom it hits. No daemon has a lease of more than Longest.
type Bound struct {
	Kind    string
	Recover time.Duration
	Leases  float64
	Longest time.Duration
}

// after is how long that is after f, if some more faults were there before it.
func (b Bound) after(f Fault, faults []Fault) time.Duration {
	d := b.Recover + time.Duration(b.Leases*float64(f.Lease))
	if d == 0 {
		return 0
	}
	if b.Leases >= 1 {
		d += graced(faults, f, b.Longest)
	}
	return d + disturbed(faults, f)
}

// graced is by how much longer than its own lease nobody may be taken for dead whom f has
// hit, since Redis was away before: whoever has seen that gives all of them a lease of its own.
func graced(faults []Fault, f Fault, longest time.Duration) (d time.Duration) {
	for _, o := range faults {
		if o.Effect&Disturbs != 0 && o.Daemon == "" && o.From < f.From {
			// Whoever gives it may have been away for so much longer.
			d = max(d, o.To+longest-f.From-f.Lease-disturbed(faults, f))
		}
	}
	return d
}

// Times is one line of the table of recoveries.
type Times struct {
	Kind                                                 string
	Fired, Unnoticed, Unrecovered                        int
	NoticedMedian, NoticedMax, RecoverMedian, RecoverMax time.Duration
}

// Table sums up the faults by kind, in the order of kinds.
func Table(faults []Fault, kinds []string) []Times {
	var table []Times
	for _, kind := range kinds {
		t := Times{Kind: kind}
		var noticed, recovered []time.Duration
		for _, f := range faults {
			if f.Kind != kind {
				continue
			}
			t.Fired++
			if f.Noticed >= 0 {
				noticed = append(noticed, f.Noticed)
			} else {
				t.Unnoticed++
			}
			if f.Recovered >= 0 {
				recovered = append(recovered, f.Recovered)
			} else {
				t.Unrecovered++
			}
		}
		t.NoticedMedian, t.RecoverMedian = median(noticed), median(recovered)
		if len(noticed) > 0 {
			t.NoticedMax = slices.Max(noticed)
		}
		if len(recovered) > 0 {
			t.RecoverMax = slices.Max(recovered)
		}
		table = append(table, t)
	}
	return table
}

// Recovery is C6: after each fault all is well again within the bound of its kind.
// wait is how long the machine had too much to do between two instants; nil: never.
func Recovery(faults []Fault, bounds []Bound, wait func(from, to time.Duration) time.Duration) Result {
	r := Result{Name: "C6 recovery"}
	if wait == nil {
		wait = func(_, _ time.Duration) time.Duration { return 0 }
	}
	limit := map[string]Bound{}
	for _, b := range bounds {
		limit[b.Kind] = b
	}
	for _, f := range faults {
		if f.Kind == Stall {
			continue
		}
		r.Looked++
		bound := limit[f.Kind].after(f, faults)
		if bound > 0 {
			bound += stalled(faults, f.From, f.To+f.Recovered) + min(bound, wait(f.From, f.To+f.Recovered))
		}
		switch {
		case f.Recovered < 0:
			r.fail(nil, "%s (%s) at %s: no recovery", f.Kind, f.Note, seconds(f.From))
		case bound > 0 && f.Recovered > bound:
			r.fail(nil, "%s (%s) at %s: recovered after %s instead of %s", f.Kind, f.Note, seconds(f.From), seconds(f.Recovered), seconds(bound))
		}
	}
	return r
}

// Residue is C7: nothing is left when every daemon has left.
func Residue(left []string) Result {
	r := Result{Name: "C7 residue", Looked: 1}
	for _, what := range left {
		r.fail(nil, "left behind: %s", what)
	}
	return r
}

// Vacuous is C8: a run in which nothing happened has shown nothing.
func Vacuous(h *History, kinds []string, least, recoveries, leastRecoveries int, others []Result) Result {
	r := Result{Name: "C8 not vacuous"}
	for _, kind := range kinds {
		r.Looked++
		n := 0
		for _, f := range h.Faults {
			if f.Kind == kind {
				n++
			}
		}
		if n < least {
			r.fail(nil, "%s happened %d times, not %d", kind, n, least)
		}
	}
	if recoveries < leastRecoveries {
		r.fail(nil, "%d jobs were recovered, not %d", recoveries, leastRecoveries)
	}
	for _, other := range others {
		r.Looked++
		if other.Looked == 0 {
			r.fail(nil, "%s has looked at nothing", other.Name)
		}
	}
	r.note("%d jobs recovered", recoveries)
	return r
}

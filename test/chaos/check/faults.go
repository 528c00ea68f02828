package check

import (
	"slices"
	"time"
)

// Stall is the kind of a fault that the harness did not inject: the machine stopped, with
// everything that is measured.
const Stall = "machine stalled"

// stalled returns how long the machine was stopped between two instants.
func stalled(faults []Fault, from, to time.Duration) (d time.Duration) {
	for _, f := range faults {
		if f.Kind == Stall && f.From < to && f.To > from {
			d += f.To - f.From
		}
	}
	return d
}

// disturbed returns how long after the beginning of f an earlier fault kept its daemon from
// Redis. A process may notice such a fault only when its timeout ends.
func disturbed(faults []Fault, f Fault) (d time.Duration) {
	for _, o := range faults {
		if o.Effect&Disturbs != 0 && o.From < f.From && (o.Daemon == f.Daemon || o.Daemon == "" || f.Daemon == "") {
			d = max(d, o.To-f.From)
		}
	}
	return d
}

// Bound is the time within which a daemon has to recover from a kind of fault: Recover plus a
// number of leases of the daemon that it hits. No lease is longer than Longest.
type Bound struct {
	Kind    string
	Recover time.Duration
	Leases  float64
	Longest time.Duration
}

// after returns the bound for f, including the effect of earlier faults.
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

// graced returns by how much longer than their own lease the processes hit by f must not count
// as dead after an outage of Redis: a master that has noticed it gives every process a lease of
// the master's own length.
func graced(faults []Fault, f Fault, longest time.Duration) (d time.Duration) {
	for _, o := range faults {
		if o.Effect&Disturbs != 0 && o.Daemon == "" && o.From < f.From {
			// The master that gives it may have been cut off that much longer.
			d = max(d, o.To+longest-f.From-f.Lease-disturbed(faults, f))
		}
	}
	return d
}

// Times is one row of the table of recoveries.
type Times struct {
	Kind                                                 string
	Fired, Unnoticed, Unrecovered                        int
	NoticedMedian, NoticedMax, RecoverMedian, RecoverMax time.Duration
}

// Table summarizes the faults by kind, in the order of kinds.
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

// Recovery is C6: after each fault the system recovers within the bound of its kind. wait
// returns how long the machine was overloaded between two instants, which does not count; nil =
// never.
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
			bound += stalled(faults, f.From, f.To+f.Recovered) + wait(f.From, f.To+f.Recovered)
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

// Residue is C7: nothing is left when every daemon has ended.
func Residue(left []string) Result {
	r := Result{Name: "C7 residue", Looked: 1}
	for _, what := range left {
		r.fail(nil, "left behind: %s", what)
	}
	return r
}

// Vacuous is C8: a run in which too little happened has shown nothing.
func Vacuous(faults []Fault, kinds []string, least, recoveries, leastRecoveries int, others []Result) Result {
	r := Result{Name: "C8 not vacuous"}
	for _, kind := range kinds {
		r.Looked++
		n := 0
		for _, f := range faults {
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

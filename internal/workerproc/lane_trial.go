package workerproc

import (
	"slices"
	"time"
)

const (
	// laneSpan is how long each of the two ways is measured at a time, and lanePairs how often both
	// are. One of them has to be better by laneGain, or the process stays with what it has.
	laneSpan  = 20 * time.Millisecond
	lanePairs = 8
	laneGain  = 1.05
	// Spans between two trials: at first, after a change, and at most. Each trial that has changed
	// nothing doubles them.
	laneSoon, laneChanged, laneLate = 10, 25, 400
	// A span is void if its calls took so many times longer than it was to last: the queues were empty, or
	// the process stood still.
	laneGap = 3
)

// laneTrial finds out whether jobs that end at once pass faster with one call at a time or with
// two. A second call keeps the server busy while the process is. Where the server has the calls of others to execute
// anyhow, it only halves the batches, so that each job costs both of them more. A process
// does not see why it waits; so it tries both in turn, and compares the rates.
//
// It gains nothing by taking more calls than others do: the server executes those of all in turn, and
// two of half the size carry no more than one.
type laneTrial struct {
	usual  bool // single, where nothing is known
	single bool // there is one call at a time

	every int // spans from a trial to the next
	left  int // spans until a trial, 0 while one is under way
	odd   int // void spans in a row
	// The span that is being measured: when it began, its answers, those of them that tell
	// nothing, and the jobs of the others. The calls that are under way when it begins still belong to the one before: two
	// of a hundred.
	since time.Time
	calls int
	dull  int
	jobs  int

	rates []float64 // of the spans of a trial; see other
}

// newLaneTrial begins with what is likely: a process with siblings, which mostly take from the same queues, shares
// the server with them.
func newLaneTrial(siblings bool) *laneTrial {
	return &laneTrial{usual: siblings, single: siblings, every: laneSoon, left: laneSoon}
}

// answered takes the answer of a call that has brought jobs. It is telling if there were
// jobs for all threads that had asked, and they end at once.
func (t *laneTrial) answered(now time.Time, jobs int, telling bool) {
	t.calls++
	if telling {
		t.jobs += jobs
	} else {
		t.dull++
	}
	took := now.Sub(t.since)
	if took < laneSpan {
		return
	}
	void := 4*t.dull > t.calls || took > laneGap*laneSpan
	rate := float64(t.jobs) / took.Seconds()
	t.begin(now)
	t.spent(rate, void)
}

// begin begins a span.
func (t *laneTrial) begin(now time.Time) { t.since, t.calls, t.dull, t.jobs = now, 0, 0, 0 }

// spent takes what a span has shown.
func (t *laneTrial) spent(rate float64, void bool) {
	if void {
		if t.trying() {
			t.end(t.single != t.other())
		}
		if t.odd++; t.odd > 1 {
			t.single = t.usual // what was found before no longer tells anything
		}
		return
	}
	t.odd = 0
	if !t.trying() {
		t.left--
		return
	}
	single := t.single != t.other() // what it had before the trial
	if t.rates = append(t.rates, rate); len(t.rates) < 2*lanePairs {
		t.single = single != t.other()
		return
	}
	if t.gain() < laneGain {
		t.every = min(2*t.every, laneLate)
		t.end(single)
		return
	}
	t.every = laneChanged
	t.end(!single)
}

// trying reports whether a trial is under way.
func (t *laneTrial) trying() bool { return t.left == 0 }

// other reports whether the span after those that have been measured belongs to the way that is on trial. Both
// have every second place as often as the other, because rates change with time, too.
func (t *laneTrial) other() bool { return len(t.rates)%4 == 1 || len(t.rates)%4 == 2 }

// gain returns by how much the way on trial was better: the median of all pairs of spans.
func (t *laneTrial) gain() float64 {
	gains := make([]float64, 0, lanePairs)
	for i := 0; i < len(t.rates); i += 2 {
		old, tried := t.rates[i], t.rates[i+1]
		if i%4 == 2 {
			old, tried = tried, old
		}
		gains = append(gains, tried/old)
	}
	slices.Sort(gains)
	return (gains[lanePairs/2-1] + gains[lanePairs/2]) / 2
}

// end ends a trial.
func (t *laneTrial) end(single bool) { t.left, t.rates, t.single = t.every, t.rates[:0], single }

package history

import (
	"strings"
	"time"
)

// Outcome is how a job ended, for counting.
type Outcome uint8

// The parts of an outcome.
const (
	// Processed: counted in Redis's counter of processed jobs.
	Processed Outcome = 1 << iota
	// Failed: also counted in Redis's counter of failed jobs.
	Failed
	// Unrun: returned to its queue as if it had not run, or dropped.
	Unrun
	// Interrupted: processed; has saved its progress and pushed the rest.
	Interrupted
)

// Unknown is an unknown time.
const Unknown time.Duration = -1

// Sum is what is counted of jobs.
type Sum struct {
	// Runs are the jobs in Redis's counter of processed jobs, Failed the failed ones among them.
	// Unrun are jobs that returned to their queue, and dropped ones, which are also in Runs.
	Runs, Failed, Unrun uint64
	// Interrupted are jobs in Runs that have pushed the rest of their work.
	Interrupted uint64
	// Micros is the time in handlers, in microseconds.
	Micros uint64
	Run    RunTimes
	Wait   WaitTimes
}

// Add counts one job.
func (s *Sum) Add(out Outcome, ran, waited time.Duration) {
	e := endOf(out, ran, waited)
	s.count(&e)
}

// end is the end of a job with the buckets that count it; a negative bucket is none.
type end struct {
	out       Outcome
	run, wait int
	micros    uint64
}

func endOf(out Outcome, ran, waited time.Duration) end {
	e := end{out: out, run: -1, wait: -1}
	if ran >= 0 {
		e.run, e.micros = runBucket(ran), uint64(ran/time.Microsecond)
	}
	if waited >= 0 {
		e.wait = waitBucket(waited)
	}
	return e
}

func (s *Sum) count(e *end) {
	s.Runs += uint64(e.out & Processed)
	s.Failed += uint64(e.out & Failed >> 1)
	s.Unrun += uint64(e.out & Unrun >> 2)
	s.Interrupted += uint64(e.out & Interrupted >> 3)
	s.Micros += e.micros
	if uint(e.run) < RunBuckets {
		s.Run[e.run]++
	}
	if uint(e.wait) < WaitBuckets {
		s.Wait[e.wait]++
	}
}

// Merge adds another sum.
func (s *Sum) Merge(other *Sum) {
	s.Runs, s.Failed, s.Unrun = add(s.Runs, other.Runs), add(s.Failed, other.Failed), add(s.Unrun, other.Unrun)
	s.Interrupted, s.Micros = add(s.Interrupted, other.Interrupted), add(s.Micros, other.Micros)
	for i, n := range other.Run {
		s.Run[i] = add(s.Run[i], n)
	}
	for i, n := range other.Wait {
		s.Wait[i] = add(s.Wait[i], n)
	}
}

// Empty reports whether nothing was counted.
func (s *Sum) Empty() bool { return *s == Sum{} }

// tally is the sum of one name; unused is for how many reports it was empty.
type tally struct {
	Sum
	name   string
	unused int
}

// Sums counts the jobs of one worker process by class and by queue, for one goroutine. The zero value is ready.
type Sums struct {
	classes, queues names
}

// names are the sums of one kind. The last name is cached: consecutive jobs often have one class
// and one queue.
type names struct {
	sums map[string]*tally
	last string
	at   *tally
}

func (n *names) of(name string) *tally {
	if n.at != nil && n.last == name {
		return n.at
	}
	t := n.sums[name]
	if t == nil {
		t = n.place(name)
	}
	if name == t.name { // else it counts under another name
		n.last, n.at = t.name, t
	}
	return t
}

func (n *names) place(name string) *tally {
	if n.sums == nil {
		n.sums = map[string]*tally{}
	}
	name = bounded(name)
	if _, there := n.sums[name]; !there && len(n.sums) >= maxLocal {
		name = Other
	}
	t := n.sums[name]
	if t == nil {
		t = &tally{name: strings.Clone(name)} // do not retain a large payload
		n.sums[t.name] = t
	}
	return t
}

func (n *names) forget(name string) {
	delete(n.sums, name)
	n.last, n.at = "", nil
}

// Add counts the end of a job; unknown times are Unknown.
func (s *Sums) Add(class, queue string, out Outcome, ran, waited time.Duration) {
	c, q := s.classes.of(class), s.queues.of(queue)
	e := endOf(out, ran, waited)
	c.count(&e)
	q.count(&e)
}

func (s *Sums) of(kind Kind) *names {
	if kind == Class {
		return &s.classes
	}
	return &s.queues
}

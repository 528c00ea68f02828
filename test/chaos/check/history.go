// Package check judges a run of the chaos harness: what the ledger, the logs of
// the producers and the last look at Redis say together. Each check is a function
// of a History, so that tests can show that each can fail.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Answer is what a producer knows of a push.
type Answer int

// What a push may have come to.
const (
	// Ambiguous: it may or may not have been carried out.
	Ambiguous Answer = iota
	Acknowledged
	// Refused: certainly not carried out.
	Refused
)

// Push is one job as its producer logged it. Times are CLOCK_BOOTTIME.
type Push struct {
	ID    string
	Queue string
	// Expect is what the job does: one of the Expect words.
	Expect string
	Answer Answer
	// Tried and Answered are when the push began and when its answer came.
	Tried, Answered time.Duration
	// Producer and Sequence order the pushes of one producer to one queue.
	Producer, Sequence int
	// Digest is the queue and the SHA-1 under which deaths of the job are counted.
	Digest string
	// Quiet: pushed while no fault was, and was to be, for a while.
	Quiet bool
	// More are further pushes of the same payload, byte by byte. Unique: its queue
	// holds an equal payload once.
	More   []Try
	Unique bool
	// Due is before when it must not run, in ms by Redis's clock, DueAt the same by
	// CLOCK_BOOTTIME; 0 = it was to run at once, or nobody has said.
	Due   int64
	DueAt time.Duration
	// Fails is how many of its runs fail, if its class has a retry, of at most Attempts;
	// Waits are the shortest times between them. Attempts is 0 without a retry.
	Fails, Attempts int
	Waits           []time.Duration
}

// What a job does in the end, if nothing befalls it.
const (
	ExpectDone    = "done"
	ExpectPanic   = "Resqued::Panic"
	ExpectError   = "Error"
	ExpectInvalid = "Resqued::InvalidPayload"
	ExpectUnknown = "Resqued::UnknownClass"
	// ExpectDeath: it kills its process at every attempt.
	ExpectDeath = "Resque::DirtyExit"
)

// Run is one execution of a job's code, put together from the ledger.
type Run struct {
	ledger.Entry // its start

	// Outcome is how the code ended; empty: nobody has noted it.
	Outcome string
	// Ended is when that was noted, Last when anything of the run was heard last.
	Ended, Last time.Duration
	// Units are the units that it has done, if it is a slice of the long job Long;
	// Completed is when it had done the last, 0 = it has not.
	Units     []ledger.Entry
	Completed time.Duration
}

// Fault is one fault that was injected.
type Fault struct {
	Kind string
	// Daemon is whom it hit; empty = everybody.
	Daemon string
	// Procs are the worker processes that it hit.
	Procs []string
	// From and To are when it began and when its cause was gone again.
	From, To time.Duration
	// Noticed and Recovered are how long after From (for what lasts: after To) the
	// daemon showed that it knew, and that all was well again. Negative: never.
	Noticed, Recovered time.Duration
	Effect             Effect
	// Lease is how long worker processes live in Redis without a sign of life: those of
	// Daemon, or the longest of all.
	Lease time.Duration
	// Aborted is a USR1 that came before: its jobs in hand were to be killed.
	Aborted *Aborted
	// Note is a parameter for people: how long, which command.
	Note string
}

// Effect is what a fault may bring about and still be explained.
type Effect int

// Effects, to be combined.
const (
	// Kills: its processes die, their jobs run again.
	Kills Effect = 1 << iota
	// Freezes: its processes stop together with whoever watches them, so that they
	// may go on for a moment after their leases were judged.
	Freezes
	// Fences: its daemon is cut off for longer than the lease.
	Fences
	// Fails: the jobs in hand of its processes are killed and so fail.
	Fails
	// Disturbs: locks may not be extended in time, so that their holders are stopped.
	Disturbs
)

// Span is a time.
type Span struct{ From, To time.Duration }

// Probe is a small job in the lowest queue.
type Probe struct {
	ID             string
	Pushed, Ran    time.Duration
	QuietUntilDone bool
}

// Failed is an entry of the failed list.
type Failed struct {
	ID, Exception, Error, Queue string
	At                          time.Duration
	// Attempts is how often a job with a retry has run.
	Attempts int
}

// History is everything that is known in the end.
type History struct {
	Pushes map[string]*Push
	// Runs in the order of their starts.
	Runs   []*Run
	Faults []Fault
	Failed []Failed
	// Places are the jobs still in Redis, each with the keys that hold it.
	Places map[string][]string
	// Taken are jobs that foreign workers have popped; MaybeTaken is how many pops
	// of theirs had no answer, from SharedQueue.
	Taken       map[string]bool
	MaybeTaken  int
	SharedQueue string
	// Processed and FailedStat are Resque's totals, with those that Redis has lost
	// as a whole.
	Processed, FailedStat int64
	// Losses are spans of writes that Redis has lost, Emptied when it lost everything.
	Losses  []Loss
	Emptied []time.Duration
	// Forgotten are the jobs that were in Redis when it lost everything.
	Forgotten map[string]bool
	// Silent are worker processes that their masters have killed because they were not
	// heard of, and when that was.
	Silent map[string]time.Duration
	// Killed are worker processes that ended with killed jobs that did not stop.
	Killed map[string]time.Duration
	// Longs are the runs of long jobs by their ids, Schedules the schedules by the ids in
	// their jobs.
	Longs     map[string]*Long
	Schedules map[string]*Schedule
	// Absences are the times without any daemon.
	Absences []Absence
	// Epoch is CLOCK_BOOTTIME's zero by the wall clock.
	Epoch time.Duration
	// Quiet are the times when nothing was broken, and nothing waited from before.
	Quiet []Span
	// Starved are the times when the machine had more to do than it could.
	Starved []Span
	// DaemonOf tells whose worker process it is.
	DaemonOf func(proc string) string

	byRun map[string]*Run
	byID  map[string][]*Run
	died  map[string]time.Duration // worker processes that killed themselves
	// slices are the runs of slices, by the id of the long job.
	slices map[string][]*Run
}

// NewHistory returns an empty one.
func NewHistory() *History {
	return &History{
		Pushes: map[string]*Push{}, Places: map[string][]string{}, Taken: map[string]bool{},
		Forgotten: map[string]bool{}, Longs: map[string]*Long{}, Schedules: map[string]*Schedule{},
		DaemonOf: func(string) string { return "" },
		byRun:    map[string]*Run{}, byID: map[string][]*Run{}, died: map[string]time.Duration{},
		slices: map[string][]*Run{},
	}
}

// Add takes lines of the ledger; those of one process must come in their order.
func (h *History) Add(entries []ledger.Entry) {
	for _, e := range entries {
		r := h.byRun[e.Run]
		if r == nil {
			r = &Run{Entry: e}
			h.byRun[e.Run] = r
			h.Runs = append(h.Runs, r)
			h.byID[r.ID] = append(h.byID[r.ID], r)
		}
		r.Last = max(r.Last, e.At)
		switch e.What {
		case ledger.Start, ledger.Act:
			continue
		case ledger.Unit, ledger.Complete:
			h.addUnit(r, e)
			continue
		case ledger.Die:
			if at, ok := h.died[r.Proc]; !ok || e.At < at {
				h.died[r.Proc] = e.At
			}
		}
		r.Outcome, r.Ended = e.What, e.At
	}
}

// Sort puts the runs in the order of their starts, which the checks rely on.
func (h *History) Sort() {
	byStart := func(a, b *Run) int { return cmp.Compare(a.At, b.At) }
	slices.SortStableFunc(h.Runs, byStart)
	for _, runs := range h.byID {
		slices.SortStableFunc(runs, byStart)
	}
	for _, runs := range h.slices {
		slices.SortStableFunc(runs, byStart)
	}
}

// Done says whether the job's code came to a good end.
func (h *History) Done(id string) bool {
	return slices.ContainsFunc(h.byID[id], func(r *Run) bool { return r.Outcome == ledger.End })
}

// explains finds a fault with an effect that hit a process or its daemon between
// two instants.
func (h *History) explains(proc string, from, to time.Duration, effect Effect) (Fault, bool) {
	for _, f := range h.Faults {
		if a := f.Aborted; a != nil && effect&Fails != 0 && a.From <= to && a.To >= from && slices.Contains(a.Procs, proc) {
			return f, true
		}
		if f.Effect&effect == 0 || f.To < from || f.From > to {
			continue
		}
		if slices.Contains(f.Procs, proc) || len(f.Procs) == 0 && (f.Daemon == "" || f.Daemon == h.DaemonOf(proc)) {
			return f, true
		}
	}
	return Fault{}, false
}

// Result is what a check has found.
type Result struct {
	// Name is the check: C1 conservation…
	Name string
	// Looked is how many things were looked at; a check that looked at none has
	// shown nothing.
	Looked int
	// Notes are figures for the report.
	Notes []string
	// Violations fail the run.
	Violations []Violation
}

// Violation is a thing that must not be.
type Violation struct {
	Text string
	// IDs are the jobs that it is about, so that their evidence can be kept.
	IDs []string
}

func (r *Result) fail(ids []string, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{fmt.Sprintf(format, args...), ids})
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// String is one line of the report, and one for each of the first violations.
func (r Result) String() string {
	verdict := "ok"
	if len(r.Violations) > 0 {
		verdict = fmt.Sprintf("FAILED: %d violations", len(r.Violations))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %-8s %6d looked at", r.Name, verdict, r.Looked)
	for _, n := range r.Notes {
		b.WriteString("; " + n)
	}
	for i, v := range r.Violations {
		if i == 20 {
			fmt.Fprintf(&b, "\n    … and %d more", len(r.Violations)-i)
			break
		}
		b.WriteString("\n    " + v.Text)
	}
	return b.String()
}

// seconds prints an instant or a span as people compare them.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

// Package check judges a run of the chaos harness by the ledger, the logs of the producers and
// the final state of Redis. Each check is a function of a History, so that tests can show that
// each can fail.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// Answer is what a producer knows about the outcome of a push.
type Answer int

// The outcomes of a push.
const (
	// Ambiguous: the push may or may not have been executed.
	Ambiguous Answer = iota
	Acknowledged
	// Refused: certainly not executed.
	Refused
)

// Push is one job as logged by its producer. Times are CLOCK_BOOTTIME.
type Push struct {
	ID    string
	Queue string
	// Expect is the expected outcome of the job: one of the Expect constants.
	Expect string
	Answer Answer
	// Tried and Answered are when the push began and when its answer came.
	Tried, Answered time.Duration
	// Producer and Sequence order the pushes of one producer to one queue.
	Producer, Sequence int
	// Digest is the queue and the SHA-1 by which deaths of the job are counted.
	Digest string
	// Quiet is set if the job was pushed when no fault was active or planned for a while.
	Quiet bool
	// More are further pushes of the same payload. Unique is set if its queue holds equal
	// payloads only once.
	More   []Try
	Unique bool
	// Due is the time before which it must not run, in ms by Redis's clock; DueAt is the same by
	// CLOCK_BOOTTIME. 0 = at once, or unknown.
	Due   int64
	DueAt time.Duration
	// Fails is how many of its runs fail, of at most Attempts. Waits are the minimum times
	// between them. Attempts is 0 without a retry.
	Fails, Attempts int
	Waits           []time.Duration
}

// Expected outcomes of a job without faults.
const (
	ExpectDone    = "done"
	ExpectPanic   = "Resqued::Panic"
	ExpectError   = "Error"
	ExpectInvalid = "Resqued::InvalidPayload"
	ExpectUnknown = "Resqued::UnknownClass"
	// ExpectArgument: its Ruby class raises that.
	ExpectArgument = "ArgumentError"
	// ExpectDeath: it kills its process at every attempt.
	ExpectDeath = "Resque::DirtyExit"
)

// Run is one execution of a job's code, as reconstructed from the ledger.
type Run struct {
	ledger.Entry // its start

	// Outcome is how the code ended; "" if that was not noted.
	Outcome string
	// Ended is when that was noted; Last is the time of the last entry of the run.
	Ended, Last time.Duration
	// Units are the units that a slice of the long job Long has done. Completed is when it had
	// done the last unit, or 0.
	Units     []ledger.Entry
	Completed time.Duration
}

// Fault is one fault that was injected.
type Fault struct {
	Kind string
	// Daemon is the daemon that it hit; "" = all.
	Daemon string
	// Procs are the worker processes that it hit.
	Procs []string
	// From and To are when the fault began and when its cause had ended.
	From, To time.Duration
	// Noticed and Recovered are how long after From (for lasting faults: after To) the daemon
	// logged the fault, and everything worked again. Negative = never.
	Noticed, Recovered time.Duration
	Effect             Effect
	// Runner is the pid of the runner that it hit; only that runner's job may run again or fail.
	Runner int
	// Lease is how long worker processes live in Redis without a beat: Daemon's lease, or the
	// longest of all.
	Lease time.Duration
	// Aborted is an earlier USR1, which was to kill the jobs in hand.
	Aborted *Aborted
	// Note is a parameter for the report, for example a duration or a command.
	Note string
}

// Effect is a consequence that a fault explains.
type Effect int

// Effects, which can be combined.
const (
	// Kills: its processes die, and their jobs run again.
	Kills Effect = 1 << iota
	// Freezes: its processes are stopped with their master, so they may run for a moment after
	// their leases have expired.
	Freezes
	// Fences: its daemon is cut off for longer than the lease.
	Fences
	// Fails: the jobs in hand of its processes are killed and therefore fail.
	Fails
	// Disturbs: locks may not be extended in time, so jobs that hold them are stopped.
	Disturbs
)

// Span is an interval of time.
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
	// Attempts is the number of runs of a job with a retry.
	Attempts int
}

// History is everything that is known at the end of a run.
type History struct {
	Pushes map[string]*Push
	// Runs are in the order of their starts.
	Runs   []*Run
	Faults []Fault
	Failed []Failed
	// Places maps the jobs still in Redis to the keys that hold them.
	Places map[string][]string
	// Taken are the jobs that foreign workers have popped. MaybeTaken counts their pops from
	// SharedQueue without an answer.
	Taken       map[string]bool
	MaybeTaken  int
	SharedQueue string
	// Processed and FailedStat are Resque's counters, plus those that Redis had when it lost
	// everything.
	Processed, FailedStat int64
	// Losses are intervals whose writes Redis has lost; Emptied are times within which it lost
	// everything.
	Losses  []Loss
	Emptied []Span
	// Forgotten are the jobs that Redis held when it lost everything.
	Forgotten map[string]bool
	// Silent maps worker processes that their masters killed for missing beats to the time of
	// the kill.
	Silent map[string]time.Duration
	// Killed are worker processes that ended because killed jobs did not stop.
	Killed map[string]time.Duration
	// Longs are the runs of long jobs by id; Schedules are the schedules by the ids in their
	// jobs.
	Longs     map[string]*Long
	Schedules map[string]*Schedule
	// Absences are the times without any daemon.
	Absences []Absence
	// Epoch is the wall-clock time of CLOCK_BOOTTIME's zero.
	Epoch time.Duration
	// Quiet are the intervals without faults and without a backlog from before.
	Quiet []Span
	// Starved are the intervals in which the machine was overloaded.
	Starved []Span
	// DaemonOf returns the daemon to which a worker process belongs.
	DaemonOf func(proc string) string

	byRun map[string]*Run
	byID  map[string][]*Run
	died  map[string]time.Duration // worker processes that killed themselves
	// slices are the runs of slices by the id of the long job.
	slices map[string][]*Run
}

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{
		Pushes: map[string]*Push{}, Places: map[string][]string{}, Taken: map[string]bool{},
		Forgotten: map[string]bool{}, Longs: map[string]*Long{}, Schedules: map[string]*Schedule{},
		DaemonOf: func(string) string { return "" },
		byRun:    map[string]*Run{}, byID: map[string][]*Run{}, died: map[string]time.Duration{},
		slices: map[string][]*Run{},
	}
}

// Add adds entries of the ledger, in order for each process.
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
			if r.byRunner() {
				break // its worker process lives on
			}
			if at, ok := h.died[r.Proc]; !ok || e.At < at {
				h.died[r.Proc] = e.At
			}
		}
		r.Outcome, r.Ended = e.What, e.At
	}
}

// Sort sorts the runs by their starts, as the checks require.
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

// Done reports whether the job's code ended successfully.
func (h *History) Done(id string) bool {
	return slices.ContainsFunc(h.byID[id], func(r *Run) bool { return r.Outcome == ledger.End })
}

// explains returns a fault with the given effect that hit a process or its daemon between two
// instants, if any.
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

// byRunner reports whether a runner performs the job.
func (r *Run) byRunner() bool { return strings.HasPrefix(r.Class, "Runner") }

// runnerDeath returns what has ended the runner of a run before an instant; "" = nothing.
func (h *History) runnerDeath(r *Run, until time.Duration) string {
	if !r.byRunner() {
		return ""
	}
	if r.Outcome == ledger.Die {
		return "the death of its runner"
	}
	for _, f := range h.Faults {
		if f.Runner == r.PID && f.From >= r.At && f.From <= until {
			return f.Kind
		}
	}
	return ""
}

// Result is the outcome of a check.
type Result struct {
	// Name is the name of the check: "C1 conservation", …
	Name string
	// Looked is how many things were checked. A check with 0 has shown nothing.
	Looked int
	// Notes are figures for the report.
	Notes []string
	// Violations fail the run.
	Violations []Violation
}

// Violation is a violated invariant.
type Violation struct {
	Text string
	// IDs are the jobs concerned, whose evidence to keep.
	IDs []string
}

func (r *Result) fail(ids []string, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{fmt.Sprintf(format, args...), ids})
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// String returns one line for the report, and one for each of the first violations.
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

// seconds formats an instant or a duration in seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

package proc

import "time"

// Protocol is the version of the messages below. A worker says it in hello; the
// master ends a worker that speaks another one (they are the same binary, so
// this only happens by accident).
const Protocol = 1

// The kinds of messages. Unknown kinds and fields are ignored by both sides.
const (
	// Worker to master.
	Hello    = "hello"    // Protocol, PID: the first message, after signal handling is installed
	Ready    = "ready"    // RSS, LockEnd: the worker is registered in Redis and takes jobs
	Beat     = "beat"     // State, Busy, Full, Done, RSS, Kills, Doomed, LockEnd, Away, Refused, Trouble: every BeatEvery
	Ends     = "ends"     // the number of jobs will be used up in about Lead
	Retires  = "retiring" // Reason: quota, tainted: takes no new job; age, memory (RSS, MaxRSS): goes on until Retire
	Apart    = "apart"    // Suspects, On (one was taken): jobs that have to run alone wait
	Found    = "found"    // there were jobs for every idle thread, so there may be more
	Killing  = "killing"  // Tokens, Kills: these jobs were told to stop, by the last KillJobs or otherwise
	Tainted  = "tainted"  // Busy, Tokens, Again, Reason: so many jobs ignore their kill, of these Tokens shall fail and Again run again; end this process
	Counted  = "counted"  // Sums: the ends of jobs, for the history; a second apart at least, and before Bye
	Happened = "happened" // Cause (a kind of event), Reason, Busy: something that people may want to know of
	Bye      = "bye"      // Done, Reason ("", Empty, Listed, Untidy): the last message of an orderly leave

	// Master to worker.
	Welcome  = "welcome" // Proc, Slot, Slots, State, Alone, Lead: the answer to hello
	SetState = "state"   // State: running, waiting, paused, draining
	KillJobs = "kill"    // all jobs: Grace, Reason, Exit, Cause, Requeue
	Poller   = "poller"  // On: look for jobs at every interval; the others now and then
	Look     = "look"    // look for jobs now: another process has found more than it can take
	Retire   = "retire"  // Reason: drain and leave, because a successor is there
)

// BesideProtocol is the version of the messages between a master and the one that takes its
// place. They may be of different versions of the program: a change of what is there already
// needs another number.
const BesideProtocol = 1

// The kinds of messages between two masters, besides Hello, Welcome and SetState.
const (
	// From the new one to the old one.
	Failed   = "failed"    // Reason: why it cannot work, as far as it knows
	Up       = "up"        // its first worker process is ready
	InCharge = "in charge" // it has taken what Charge has handed to it
	Filled   = "filled"    // Slots have a worker process of its own that is ready; On: these are all
	Signal   = "signal"    // Reason: the name of a signal that it has received
	// And KillJobs, with Cause, Requeue, Exit: its drain has taken too long.

	// From the old one to the new one.
	Charge = "charge" // State: from now on it is the main one
	Next   = "next"   // it may fill one slot more
)

// Reasons of Bye.
const (
	// Empty: there was nothing to do any more (until-empty).
	Empty = "empty"
	// Listed: Redis still knows the process, but no job of it.
	Listed = "listed"
	// Untidy: Redis still knows the process, and perhaps jobs of it. Only the
	// master can clean up.
	Untidy = "untidy"
)

// BeatEvery is how often a worker reports to its master over the socketpair, at
// least.
const BeatEvery = 2 * time.Second

// ReportEvery is how often it does where job locks last for lock: before these run
// out, a master has to notice that it says nothing any more.
func ReportEvery(lock time.Duration) time.Duration {
	return min(BeatEvery, max(lock/18, BeatEvery/8))
}

// Message is one packet between a master and a worker process, as JSON.
type Message struct {
	Type     string   `json:"t"`
	Protocol int      `json:"protocol,omitempty"`
	PID      int      `json:"pid,omitempty"`
	Proc     string   `json:"proc,omitempty"`
	Slot     int      `json:"slot,omitempty"`
	Slots    int      `json:"slots,omitempty"`
	State    string   `json:"state,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Tokens   []string `json:"tokens,omitempty"`
	// Again are the tokens of jobs that go back to their queues without a death.
	Again []string      `json:"again,omitempty"`
	Grace time.Duration `json:"grace,omitempty"`
	// Exit: the process shall leave after the kill (TERM), else go on (USR1).
	Exit bool `json:"exit,omitempty"`
	// Cause is why no person but a limit ends the jobs, in words for their records; empty =
	// a person does.
	Cause string `json:"cause,omitempty"`
	// Requeue: the jobs go back to their queues, and have not failed. Such a kill is not
	// among Kills.
	Requeue bool `json:"requeue,omitempty"`
	// On: the process is the poller, else it no longer is.
	On bool `json:"on,omitempty"`
	// Alone: the process is there for one job that may have killed its process.
	Alone bool `json:"alone,omitempty"`
	// Lead is how long a start takes, from the spawn to Ready.
	Lead time.Duration `json:"lead,omitempty"`
	// Suspects is how many such jobs wait in the queues of the process.
	Suspects int `json:"suspects,omitempty"`
	Busy     int `json:"busy,omitempty"`
	// Full: what performs the jobs has no room for more, although threads may be idle.
	Full bool  `json:"full,omitempty"`
	Done int   `json:"done,omitempty"`
	RSS  int64 `json:"rss,omitempty"`
	// MaxRSS is the memory above which the process shall be replaced.
	MaxRSS int64 `json:"max_rss,omitempty"`
	// Kills counts the KillJobs that have come, Doomed the jobs told to stop whose
	// end is not recorded yet.
	Kills  int `json:"kills,omitempty"`
	Doomed int `json:"doomed,omitempty"`
	// Away is for how long Redis has not answered, or has refused (Refused); 0 = it answers.
	// Trouble is its answer, or what became of the connection.
	Away    time.Duration `json:"away,omitempty"`
	Refused bool          `json:"refused,omitempty"`
	Trouble string        `json:"trouble,omitempty"`
	// Sums are counts of jobs; see history.Sums.Take.
	Sums []byte `json:"sums,omitempty"`
	// LockEnd is when, by BootTime, the process must be gone if nothing is heard of
	// it any more: its job locks expire soon after.
	LockEnd time.Duration `json:"lock_end,omitempty"`
}

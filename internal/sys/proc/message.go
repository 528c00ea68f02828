package proc

import "time"

// Protocol is the version of the messages below. A worker sends it in hello, and the master ends
// a worker with another one. Both are the same binary, so that only happens by accident.
const Protocol = 1

// Kinds of messages. Both sides ignore unknown kinds and fields.
const (
	// Worker to master.
	Hello    = "hello"    // Protocol, PID: the first message, after signal handling is installed
	Ready    = "ready"    // RSS, LockEnd: the worker is registered in Redis and takes jobs
	Beat     = "beat"     // State, Busy, Full, Done, RSS, Kills, Doomed, LockEnd, Away, Refused, Trouble: every BeatEvery
	Ends     = "ends"     // the number of jobs will be used up in about Lead
	Retires  = "retiring" // Reason: quota, tainted: takes no new job; age, memory (RSS, MaxRSS): works until Retire
	Apart    = "apart"    // Suspects, On (one was taken): jobs that have to run alone are waiting
	Found    = "found"    // all idle threads got a job, so more may be waiting
	Killing  = "killing"  // Tokens, Kills: these jobs were told to stop, by the last KillJobs or otherwise
	Tainted  = "tainted"  // Busy, Tokens, Again, Reason: Busy jobs ignore their kill; Tokens shall fail, Again run again; end this process
	Counted  = "counted"  // Sums: the ends of jobs, for the history; at least a second apart, and before Bye
	Happened = "happened" // Cause (a kind of event), Reason, Busy: an event to show to people
	Bye      = "bye"      // Done, Reason ("", Empty, Listed, Untidy): the last message of an orderly exit

	// Master to worker.
	Welcome  = "welcome" // Proc, Slot, Slots, State, Alone, Lead: the answer to hello
	SetState = "state"   // State: running, waiting, paused, draining
	KillJobs = "kill"    // for all jobs: Grace, Reason, Exit, Cause, Requeue
	Poller   = "poller"  // On: poll at every interval; the other processes rarely poll
	Look     = "look"    // look for jobs now: another process has found more than it can take
	Retire   = "retire"  // Reason: drain and leave, because a successor is ready
)

// BesideProtocol is the version of the messages between a master and its replacement, which may
// be of different program versions. Changing an existing message needs another number.
const BesideProtocol = 1

// Kinds of messages between two masters, in addition to Hello, Welcome and SetState.
const (
	// New master to old master.
	Failed   = "failed"    // Reason: why it cannot work, as far as it knows
	Up       = "up"        // its first worker process is ready
	InCharge = "in charge" // it has taken over what Charge handed to it
	Filled   = "filled"    // its own worker processes in Slots are ready; On: these are all
	Signal   = "signal"    // Reason: the name of a signal that it has received
	// Also KillJobs, with Cause, Requeue and Exit: its drain has taken too long.

	// Old master to new master.
	Charge = "charge" // State: from now on it is the main one
	Next   = "next"   // it may fill one more slot
)

// Reasons of Bye.
const (
	// Empty: nothing was left to do (until-empty).
	Empty = "empty"
	// Listed: Redis still has the process, but no job of it.
	Listed = "listed"
	// Untidy: Redis still has the process and perhaps jobs of it. Only the master can clean up.
	Untidy = "untidy"
)

// BeatEvery is the longest time between two reports of a worker to its master.
const BeatEvery = 2 * time.Second

// ReportEvery is that time with job locks of duration lock: the master has to notice a silent
// worker before its locks expire.
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
	// Again are the tokens of jobs that return to their queues without counting a death.
	Again []string      `json:"again,omitempty"`
	Grace time.Duration `json:"grace,omitempty"`
	// Exit: the process leaves after the kill (TERM); otherwise it continues (USR1).
	Exit bool `json:"exit,omitempty"`
	// Cause is the limit that ends the jobs, in words for their records; empty = a person ends
	// them.
	Cause string `json:"cause,omitempty"`
	// Requeue: the jobs return to their queues and have not failed. Kills does not count such a
	// kill.
	Requeue bool `json:"requeue,omitempty"`
	// On: the process is the poller; false = it no longer is.
	On bool `json:"on,omitempty"`
	// Alone: the process exists for one job that may have killed its process.
	Alone bool `json:"alone,omitempty"`
	// Lead is how long a start takes, from the spawn to Ready.
	Lead time.Duration `json:"lead,omitempty"`
	// Suspects is how many such jobs wait in the process's queues.
	Suspects int `json:"suspects,omitempty"`
	Busy     int `json:"busy,omitempty"`
	// Full: what performs the jobs has no room for more, although threads may be idle.
	Full bool  `json:"full,omitempty"`
	Done int   `json:"done,omitempty"`
	RSS  int64 `json:"rss,omitempty"`
	// MaxRSS is the memory limit above which the process is replaced.
	MaxRSS int64 `json:"max_rss,omitempty"`
	// Kills counts the received KillJobs. Doomed counts jobs that were told to stop and whose
	// end is not recorded yet.
	Kills  int `json:"kills,omitempty"`
	Doomed int `json:"doomed,omitempty"`
	// Away is for how long Redis has not answered or has refused (Refused); 0 = it answers.
	// Trouble is its answer or the connection's error.
	Away    time.Duration `json:"away,omitempty"`
	Refused bool          `json:"refused,omitempty"`
	Trouble string        `json:"trouble,omitempty"`
	// Sums are counts of jobs; see history.Sums.Take.
	Sums []byte `json:"sums,omitempty"`
	// LockEnd is the BootTime at which a silent process must be gone: its job locks expire soon
	// after.
	LockEnd time.Duration `json:"lock_end,omitempty"`
}

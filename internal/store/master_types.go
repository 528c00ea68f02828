package store

import "time"

// MasterInfo describes a master in Redis, for pages and the command line. The entry expires without beats.
type MasterInfo struct {
	// ID names the master: host, boot id, pid and start time.
	ID string
	// Fields are shown unchanged: state, slots, threads, pid, host, queues, …
	Fields map[string]string
	// Answers are answers to orders, by order id.
	Answers map[string]OrderAnswer
	// TTL is how long the entry lives without another BeatMaster.
	TTL time.Duration
}

// Action says what to do with a record of a dead process.
type Action byte

// The actions.
const (
	Requeue Action = 'q' // back to the head of its queue; counts as a death
	Suspect Action = 's' // like Requeue; the job may have caused the death
	Back    Action = 'h' // like Requeue, but not a death
	Fail    Action = 'f' // to the failed list
	Again   Action = 't' // to the tail of its queue, on request; not a death

	failListed Action = 'm' // like Fail, into the list of the queue (Resque's multi-queue failure backend)
)

// Verdict decides one record of a dead process.
type Verdict struct {
	Token  string
	Action Action
	// Failure is the record for the failed list; only for Fail.
	Failure FiledFailure
	// Payload is the job's, if its Failure has a Gap.
	Payload []byte
	// Park: if a key of another type prevents it, park it, see ParkedJob.
	Park bool
	// Listed: Fail into the list of its queue, as Resque's multi-queue failure backend does.
	Listed bool
	// Kill answers a request to end the job; nil = there was none.
	Kill *KillAnswer
	// Counts are the keys, without the namespace, that may count the failed job's attempts; only for
	// Fail.
	Counts []string
	// Failed is set by Recover: this verdict has failed the job.
	Failed bool
}

package store

import "time"

// MasterInfo describes a master in Redis, for pages and the command line. The
// entry expires when it is not beaten.
type MasterInfo struct {
	// ID names the master: host, boot id, pid and start time.
	ID string
	// Fields are shown as they are: state, slots, threads, pid, host, queues, …
	Fields map[string]string
	// Answers are those to orders, by their ids.
	Answers map[string]OrderAnswer
	// TTL is how long the entry lives without another BeatMaster.
	TTL time.Duration
}

// Action is what becomes of a record of a dead process.
type Action byte

// The actions of a verdict.
const (
	Requeue Action = 'q' // back to the head of its queue; counts as a death
	Suspect Action = 's' // as Requeue, and the death may be the job's doing
	Back    Action = 'h' // as Requeue, but no death
	Fail    Action = 'f' // to the failed list
	Again   Action = 't' // to the tail of its queue, because of a request; no death

	failListed Action = 'm' // Fail, as Resque's multi-queue failure backend does
)

// Verdict decides one record of a dead process.
type Verdict struct {
	Token  string
	Action Action
	// Failure is the record for the failed list; only for Fail.
	Failure FiledFailure
	// Payload is that of the job, if its Failure has a Gap.
	Payload []byte
	// Park: if a key of another type is in the way it is parked, see ParkedJob.
	Park bool
	// Listed: it goes to the list of its queue, as Resque's multi-queue failure backend has
	// them.
	Listed bool
	// Kill answers who wanted the job to end; nil = there was no request.
	Kill *KillAnswer
	// Counts are the keys, without the namespace, under which the attempts of a job that
	// has failed may be counted; only for Fail.
	Counts []string
	// Failed is set by Recover: the job has failed by this verdict.
	Failed bool
}

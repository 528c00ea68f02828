package store

import (
	"context"
	"net"
	"time"
)

// Options say which Redis to use, and how this daemon's processes behave in it.
type Options struct {
	URL       string
	Namespace string
	// Lease is how long a process lives in Redis without a beat.
	Lease time.Duration
	// LockTTL is the expiry of job locks; each beat extends it.
	LockTTL   time.Duration
	BeatEvery time.Duration
	// ClientName is shown by CLIENT LIST.
	ClientName string
	// PoolSize bounds the connections; 0 = 4.
	PoolSize int
	// LockPayload makes jobs with the same payload, byte by byte, exclude each other, instead of those with the
	// same class and arguments.
	LockPayload bool
	// CA are PEM certificates to trust instead of the system's, for servers with certificates of your own CA;
	// see rdb.ReadCA.
	CA string
	// Cert is the client's PEM certificate and its key; see rdb.ReadCert.
	Cert string
	// Password, if not nil, returns the password for each new connection; "" = URL's.
	Password func() string
	// AllowEviction accepts a server whose maxmemory-policy may drop jobs.
	AllowEviction bool
	// Dial is rdb.Options.Dial.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// FailureLists records failures in a list per queue, as Resque's multi-queue failure backend does.
	FailureLists bool

	nearEnd int64 // see failed.go; 0 = nearEnd
}

// Registration announces a worker process.
type Registration struct {
	Proc string
	// Workers are the worker ids of its threads.
	Workers []string
	// Started is the start time in Resque's format (wire.FormatStart).
	Started string
	// Info are the fields of resqued:proc:<proc> (slot, pid, version, …).
	Info map[string]string
}

// Kind is how a job ended.
type Kind byte

const (
	Done     Kind = 'd' // performed, or discarded
	Failed   Kind = 'f' // Failure goes to the failed list
	Requeued Kind = 'r' // to the tail of its queue, after Delay
	Returned Kind = 'b' // to the head of its queue, as if it had not run
	// Retried: it has failed and runs again, at the tail of its queue, after Delay. It counts as a
	// failed run, numbered by Count; Failure, if any, is for resque-retry's page until then.
	Retried Kind = 't'
	// Restored: its payload refers to the one kept under Parked, which replaces it at the head of its
	// queue. If that is gone, the job has failed.
	Restored Kind = 'u'
)

// Count is the number of a job's runs, under resque-retry's key. A Retried job leaves it there, any other
// completion removes it.
type Count struct {
	// Key is without the namespace.
	Key string
	// Value is the number of the last run, from 0.
	Value int
	// Lifetime is how long it is kept; 0 = for ever.
	Lifetime time.Duration
}

// Completion reports the end of one reserved job. It is applied at most once, however often it is sent: only
// the call that deletes the in-flight record counts.
type Completion struct {
	Job  *Reserved
	Kind Kind
	// Failure is the record for the failed list.
	Failure FiledFailure
	// Payload, if not nil, goes back to the queue instead of the job's own bytes, for a job Requeued without a Delay.
	Payload []byte
	Delay   time.Duration
	// Parked is the id under which the payload of a Restored job is kept.
	Parked string
	// Park: if a key of another type prevents it, park it, see ParkedJob.
	Park bool
	// Mirrored: worker:<id> was written for the job and must be removed.
	Mirrored bool
	// Held: the job took class locks in this Redis, which its end releases.
	Held bool
	// Renamed: the lock of a Returned job no longer has the name in LockKey. The job goes to the head of
	// its queue, not to the line for LockKey.
	Renamed bool
	// Killed: the process has carried out a KillRequest for this job.
	Killed bool
	// Survived: a Requeued or Retried job has run to its end, so it is no longer a suspect.
	Survived bool
	// Count, if not nil, counts the job's attempts. A Retried job has one.
	Count *Count
}

// Want asks for one job for one idle thread. Token, of at most 255 bytes, is unique within the process and
// becomes the job's name.
type Want struct {
	Token  string
	Worker string
}

// Queue is one candidate of an exchange, in order of priority.
type Queue struct {
	Name string
	// Cap limits the threads of this master on the queue; 0 = none.
	Cap int
	// Locked: jobs of this queue take a job lock.
	Locked bool
	// Named: the caller names their locks, see ExchangeRequest.Names.
	Named bool
	// Unique: an equal payload waits in the queue at most once, as with resque-uniqueue. Strict: skip the
	// queue if it is out of step with its companions.
	Unique, Strict bool
	// Lined: jobs whose lock is held wait in a line for it, in order, instead of at the tail. Not in a
	// unique queue, or one with registered workers of other programs.
	Lined bool
	// Fair, if not nil, lets the queue's tenants take turns, if locked jobs would wait in lines; nil = in
	// push order.
	Fair *Fair
}

// LockName is the name of a payload's lock, the part of its key after locket:job_locks:, and in a fair queue its
// tenant.
type LockName struct {
	Queue        string
	Payload      []byte
	Name, Tenant string
}

// Suspects is what an exchange does with jobs that may be to blame for a process's death (Reserved.Blame).
type Suspects byte

// The ways to treat suspects.
const (
	// SetApart quarantines them for a process that runs nothing else.
	SetApart Suspects = 'a' // the default
	// TakeSuspects takes them like other jobs, for a process that runs one job at a time and has not run
	// any yet.
	TakeSuspects Suspects = 't'
	// OnlySuspects takes one quarantined job, and no other.
	OnlySuspects Suspects = 'o'
)

func (s Suspects) letter() byte {
	if s == 0 {
		s = SetApart
	}
	return byte(s)
}

// ExchangeRequest reports ended jobs and asks for new ones.
type ExchangeRequest struct {
	Proc string
	// Master is the id under which queue caps are counted.
	Master      string
	Completions []Completion
	Wants       []Want
	Queues      []Queue
	// Empty is how many of the first queues are likely to be empty, because the last jobs came from later
	// ones. One command checks all of them.
	Empty int
	// Names answers the last reply's Unnamed. NamedClasses are the classes whose locks must be named in every queue.
	Names        []LockName
	NamedClasses []string
	Suspects     Suspects
	// Repeat: an earlier attempt of this request may have run. The script first returns what the tokens already hold.
	Repeat bool
	// Sending numbers all requests of this process, including repetitions. A request that arrives after a
	// later repetition reserves nothing, as its answer is no longer awaited. 0 = the only one. It counts
	// per Lane: the process may have one request under way in each, 0 and 1.
	Sending int64
	Lane    int
}

// Reserved is a job that this process holds, as recorded in flight.
type Reserved struct {
	Token   string
	Queue   string
	Worker  string
	Payload []byte
	// LockKey is the full key with namespace; empty without a lock.
	LockKey string
	Fence   int64
	// Deaths is how many processes died while they held the job. Blame is how many of these deaths it may
	// have caused; with any it is a suspect.
	Deaths, Blame int
	// Capped: the job counts against its queue's cap.
	Capped    bool
	StartedAt time.Time
	// Unique: the job came from a unique queue, into which it was pushed at EnqueuedAt (whole seconds;
	// zero if unknown).
	Unique     bool
	EnqueuedAt time.Time
	// Lined: the job may have waited in a line and has that line's lock. Only Exchange sets it.
	Lined bool
	// Passed is the line of a limit of which the job was the next, or "". Only Exchange sets it.
	Passed string
	// Limited: the job may count under limits; see Limit, whose caller sets it.
	Limited bool
	// Counts: it counts under the concurrency of a limit; see Admission.
	Counts bool
	// Kill is a request to end the job; only Fence sets it.
	Kill *KillRequest
}

// ExchangeReply answers an ExchangeRequest.
type ExchangeReply struct {
	// Applied says for each completion whether its record, or at least its lock, still existed; a late
	// one changed nothing.
	Applied []bool
	// Stuck maps the indexes of completions that could not be written, because a key has the wrong
	// type, to the reasons; their records are kept. Send them again later. Those with Park are Parked
	// instead.
	Stuck, Parked map[int]string
	Jobs          []Reserved
	// Bounced counts the locked jobs put back at the tail.
	Bounced int
	// More: the bounded scan ended before all candidates were checked.
	More bool
	// WrongType names queues skipped because they are not lists.
	WrongType []string
	// Duplicates are the completions, by index, whose payload did not go back because an equal one waits.
	Duplicates []int
	// OutOfStep names strict unique queues skipped because they are out of step with their companions.
	OutOfStep []string
	// Suspects is how many are quarantined in the queues of the request, if it has met any.
	Suspects int
	// Unlockable says why no locked job was taken: the key of fencing tokens is not usable. It is empty otherwise.
	Unlockable string
	// Unnamed are jobs whose locks and tenants the next request must name. Their Name is empty.
	Unnamed []LockName
}

// PollReply answers Poll.
type PollReply struct {
	// Cursor continues a pass over a large set of queues; "0" ends the pass.
	Cursor string
	// Reasons has the checked queues with jobs.
	Reasons Reasons
	// Known is how many queues exist; 0 if only named ones were asked for.
	Known int
	// Suspects counts the quarantined jobs of all queues, whatever was asked for. Each part of a pass has them all.
	Suspects map[string]int
	// Due: delayed jobs are due; see MoveDue.
	Due bool
	// Shared: another process has just looked and found nothing.
	Shared bool
	// Masters is how many there are; 0 = unknown, as in a Shared reply.
	Masters int
}

// BeatReply answers Beat.
type BeatReply struct {
	// Lost are the tokens whose lock is no longer ours.
	Lost []string
	// Gone are the tokens without a record.
	Gone []string
	// Left are a few tokens of records that the request did not name: of jobs taken since, or whose end
	// Redis has lost.
	Left []string
	// Missing: a worker in Look is no longer registered; see Enroll.
	Missing bool
}

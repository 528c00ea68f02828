package store

import "time"

// Options say which Redis, and how the processes of this daemon behave in it.
type Options struct {
	URL       string
	Namespace string
	// Lease is how long a process lives in Redis without a beat.
	Lease time.Duration
	// LockTTL is the expiry of job locks; it is extended by each beat.
	LockTTL time.Duration
	// BeatEvery is the time between two beats.
	BeatEvery time.Duration
	// ClientName is shown by CLIENT LIST.
	ClientName string
	// PoolSize bounds the connections; 0 = 4.
	PoolSize int
	// LockPayload makes jobs exclude each other that have their whole payload in common,
	// byte by byte, instead of their class and arguments.
	LockPayload bool
	// CA are PEM certificates to trust instead of the system's, for servers whose
	// certificate is of one's own making; see ReadCA.
	CA string
	// Cert is the PEM certificate that is presented to the server, and its key; see rdb.ReadCert.
	Cert string
	// Password, if not nil, returns the password for each new connection; "" = that of URL.
	Password func() string
	// AllowEviction accepts a server whose maxmemory-policy may drop jobs.
	AllowEviction bool

	// FailureLists has failures recorded as Resque's multi-queue failure backend does, in
	// a list for each queue.
	FailureLists bool

	nearEnd int64 // see failed.go; 0 = nearEnd
}

// Registration announces a worker process.
type Registration struct {
	Proc string
	// Workers are the worker ids of its threads.
	Workers []string
	// Started is Resque's text for the start time (wire.FormatStart).
	Started string
	// Info are the fields of resqued:proc:<proc> (slot, pid, version, …).
	Info map[string]string
}

// Kind is how a job ended.
type Kind byte

// The kinds of completions.
const (
	Done     Kind = 'd' // performed, or discarded
	Failed   Kind = 'f' // Failure goes to the failed list
	Requeued Kind = 'r' // back to the tail of its queue, after Delay
	Returned Kind = 'b' // back to the head of its queue, as if it had not run
	// Retried: it has failed and runs again, at the tail of its queue, after Delay. It
	// counts as a failed run, and Count says how many these are; Failure, if any, is what
	// resque-retry's page shows of it meanwhile.
	Retried Kind = 't'
	// Restored: its payload only names the one that is kept under Parked, which takes its
	// place at the head of its queue. If that is not there any more the job has failed.
	Restored Kind = 'u'
)

// Count is the number of a job's runs, under the key that resque-retry has for it. A
// Retried job leaves it there, any other completion removes it.
type Count struct {
	// Key is without the namespace.
	Key string
	// Value is the number of the last run, from 0.
	Value int
	// Lifetime is how long it is kept; 0 = for ever.
	Lifetime time.Duration
}

// Completion reports the end of one reserved job. It is applied at most once,
// however often it is sent: only who deletes the in-flight record counts.
type Completion struct {
	Job  *Reserved
	Kind Kind
	// Failure is the record for the failed list.
	Failure FiledFailure
	// Payload goes back to the queue in place of the job's own bytes, if it is not nil and
	// the job is Requeued without a Delay.
	Payload []byte
	Delay   time.Duration
	// Parked is the id under which the payload of a Restored job is kept.
	Parked string
	// Park: if a key of another type is in the way it is parked, see ParkedJob.
	Park bool
	// Mirrored: worker:<id> was written for this job and must be removed.
	Mirrored bool
	// Held: the job took class locks in this Redis, to be released with its end.
	Held bool
	// Renamed: the lock of a Returned job has another name than its LockKey by now. It goes to the head of its
	// queue and not to the line for LockKey.
	Renamed bool
	// Killed: the process has obeyed a KillRequest for this job.
	Killed bool
	// Survived: a Requeued or Retried job has run to its end, so that it is not a suspect
	// any more.
	Survived bool
	// Count, if not nil, is the count of the job's attempts. A Retried job has one.
	Count *Count
}

// Want asks for one job for one idle thread. Token is unique within the process
// and is the job's name from then on; it has at most 255 bytes.
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
	// Named: their locks are named by the caller, see ExchangeRequest.Names.
	Named bool
	// Unique: an equal payload waits in the queue at most once, as resque-uniqueue
	// has it. Strict: the queue is skipped when its keys do not match.
	Unique, Strict bool
	// Lined: jobs whose lock is held wait in a line for it, in their order, instead of at the
	// tail; but not in a queue for which workers of others than resqued are registered, nor in a
	// unique one.
	Lined bool
	// Fair has the tenants of the queue take turns, where locked jobs would wait in lines; nil = its jobs are
	// taken in the order in which they were pushed.
	Fair *Fair
}

// LockName is what the lock of a payload is called, the part of its key behind
// locket:job_locks:, and in a fair queue its tenant.
type LockName struct {
	Queue        string
	Payload      []byte
	Name, Tenant string
}

// Suspects is what an exchange does with jobs to whose blame the death of a process
// may be (Reserved.Blame).
type Suspects byte

// What becomes of suspects.
const (
	// SetApart: they leave their queue and wait for a process that runs nothing else.
	SetApart Suspects = 'a' // the default
	// TakeSuspects: they are taken like any other job, by a process that runs one job
	// at a time and has not run any yet.
	TakeSuspects Suspects = 't'
	// OnlySuspects: of those that were set apart one is taken, and no other job.
	OnlySuspects Suspects = 'o'
)

func (s Suspects) letter() byte {
	if s == 0 {
		s = SetApart
	}
	return byte(s)
}

// ExchangeRequest reports what has ended and asks for what can start.
type ExchangeRequest struct {
	Proc string
	// Master is the id under which queue caps are counted.
	Master      string
	Completions []Completion
	Wants       []Want
	Queues      []Queue
	// Empty is how many of the first queues are likely to hold nothing, because the last
	// jobs came from behind them. One command checks all of them.
	Empty int
	// Names answers the Unnamed of the reply before. NamedClasses are the classes
	// whose locks have to be named in every queue.
	Names        []LockName
	NamedClasses []string
	Suspects     Suspects
	// Repeat: an earlier try of this very request may have run. The script then
	// first hands back what the tokens already hold.
	Repeat bool
	// Sending numbers what this process sends, repetitions included. A request
	// that reaches the server after a later repetition reserves nothing: its
	// answer is not waited for any more. 0 = the only one. It counts for a Lane by itself:
	// the process may have one request under way in each, 0 and 1.
	Sending int64
	Lane    int
}

// Reserved is a job that this process holds, as recorded in flight.
type Reserved struct {
	Token   string
	Queue   string
	Worker  string
	Payload []byte
	// LockKey is the whole key with namespace; empty without a lock.
	LockKey string
	Fence   int64
	// Deaths is how many processes have died that held the job. For Blame of them it
	// may be to blame; with more than none it is a suspect.
	Deaths, Blame int
	// Capped: the job counts against its queue's cap.
	Capped    bool
	StartedAt time.Time
	// Unique: the job came from a unique queue, into which it was put at EnqueuedAt
	// (whole seconds; zero where that is not known).
	Unique     bool
	EnqueuedAt time.Time
	// Lined: the job has waited in a line, or may have, and has the lock of that line. Only Exchange fills it in.
	Lined bool
	// Kill is the request to end the job, if any; only Fence fills it in.
	Kill *KillRequest
}

// ExchangeReply answers an ExchangeRequest.
type ExchangeReply struct {
	// Applied says of each completion whether its record still existed, or at least
	// its lock was still held for it; a late one changed nothing.
	Applied []bool
	// Stuck holds the indexes of completions that could not be written because a
	// key has the wrong type; their records are kept. Send them again later. Those that
	// say so were Parked instead.
	Stuck, Parked map[int]string
	Jobs          []Reserved
	// Bounced counts the locked jobs that were put back at the tail.
	Bounced int
	// More: the bounded scan ended before every candidate was looked at.
	More bool
	// WrongType names the queues that were skipped because they are not lists.
	WrongType []string
	// Duplicates are the indexes of completions whose payload did not go back to
	// its queue, because an equal one waits there.
	Duplicates []int
	// OutOfStep names the strict unique queues that were skipped because their keys do not match.
	OutOfStep []string
	// Suspects is how many were set apart in the queues of the request, if it has come
	// across any.
	Suspects int
	// Unlockable says why no locked job was taken: nothing that fences could go on from
	// stands where they are counted. It is empty where there is no such trouble.
	Unlockable string
	// Unnamed are jobs that can only be looked at when the next request names their
	// locks and tenants. Their Name is empty.
	Unnamed []LockName
}

// PollReply answers Poll.
type PollReply struct {
	// Cursor continues a pass over a large set of queues; "0" ends the pass.
	Cursor string
	// Reasons has the queues looked at that hold jobs.
	Reasons Reasons
	// Known is how many queues there are; 0 if only named ones were asked for.
	Known int
	// Suspects is how many jobs of which queues were set apart, whatever queues were
	// asked for. Each part of a pass has them all.
	Suspects map[string]int
	// Due: delayed jobs are; see MoveDue.
	Due bool
	// Shared: another has looked, a moment ago, and has found nothing.
	Shared bool
	// Masters is how many there are; 0 = it is not known, as in a Shared reply.
	Masters int
}

// BeatReply answers Beat.
type BeatReply struct {
	// Lost are the tokens whose lock is no longer ours.
	Lost []string
	// Gone are the tokens that have no record any more.
	Gone []string
	// Left are the tokens of records that the request has not named, a few at most: of
	// jobs that were taken meanwhile, or whose end Redis has lost.
	Left []string
	// Missing: others have removed a worker that was looked for; see Enroll.
	Missing bool
}

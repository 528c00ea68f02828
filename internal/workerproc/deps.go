package workerproc

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/thread"
)

// Config is what a worker process has to know. For optional fields, zero means the default.
type Config struct {
	Threads int
	// JobsPerFork is how many jobs this process may start; 0 = no limit.
	JobsPerFork int
	MaxRSS      int64         // bytes; 0 = no limit
	MaxAge      time.Duration // 0 = no limit

	Queues selector.Spec
	// Locketed reports whether a queue's jobs take a job lock.
	Locketed func(queue string) bool
	// NamedLocks: Deps.Namer names the job locks of all classes. Otherwise it names those of
	// NamedClasses, and the script that takes a lock names the others.
	NamedLocks   bool
	NamedClasses []string
	// Lined: locked jobs wait in line for their lock; see store.Queue.
	Lined bool
	// Fair are the queues whose tenants take turns, where lines are possible; "*" is for queues
	// not named. Deps.Tenants names the tenants.
	Fair map[string]*store.Fair
	// DeathPolicy is what happens to this process's jobs when it dies. The process writes it to
	// Redis for the master that recovers the jobs.
	DeathPolicy store.Policy
	// RequeueLost: a job that has lost its lock runs again instead of failing, unless its class
	// runs at most once.
	RequeueLost bool
	// Unique reports whether equal payloads wait in a queue at most once; nil = never.
	// StrictUnique skips a unique queue whose keys do not match.
	Unique       func(queue string) bool
	StrictUnique bool

	Interval time.Duration
	// StretchInterval: Interval may grow to a second while the poller waits in Redis for all
	// queues.
	StretchInterval bool
	UntilEmpty      bool

	// TermTimeout is how long a killed job may take if the master gives no time.
	TermTimeout time.Duration
	// LockDuration is the TTL of a job lock, BeatEvery how often it is extended.
	LockDuration, BeatEvery time.Duration
	// LogJobs logs the start and the end of every job at level info.
	LogJobs bool
	// MaxPayload is the size in bytes above which a payload fails; 0 = no limit.
	MaxPayload int64
	// Redact hides parts of arguments in log lines, events and failures.
	Redact *redact.Rules
	// KillOnMasterDeath kills the jobs, instead of draining, when the master is gone.
	KillOnMasterDeath bool
	// DrainTimeout bounds the drain after the master's death; 0 = none.
	DrainTimeout time.Duration
	// DrainRequeue: the jobs ended by DrainTimeout go back to their queues; otherwise they fail.
	DrainRequeue bool

	Host string
	PID  int
	// Traces are fields of this process's entry in Redis by which others on its machine find out
	// whether anything of it is left; see procfs.Traces.
	Traces map[string]string
	// Version is shown in Redis.
	Version string
}

func (c Config) withDefaults() Config {
	if c.Interval <= 0 {
		c.Interval = 100 * time.Millisecond
	}
	if c.TermTimeout <= 0 {
		c.TermTimeout = 30 * time.Second
	}
	if c.LockDuration <= 0 {
		c.LockDuration = store.DefaultLease
	}
	if c.BeatEvery <= 0 {
		c.BeatEvery = store.DefaultBeatEvery
	}
	if c.Locketed == nil {
		c.Locketed = func(string) bool { return true }
	}
	if c.Unique == nil {
		c.Unique = func(string) bool { return false }
	}
	return c
}

// Store is what a worker process needs of Redis; *store.Store implements it.
type Store interface {
	Register(ctx context.Context, r store.Registration) error
	Unregister(ctx context.Context, proc string) (held int, err error)
	Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error)
	Poll(ctx context.Context, r store.PollRequest) (store.PollReply, error)
	MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (store.Due, error)
	DelayedQueues(ctx context.Context) ([]string, error)
	Beat(ctx context.Context, b store.BeatRequest) (store.BeatReply, error)
	Records(ctx context.Context, proc string, tokens []string) ([]store.Reserved, error)
	Enroll(ctx context.Context, e store.Enrollment) (again []int, unfailed int, err error)
	WriteMirrors(ctx context.Context, proc string, mirrors []store.Mirror) error
	Kills(ctx context.Context, proc string) (map[string]store.KillRequest, error)
	DropKills(ctx context.Context, proc string, tokens ...string) error
	Bury(ctx context.Context, proc string, v store.Verdict) error
	Limit(ctx context.Context, proc string, jobs []store.Gated, again bool) ([]store.Admission, time.Duration, error)
	SetLimit(ctx context.Context, o store.Override) error
}

// Conn is the socket to the master; *proc.Conn implements it.
type Conn interface {
	Send(m proc.Message) error
	Recv() (proc.Message, error)
}

// Stats counts; *statsd.Client implements it.
type Stats interface {
	Job(class, outcome string, ran, waited time.Duration)
	Count(name string, n int)
}

// Namer returns the lock name of a payload; *jobkey.Keyer implements it. The name for a payload
// does not change. Several goroutines may call it.
type Namer interface {
	Name(queue string, payload []byte) string
}

// Tenants returns the tenant of a payload; *jobkey.Tenants implements it. The tenant of a
// payload does not change. The goroutine of each lane calls it.
type Tenants interface {
	Tenant(queue string, payload []byte) string
}

// Limits returns the limits of a payload, or why its job must fail; *jobkey.Limits implements
// it. The goroutine of each lane calls it.
type Limits interface {
	Of(queue string, payload []byte) ([]jobkey.Limit, error)
}

// Handlers is what a worker process needs to know about its handlers.
type Handlers interface {
	Lookup(class string, wrappers ...string) (*resqued.Class, bool)
}

// Event is the end of a job, for Deps.Observe.
type Event struct {
	Job     *resqued.Job
	Outcome thread.Outcome
}

// Deps are the parts that a process works with.
type Deps struct {
	Store    Store
	Conn     Conn
	Runner   *thread.Runner
	Handlers Handlers
	// LocksEnd, if not nil, returns the procfs.BootTime at which the process must be gone
	// because of class locks kept outside the daemon's Redis; 0 = none.
	LocksEnd func() time.Duration
	// Capacity, if not nil, returns how many jobs can run at once when that is fewer than
	// Threads. Roomier is signalled when it may have grown.
	Capacity func() int
	Roomier  <-chan struct{}
	// Runners, if not nil, describes the processes that perform jobs for this one, for
	// store.InfoRunners.
	Runners func() string
	// Namer is needed for NamedLocks and NamedClasses. Without it, jobs of lines run with the
	// lock of their line, whatever its name should be by now.
	Namer Namer
	// Tenants is needed for Fair.
	Tenants Tenants
	// Limits, if not nil, bounds how many jobs run or begin.
	Limits Limits
	Stats  Stats
	// OpenWaiter opens the connections that wake the process when a job comes while it is the
	// poller, for the given number of waits. Nil: only polling finds jobs.
	OpenWaiter func(waits int) (Waiter, error)
	// Waits is how many queues it waits for at a time; 0 = store.MaxWaits. FleetWaits is the
	// limit for all masters together; 0 = none.
	Waits, FleetWaits int

	Signals <-chan os.Signal
	Hooks   []resqued.Hooks
	// Observe, if not nil, is called from the loop after each job.
	Observe func(Event)
	Log     *zap.Logger
	// SetTitle shows the process's activity in its command line; nil = proc.SetTitle.
	SetTitle func(text string)
	// Exit ends the process at once, when a job ignores its kill.
	Exit func()
}

package workerproc

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
)

// Config is what a worker process has to know. The zero value of an optional
// field means the default.
type Config struct {
	Threads int
	// Quota is how many jobs this process may start; 0 = no limit.
	Quota  int
	MaxRSS int64         // bytes; 0 = no limit
	MaxAge time.Duration // 0 = no limit

	Queues selector.Spec
	// Locketed reports whether jobs of a queue take a job lock.
	Locketed func(queue string) bool
	// NamedLocks: the job locks of all classes are named by Deps.Namer; else those
	// of NamedClasses are, and all others by the script that takes them.
	NamedLocks   bool
	NamedClasses []string
	// Policy is what Redis is told about the jobs of this process, for when it dies.
	Policy store.Policy
	// RequeueLost: a job that has lost its lock runs again instead of failing, unless
	// its class runs at most once.
	RequeueLost bool
	// Unique reports whether equal payloads wait in a queue at most once; nil = none.
	// StrictUnique: one whose keys do not match is skipped instead of healed.
	Unique       func(queue string) bool
	StrictUnique bool

	Interval   time.Duration
	UntilEmpty bool

	// TermTimeout is how long a killed job may take when the master does not say.
	TermTimeout time.Duration
	// LockDuration is the TTL of a job lock, BeatEvery how often it is extended.
	LockDuration, BeatEvery time.Duration
	// MaxPayload in bytes; larger ones fail. 0 = no limit.
	MaxPayload int64
	// KillOnMasterDeath: kill the jobs when the master is gone, instead of draining.
	KillOnMasterDeath bool
	// DrainTimeout bounds the drain after the master's death; 0 = none.
	DrainTimeout time.Duration

	Host string
	PID  int
	// Traces are fields of this process's entry in Redis by which others on its machine
	// find out whether anything of it is left; see procfs.Traces.
	Traces map[string]string
	// Version is shown in Redis.
	Version string
}

// Store is what a worker process asks of Redis; *store.Store is one.
type Store interface {
	Register(ctx context.Context, r store.Registration) error
	Unregister(ctx context.Context, proc string) (held int, err error)
	Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error)
	Poll(ctx context.Context, all bool, cursor string, fixed []string) (store.PollReply, error)
	MoveDue(ctx context.Context, unique func(queue string) bool) (store.Due, error)
	DelayedQueues(ctx context.Context) ([]string, error)
	Beat(ctx context.Context, b store.BeatRequest) (store.BeatReply, error)
	Records(ctx context.Context, proc string, tokens []string) ([]store.Reserved, error)
	Enroll(ctx context.Context, e store.Enrollment) (again []int, unfailed int, err error)
	WriteMirrors(ctx context.Context, proc string, mirrors []store.Mirror) error
	Kills(ctx context.Context, proc string) (map[string]store.KillRequest, error)
	DropKills(ctx context.Context, proc string, tokens ...string) error
}

// Conn is the socket to the master; *proc.Conn is one.
type Conn interface {
	Send(m proc.Message) error
	Recv() (proc.Message, error)
}

// Stats counts; *statsd.Client is one.
type Stats interface {
	Job(class, outcome string, ran, waited time.Duration)
	Count(name string, n int)
}

// Namer tells what the lock of a payload is called; *jobkey.Keyer is one. It is
// called from one goroutine, and its answer for a payload does not change.
type Namer interface {
	Name(queue string, payload []byte) string
}

// Handlers is what a worker process needs to know of its handlers.
type Handlers interface {
	Lookup(class string) (*resqued.Class, bool)
}

// Event tells an observer that a job has ended.
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
	// LocksEnd, if not nil, returns when by proc.BootTime the process must be gone
	// because of class locks that are kept elsewhere than in the daemon's Redis; 0 = it
	// has none.
	LocksEnd func() time.Duration
	// Namer is needed where the configuration has NamedLocks or NamedClasses.
	Namer Namer
	Stats Stats
	// OpenWaiter opens what wakes the process when a job comes while it is the lookout;
	// nil: jobs are found at each interval only.
	OpenWaiter func() (Waiter, error)
	Signals    <-chan os.Signal
	Hooks      []resqued.Hooks
	// Observe, if not nil, is called after each job, from the loop.
	Observe func(Event)
	Log     *zap.Logger
	// Exit ends the process without running anything else of it; it is called
	// when a job ignores its kill.
	Exit func()
}

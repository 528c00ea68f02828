package master

import (
	"context"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// Deps are the parts that a master works with.
type Deps struct {
	// Self is the identity of this process, after which its worker processes are named.
	Self     proc.Identity
	System   System
	Store    Store
	Notifier Notifier
	Log      *zap.Logger
	// Stats counts failed jobs of dead processes, and repairs; may be nil.
	Stats Stats
	// History receives the worker processes' counts of jobs; may be nil.
	History History
	// Events receives events of this daemon; may be nil.
	Events Events
	// Signals are the unix signals to this process (signals.Listen).
	Signals <-chan os.Signal
	// Reload reads the configuration without changing anything, because it may still be refused
	// (see Config.InForce). nil = HUP is refused. It is called outside the loop, never
	// concurrently.
	Reload func(ctx context.Context) (Config, error)
	// Requests asks for reloads and upgrades; may be nil.
	Requests <-chan Request
	// Upgrade lets another master replace this one, or this one another.
	Upgrade Upgrade
	// Look asks for an early look at what dead processes have left; may be nil.
	Look <-chan struct{}
	// BeforeFork, if not nil, is called on the main goroutine before each spawn.
	BeforeFork func()
	// Trouble returns problems other than Redis in one line for the status; "" = none. Fields
	// are shown with this master in Redis, in addition to the configuration's. Both may be nil.
	Trouble func() string
	Fields  func() map[string]string
}

// Stats counts; *statsd.Client implements it.
type Stats interface {
	// Died counts a job that failed because its process died.
	Died(class, queue string)
	// Repaired counts a repair of a unique queue and its dropped duplicates.
	Repaired(duplicates int)
}

// Events receives events, for people to see.
type Events interface {
	// Note must not block.
	Note(e store.Event)
}

// History receives the counts of worker processes; *history.Collector implements it.
type History interface {
	// Add adds a packet received now. The loop calls it; it must not block.
	Add(now time.Time, packet []byte) error
}

// Child is a worker process; *proc.Child implements it.
type Child interface {
	PID() int
	// Send returns proc.ErrFull when the other side does not read.
	Send(m proc.Message) error
	// Recv returns io.EOF when the other side is gone.
	Recv() (proc.Message, error)
	Kill() error
	// Sweep kills what the process has started; see proc.Child.Sweep.
	Sweep(ctx context.Context) (killed int, err error)
	// Wait waits for the end of the process.
	Wait() proc.Exit
	// CloseRead makes Recv return what was sent already, and then io.EOF.
	CloseRead() error
	Close() error
}

// System is what a master needs of the operating system; Linux implements it.
type System interface {
	Spawn(spec proc.Spec) (Child, error)
	// Sweep kills what another master's worker process has left; see proc.Sweep.
	Sweep(ctx context.Context, name string) (killed int, err error)
	// Dead reports whether a master of this place is proven to be dead; see proc.Identity.Dead.
	Dead(id proc.Identity) bool
	// DeadWorker reports whether a worker process of this place is proven to be dead, and
	// whether Sweep finds all that it may have left; see procfs.Traces.
	DeadWorker(t procfs.Traces) (dead, inReach bool)
	// OOMKills counts the kernel's out-of-memory kills; see procfs.OOMKills.
	OOMKills() procfs.OOM
	// ReapStrays reaps adopted orphans, but no child that owned claims.
	ReapStrays(owned func(pid int) bool)
	SetTitle(text string)
}

// Store is what a master needs of Redis; *store.Store implements it.
type Store interface {
	// PutMaster also returns the waiting orders and removes them.
	PutMaster(ctx context.Context, m store.MasterInfo) ([]store.Order, error)
	DropMaster(ctx context.Context, id string) (lined int64, err error)
	// CheckEviction returns an error if Redis may evict jobs.
	CheckEviction(ctx context.Context) error
	LookAround(ctx context.Context, digest, place, self string) (store.Around, error)
	// NoteOtherWorkers notes the queues of other programs' workers, unless that was done less
	// than every ago.
	NoteOtherWorkers(ctx context.Context, every time.Duration) error
	SettingsOf(ctx context.Context, master string) (host, settings string, err error)
	// ProcFields returns fields of a process's entry, without missing ones.
	ProcFields(ctx context.Context, proc string, names []string) (map[string]string, error)
	// Fence returns store.ErrAlive for a process whose lease is valid, unless forced.
	Fence(ctx context.Context, proc string, force bool) (held []store.Reserved, bad []string, err error)
	// PolicyOf returns the policy that a process has registered; fallback replaces missing
	// parts.
	PolicyOf(ctx context.Context, proc string, fallback store.Policy) (store.Policy, error)
	Recover(ctx context.Context, proc string, verdicts []store.Verdict) error
	// Unpark moves parked jobs where they belong, as far as possible now.
	Unpark(ctx context.Context) (moved int, err error)
	// RestoreFailed restores the failures of interrupted commands, and names their lists.
	RestoreFailed(ctx context.Context) (lists []string, err error)
	OutOfStep(ctx context.Context, u store.UniqueQueues, cursor uint64) (queues []string, next uint64, err error)
	RepairUneven(ctx context.Context, queue string) (store.UniqueReport, error)
	// DropLeftovers removes the remaining keys of empty queues that are no longer unique.
	DropLeftovers(ctx context.Context, kept func(queue string) bool, cursor uint64) (queues []string, next uint64, err error)
}

// Notifier talks to the service manager; *systemd.Notifier implements it.
type Notifier interface {
	Ready()
	// HandOver makes another process the main one, and says nothing more. Hold suppresses
	// messages until Speak.
	HandOver(pid int)
	Hold()
	Speak()
	Status(text string)
	Reloading()
	Stopping()
	ExtendTimeout(d time.Duration)
	Watchdog()
	// WatchdogInterval is how long the master may be silent; 0 = for ever.
	WatchdogInterval() time.Duration
}

// Linux is the real System.
type Linux struct {
	strays procfs.Strays
}

// Spawn starts a worker process.
func (l *Linux) Spawn(spec proc.Spec) (Child, error) {
	child, err := proc.Spawn(spec)
	if err != nil {
		return nil, err
	}
	return child, nil
}

// Sweep is proc.Sweep.
func (l *Linux) Sweep(ctx context.Context, name string) (killed int, err error) {
	return proc.Sweep(ctx, name)
}

// Dead is proc.Identity.Dead.
func (l *Linux) Dead(id proc.Identity) bool { return id.Dead() }

// DeadWorker is procfs.Traces.Dead and InReach.
func (l *Linux) DeadWorker(t procfs.Traces) (dead, inReach bool) {
	dead = t.Dead()
	return dead, dead && t.InReach()
}

// OOMKills is procfs.OOMKills.
func (l *Linux) OOMKills() procfs.OOM { return procfs.OOMKills() }

// ReapStrays is procfs.Strays.Reap.
func (l *Linux) ReapStrays(owned func(pid int) bool) {
	l.strays.Owned = owned
	l.strays.Reap()
}

// SetTitle is proc.SetTitle.
func (l *Linux) SetTitle(text string) { proc.SetTitle(text) }

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
	// Self is the identity of this process; its worker processes are named after it.
	Self     proc.Identity
	System   System
	Store    Store
	Notifier Notifier
	Log      *zap.Logger
	// Stats takes the ends of jobs whose process has died, and repairs; nil = they are not counted.
	Stats Stats
	// History takes the counts of jobs that worker processes send; nil = nobody does.
	History History
	// Events takes what happens to this daemon; nil = nobody does.
	Events Events
	// Signals are the unix signals to this process (signals.Listen).
	Signals <-chan os.Signal
	// Reload reads the configuration again, and changes nothing by that: it may be refused
	// yet (see Config.InForce). nil = HUP is refused. It is called beside the loop, never
	// twice at a time.
	Reload func(ctx context.Context) (Config, error)
	// Requests ask for a reload or an upgrade; nil = none ever does.
	Requests <-chan Request
	// Upgrade has another master take the place of this one, or this one that of another.
	Upgrade Upgrade
	// Look asks for a look at what the dead have left before the next is due; nil = none is asked for.
	Look <-chan struct{}
	// BeforeFork, if not nil, is called on the main goroutine before each spawn.
	BeforeFork func()
	// Trouble says what else than Redis is wrong, in one line for the status; "" = nothing. Fields are
	// shown with this master in Redis, besides those of its configuration. Both may be nil.
	Trouble func() string
	Fields  func() map[string]string
}

// Stats counts; *statsd.Client is one.
type Stats interface {
	// Died counts a job that has failed because its process died.
	Died(class, queue string)
	// Repaired counts a repair of a unique queue, and the duplicates that it has dropped.
	Repaired(duplicates int)
}

// Events takes what has happened, for people to see.
type Events interface {
	// Note must not wait.
	Note(e store.Event)
}

// History takes what worker processes have counted; *history.Collector is one.
type History interface {
	// Add adds a packet that has come now. It is called from the loop, and does not wait.
	Add(now time.Time, packet []byte) error
}

// Child is a worker process; *proc.Child is one.
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
	// CloseRead has Recv return what was sent already, and then io.EOF.
	CloseRead() error
	Close() error
}

// System is what a master asks of the operating system; Linux is one.
type System interface {
	Spawn(spec proc.Spec) (Child, error)
	// Sweep kills what another master's worker process has left; see proc.Sweep.
	Sweep(ctx context.Context, name string) (killed int, err error)
	// Dead reports whether a master of this place is proven to be dead; see
	// proc.Identity.Dead.
	Dead(id proc.Identity) bool
	// DeadWorker reports whether a worker process of this place is proven to be dead, and
	// whether Sweep finds all that it may have left; see procfs.Traces.
	DeadWorker(t procfs.Traces) (dead, inReach bool)
	// OOMKills counts what the kernel killed for want of memory; see procfs.OOMKills.
	OOMKills() procfs.OOM
	// ReapStrays reaps orphans that came to this process, but no child that owned
	// claims.
	ReapStrays(owned func(pid int) bool)
	SetTitle(text string)
}

// Store is what a master asks of Redis; *store.Store is one.
type Store interface {
	// PutMaster also returns the orders that waited, and takes them.
	PutMaster(ctx context.Context, m store.MasterInfo) ([]store.Order, error)
	DropMaster(ctx context.Context, id string) (lined int64, err error)
	// CheckEviction returns an error if Redis may throw jobs away.
	CheckEviction(ctx context.Context) error
	LookAround(ctx context.Context, digest, place, self string) (store.Around, error)
	EnlistLocal(ctx context.Context, place string) error
	// NoteOtherWorkers notes the queues of workers of other programs, unless that was done less than every ago.
	NoteOtherWorkers(ctx context.Context, every time.Duration) error
	SettingsOf(ctx context.Context, master string) (host, settings string, err error)
	// ProcFields returns fields of a process's entry; those that are not there are left
	// out.
	ProcFields(ctx context.Context, proc string, names []string) (map[string]string, error)
	// Fence returns store.ErrAlive for a process whose lease runs, unless forced.
	Fence(ctx context.Context, proc string, force bool) (held []store.Reserved, bad []string, err error)
	// PolicyOf returns what a process has registered with; fallback is for what is gone.
	PolicyOf(ctx context.Context, proc string, fallback store.Policy) (store.Policy, error)
	Recover(ctx context.Context, proc string, verdicts []store.Verdict) error
	// Unpark moves parked jobs where they belong, if that is possible now.
	Unpark(ctx context.Context) (moved int, err error)
	// RestoreFailed brings back the failures that a command has left which did not come to
	// its end, and names their lists.
	RestoreFailed(ctx context.Context) (lists []string, err error)
	OutOfStep(ctx context.Context, u store.UniqueQueues, cursor uint64) (queues []string, next uint64, err error)
	RepairUneven(ctx context.Context, queue string) (store.UniqueReport, error)
	// DropLeftovers removes what is left of queues that were unique, where they are empty.
	DropLeftovers(ctx context.Context, kept func(queue string) bool, cursor uint64) (queues []string, next uint64, err error)
}

// Notifier tells the service manager; *systemd.Notifier is one.
type Notifier interface {
	Ready()
	// HandOver makes another process the main one, and says nothing more; Hold says nothing
	// until Speak.
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
	Spawner proc.Spawner
	strays  procfs.Strays
}

// Spawn starts a worker process.
func (l *Linux) Spawn(spec proc.Spec) (Child, error) {
	child, err := l.Spawner.Spawn(spec)
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

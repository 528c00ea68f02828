package resqued

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/resqued/resqued/internal/jobctx"
)

// What becomes of a job whose class lock is held: the values of
// ClassLock.OnLocked.
const (
	// LockedDrop ends the job without running it. It is logged and counted; this
	// is what resque-lock-timeout does.
	LockedDrop = "drop"
	// LockedRequeue puts the job back at the tail of its queue, for a second.
	LockedRequeue = "requeue"
	// LockedFail fails the job.
	LockedFail = "fail"
)

// Where class locks are kept: the values of ClassLock.Store.
const (
	StoreRedis    = "redis"
	StorePostgres = "postgres"
)

// ErrNotLocked: the job holds no class lock that could be refreshed.
var ErrNotLocked = errors.New("resqued: the job holds no class lock")

// ErrOutsideJob: the context is not that of a job, so nobody answers for its locks.
var ErrOutsideJob = errors.New("resqued: no locks here: the context is not that of a running job")

// Lock is the option that gives a class a lock, as Ruby's resque-lock-timeout
// does: of the jobs with the same key one runs at a time, here and in Ruby. T is
// what the handler takes, or Args. The zero value locks each class and argument
// list, without a time limit.
//
// A job takes the lock before it runs. If the lock is held the job is dropped,
// unless OnLockFailed says otherwise. The lock is released when the job has
// ended, and at once when its worker process has died.
//
// A lock in PostgreSQL is for those who trust their database's durability more than
// Redis's, and Job.LockSequence is its fencing token.
type Lock[T any] struct {
	// Timeout is how long a job may hold the lock, and so how long it may run: past
	// it the job's context ends with ErrTimeout, as past the timeout of the class;
	// RefreshLock begins it anew. 0 = no limit.
	Timeout time.Duration
	// TimeoutFunc computes Timeout from the arguments; 0 or less = no limit.
	TimeoutFunc func(args T) time.Duration

	// The key is lock:<class>:<identifier>, in the daemon's namespace. At most one
	// of the next three says otherwise; without them the identifier is all
	// arguments, joined by "-".

	// Identifier computes the identifier. If it is empty the key ends in a colon.
	Identifier func(args T) string
	// ClassWide leaves the identifier out: the key is lock:<class>.
	ClassWide bool
	// Key computes the whole key.
	Key func(args T) string

	// Redis is the URL of another server to keep the locks in; empty = the
	// daemon's own. A worker process that dies leaves a lock there until it expires.
	Redis string
	// Store is StorePostgres for locks in the daemon's database_url, in the table of
	// package locker; empty = StoreRedis. A worker process that dies leaves a lock
	// there until its lease is over. Not with Redis or Loner.
	Store string
	// Loner refuses to enqueue a job while one with the same key waits or runs.
	Loner bool

	// OnLockFailed is called when the lock is held, and its result decides: nil
	// drops the job, Requeue puts it back, any other error fails it.
	OnLockFailed func(ctx context.Context, args T) error
	// OnLonerEnqueueFailed is called by the client whose loner job was refused.
	OnLonerEnqueueFailed func(ctx context.Context, args T)
	// OnLockExpiredBeforeRelease is called when Timeout has passed and the job still
	// runs, beside it. The job does not end before this has returned.
	OnLockExpiredBeforeRelease func(ctx context.Context, args T)
}

func (l Lock[T]) argsType() reflect.Type { return reflect.TypeFor[T]() }

func (l Lock[T]) apply(c *Class) {
	c.Lock = &ClassLock{
		Timeout: l.Timeout, TimeoutFunc: ofArgs(l.TimeoutFunc),
		Identifier: ofArgs(l.Identifier), ClassWide: l.ClassWide, Key: ofArgs(l.Key),
		Redis: l.Redis, Store: l.Store, Loner: l.Loner,
	}
	if fn := l.OnLockFailed; fn != nil {
		c.Lock.OnLockFailed = func(ctx context.Context, args Args) error {
			t, err := decodeArgs[T](args)
			if err != nil {
				return err
			}
			return fn(ctx, t)
		}
	}
	c.Lock.OnLonerEnqueueFailed = told(l.OnLonerEnqueueFailed)
	c.Lock.OnLockExpiredBeforeRelease = told(l.OnLockExpiredBeforeRelease)
}

// ClassLock is the lock of a class, whatever type its arguments have; see Lock.
// Its functions return an error for arguments that they cannot decode.
type ClassLock struct {
	Timeout     time.Duration
	TimeoutFunc func(args Args) (time.Duration, error)

	Identifier func(args Args) (string, error)
	ClassWide  bool
	Key        func(args Args) (string, error)

	Redis string
	Store string
	Loner bool
	// OnLocked is what becomes of a job whose lock is held, where OnLockFailed is
	// nil: LockedDrop, LockedRequeue or LockedFail; empty = LockedDrop.
	OnLocked string

	OnLockFailed               func(ctx context.Context, args Args) error
	OnLonerEnqueueFailed       func(ctx context.Context, args Args) error
	OnLockExpiredBeforeRelease func(ctx context.Context, args Args) error
}

// check refuses what contradicts itself.
func (l *ClassLock) check() error {
	ways := 0
	for _, given := range []bool{l.Identifier != nil, l.ClassWide, l.Key != nil} {
		if given {
			ways++
		}
	}
	switch {
	case l.Timeout < 0:
		return fmt.Errorf("Timeout is negative: %s", l.Timeout)
	case l.Timeout > 0 && l.TimeoutFunc != nil:
		return errors.New("give either Timeout or TimeoutFunc")
	case ways > 1:
		return errors.New("give at most one of Identifier, ClassWide and Key")
	case l.Store != "" && l.Store != StoreRedis && l.Store != StorePostgres:
		return fmt.Errorf("unknown Store %q; use %s or %s", l.Store, StoreRedis, StorePostgres)
	case l.Store == StorePostgres && l.Redis != "":
		return errors.New("give either Redis or StorePostgres")
	case l.Store == StorePostgres && l.Loner:
		return errors.New("a Loner needs its lock in Redis, which says whether it may be enqueued; leave StorePostgres out")
	case l.OnLocked != "" && l.OnLockFailed != nil:
		return errors.New("give either OnLocked or OnLockFailed")
	}
	switch l.OnLocked {
	case "", LockedDrop, LockedRequeue, LockedFail:
		return nil
	default:
		return fmt.Errorf("OnLocked is %q; use %s, %s or %s", l.OnLocked, LockedDrop, LockedRequeue, LockedFail)
	}
}

// ofArgs makes a function of a T one of arguments.
func ofArgs[T, R any](fn func(T) R) func(Args) (R, error) {
	if fn == nil {
		return nil
	}
	return func(args Args) (R, error) {
		t, err := decodeArgs[T](args)
		if err != nil {
			var none R
			return none, err
		}
		return fn(t), nil
	}
}

// told makes a callback over a T one over arguments.
func told[T any](fn func(context.Context, T)) func(context.Context, Args) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, args Args) error {
		t, err := decodeArgs[T](args)
		if err == nil {
			fn(ctx, t)
		}
		return err
	}
}

func decodeArgs[T any](args Args) (t T, err error) {
	if err := args.Decode(&t); err != nil {
		return t, fmt.Errorf("arguments: %w", err)
	}
	return t, nil
}

// Locked tells, inside of a handler, whether a job of the class with these
// arguments holds its class lock, the asking job included. args are as for
// client.Enqueue. The class must have a Lock.
func Locked(ctx context.Context, class string, args any) (bool, error) {
	s, err := locksFrom(ctx)
	if err != nil {
		return false, err
	}
	return s.Locked(ctx, class, args)
}

// Enqueued tells, inside of a handler, whether a loner job of the class with
// these arguments waits in its queue.
func Enqueued(ctx context.Context, class string, args any) (bool, error) {
	s, err := locksFrom(ctx)
	if err != nil {
		return false, err
	}
	return s.Enqueued(ctx, class, args)
}

// LonerLocked tells, inside of a handler, whether a job of the class with these
// arguments runs or, if the class is a loner, waits: whether enqueueing it would
// be refused.
func LonerLocked(ctx context.Context, class string, args any) (bool, error) {
	s, err := locksFrom(ctx)
	if err != nil {
		return false, err
	}
	return s.LonerLocked(ctx, class, args)
}

// RefreshLock begins the time limit of the job's class lock anew: the job may
// hold it for another Timeout from now on. It returns ErrNotLocked if the job has no
// class lock and ErrLockLost if somebody else has it by now. For a lock without
// a time limit it only checks that.
func RefreshLock(ctx context.Context) error {
	s, err := locksFrom(ctx)
	if err != nil {
		return err
	}
	return s.RefreshLock(ctx)
}

func locksFrom(ctx context.Context) (jobctx.Locks, error) {
	if l := jobctx.LocksFrom(ctx); l != nil {
		return l, nil
	}
	return nil, ErrOutsideJob
}

package resqued

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/resqued/resqued/internal/jobctx"
)

// Values of ClassLock.OnLocked: what happens to a job whose class lock is held.
const (
	// LockedDrop ends the job without running it, as resque-lock-timeout does. The drop is
	// logged and counted.
	LockedDrop = "drop"
	// LockedRequeue puts the job back at the tail of its queue after a second.
	LockedRequeue = "requeue"
	// LockedFail fails the job.
	LockedFail = "fail"
)

// Values of Lock.Store and ClassLock.Store: where class locks are kept.
const (
	StoreRedis    = "redis"
	StorePostgres = "postgres"
)

// ErrNotLocked means that the job holds no class lock, so there is nothing to refresh.
var ErrNotLocked = errors.New("resqued: the job holds no class lock")

// ErrOutsideJob means that Locked, Enqueued, LonerLocked or RefreshLock was called with a
// context that does not belong to a running job.
var ErrOutsideJob = errors.New("resqued: no locks here: the context is not that of a running job")

// Lock is the option that gives a class a lock, as Ruby's resque-lock-timeout does: of the jobs
// with the same key one runs at a time, in Go and in Ruby. T is the type of the handler's
// arguments, or Args. With the zero value, jobs with the same class and arguments have the same
// key and no time limit.
//
// A job takes the lock before it runs. If the lock is held, the job is dropped unless
// OnLockFailed decides otherwise. The lock is released when the job ends, and at once when its
// worker process dies.
//
// The key is lock:<class>:<identifier>, after the daemon's namespace. The identifier is all
// arguments joined by "-". At most one of Identifier, ClassWide and Key changes that.
//
// A lock can be kept in PostgreSQL instead of Redis, which may be more durable.
// Job.LockSequence is then its fencing token.
type Lock[T any] struct {
	// Timeout is how long a job may hold the lock, and therefore run; 0 = no limit. Then the
	// job's context ends with ErrTimeout. RefreshLock restarts the time.
	Timeout time.Duration
	// TimeoutFunc computes the timeout from the arguments, instead of Timeout; 0 or less = no
	// limit.
	TimeoutFunc func(args T) time.Duration

	// Identifier computes the identifier in the key. If it returns "", the key ends in a colon.
	Identifier func(args T) string
	// ClassWide makes the key lock:<class>, without an identifier.
	ClassWide bool
	// Key computes the whole key.
	Key func(args T) string

	// Redis is the URL of another Redis that keeps the locks; empty = the daemon's own.
	// If a worker process dies, its locks there stay until they expire.
	Redis string
	// Store is where the locks are kept: StoreRedis, or StorePostgres for the daemon's
	// database_url, in the table of package locker; empty = StoreRedis. If a worker process
	// dies, its locks in PostgreSQL stay until their lease expires. StorePostgres cannot be
	// combined with Redis or Loner.
	Store string
	// Loner makes the client refuse to enqueue a job while a job with the same key waits or
	// runs.
	Loner bool

	// OnLockFailed is called when the lock is held. If it returns nil, the job is dropped;
	// Requeue puts it back into its queue; any other error fails it.
	OnLockFailed func(ctx context.Context, args T) error
	// OnLonerEnqueueFailed is called in the client when it refuses to enqueue a loner job.
	OnLonerEnqueueFailed func(ctx context.Context, args T)
	// OnLockExpiredBeforeRelease is called if the timeout passes while the job still runs. It
	// runs concurrently with the handler. The job does not end before it has returned.
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

// ClassLock is the Lock of a registered class. Its fields match those of Lock, but its
// functions take undecoded arguments and return an error if they cannot decode them. To give a
// class a lock, use the option Lock.
type ClassLock struct {
	Timeout     time.Duration
	TimeoutFunc func(args Args) (time.Duration, error)

	Identifier func(args Args) (string, error)
	ClassWide  bool
	Key        func(args Args) (string, error)

	Redis string
	Store string
	Loner bool
	// OnLocked says what happens to a job whose lock is held if OnLockFailed is nil:
	// LockedDrop, LockedRequeue or LockedFail; empty = LockedDrop.
	OnLocked string

	OnLockFailed               func(ctx context.Context, args Args) error
	OnLonerEnqueueFailed       func(ctx context.Context, args Args) error
	OnLockExpiredBeforeRelease func(ctx context.Context, args Args) error
}

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

// Locked reports whether a job of the class with these arguments holds its class lock. That may
// be the calling job itself, and args may be what its handler decoded. ctx must be a handler's.
// args are as for Enqueue in package client. The class must have a Lock.
func Locked(ctx context.Context, class string, args any) (bool, error) {
	s, err := locksFrom(ctx)
	if err != nil {
		return false, err
	}
	return s.Locked(ctx, class, args)
}

// Enqueued reports whether a loner job of the class with these arguments waits in its queue.
// ctx must be a handler's. args are as for Enqueue in package client. The class must have a
// Lock.
func Enqueued(ctx context.Context, class string, args any) (bool, error) {
	s, err := locksFrom(ctx)
	if err != nil {
		return false, err
	}
	return s.Enqueued(ctx, class, args)
}

// LonerLocked reports whether a job of the class with these arguments runs or, if the class is
// a loner, waits: whether enqueueing another one would be refused. ctx must be a handler's.
// args are as for Enqueue in package client. The class must have a Lock.
func LonerLocked(ctx context.Context, class string, args any) (bool, error) {
	s, err := locksFrom(ctx)
	if err != nil {
		return false, err
	}
	return s.LonerLocked(ctx, class, args)
}

// RefreshLock restarts the time limit of the job's class lock: the job may hold it for another
// Timeout from now on. ctx must be a handler's. RefreshLock returns ErrNotLocked if the job has
// no class lock, and ErrLockLost if the job no longer holds it. For a lock without a time limit
// it only checks that the job holds it.
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

// Package classlock takes class locks: locks that jobs of one class take by their arguments, as
// with resque-lock-timeout. [Locks] takes, keeps and releases the locks of one process's jobs, in
// the daemon's Redis, in another one or in PostgreSQL (package postgres). A [Claim] is what a
// job's thread and the loop of its process know about the job's lock.
package classlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// requeueLocked is how long a job waits that was requeued because its lock is held.
	requeueLocked = time.Second
	// The pauses between two attempts to reach Redis.
	firstPause = 20 * time.Millisecond
	longPause  = 2 * time.Second
	// complainEvery is how often a lasting problem is logged.
	complainEvery = time.Minute
)

// Store is where class locks are kept; *store.Store is one in Redis. If it has a method KeepsAll
// that returns true, locks with a time limit must be extended, too.
type Store interface {
	AcquireLock(ctx context.Context, req store.AcquireRequest) (store.AcquireReply, error)
	RefreshLock(ctx context.Context, l store.HeldLock) (store.AcquireReply, error)
	LockExpires(ctx context.Context, l store.HeldLock) (int64, error)
	KeepLocks(ctx context.Context, locks []store.HeldLock) (lost []int, err error)
	ReleaseLock(ctx context.Context, l store.HeldLock) error
	LockState(ctx context.Context, key string, elsewhere bool) (store.LockState, error)
	Where() string
	Close() error
}

// Config describes the process whose jobs take class locks.
type Config struct {
	// Store is the daemon's own Redis, URL its address. A class that names the same address
	// keeps its locks there.
	Store Store
	URL   string
	// Open returns the store of another Redis without connecting.
	Open func(url string) (Store, error)
	// OpenPostgres returns the store of locks in PostgreSQL.
	OpenPostgres func() (Store, error)
	// Classes are the names of all classes, Class finds one.
	Classes []string
	Class   func(name string, wrappers ...string) (*resqued.Class, bool)
	// Style is how hashes in arguments are written in keys.
	Style wire.RubyStyle
	// Grace is how long a job may take to stop (resque_term_timeout).
	Grace time.Duration
	// TTL is the expiry of locks without a time limit (job_lock_duration), BeatEvery how often
	// those elsewhere are extended.
	TTL, BeatEvery time.Duration
	// Guard runs the program's code and returns panics as errors.
	Guard func(fn func() error) error
	// Redact is what must not be shown of arguments, which keys contain.
	Redact *redact.Rules
	// Boot is a clock that also runs while the machine sleeps.
	Boot func() time.Duration
	Log  *zap.Logger
}

// Locks takes the class locks of one process's jobs, for all its threads.
//
// The process's beat extends locks in the daemon's own Redis; they are released with the job's
// completion or by the recovery of a dead process. Every other Redis, and PostgreSQL, has a
// keeper: a goroutine from New until Close that extends the locks there.
type Locks struct {
	cfg     Config
	keepers map[string]*keeper // by place
	stop    context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	complained map[string]time.Time
}

// inPostgres is the place of all locks in PostgreSQL; other places are URLs.
const inPostgres = resqued.StorePostgres

// place is where the locks of a class are kept; empty = the daemon's own Redis.
func (c *Locks) place(lock *resqued.ClassLock) string {
	switch {
	case lock.Store == resqued.StorePostgres:
		return inPostgres
	case lock.Redis == c.cfg.URL:
		return ""
	}
	return lock.Redis
}

func (c *Locks) openPlace(place string) (Store, error) {
	if place == inPostgres {
		return c.cfg.OpenPostgres()
	}
	return c.cfg.Open(place)
}

// keeperOf returns the keeper of a class's locks; nil = the beat keeps them.
func (c *Locks) keeperOf(lock *resqued.ClassLock) *keeper { return c.keepers[c.place(lock)] }

// New opens the stores of classes that keep their locks outside the daemon's Redis. It does not connect.
func New(cfg Config) (*Locks, error) {
	c := &Locks{cfg: cfg, keepers: map[string]*keeper{}, complained: map[string]time.Time{}}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	for _, name := range cfg.Classes {
		class, ok := cfg.Class(name)
		if !ok || class.Lock == nil {
			continue
		}
		place := c.place(class.Lock)
		if place == "" || c.keepers[place] != nil {
			continue
		}
		s, err := c.openPlace(place)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("lock of class %q: %w", name, err)
		}
		k := newKeeper(s, cfg)
		c.keepers[place] = k
		c.running.Go(func() { k.run(ctx) })
	}
	return c, nil
}

// Close stops the keepers and closes their stores. No job may run any more.
func (c *Locks) Close() {
	c.stop()
	c.running.Wait()
	for _, k := range c.keepers {
		_ = k.store.Close()
	}
}

// Lock takes the job's class lock, if its class has one. The job runs under the returned context;
// unlock is called when its code has ended. Lock retries until Redis answers or ctx ends: a job
// never runs without its lock. If another job holds the lock, the error is a [HeldError].
func (c *Locks) Lock(ctx context.Context, job *resqued.Job, claim *Claim) (context.Context, func(), error) {
	class, ok := c.cfg.Class(job.Class, jobctx.RunOf(job).Wrappers...)
	if !ok || class.Lock == nil {
		return jobctx.WithLocks(ctx, service{locks: c}), func() {}, nil
	}
	want, err := c.want(class, job, claim)
	if err != nil {
		return nil, nil, err
	}
	claim.Update(func(s *ClaimState) { s.Key = want.Key })
	sent, reply, err := c.acquire(ctx, job, want, c.storeOf(class.Lock), claim)
	switch {
	case err != nil:
		return nil, nil, err
	case reply.Late:
		return nil, nil, fmt.Errorf("%w: its record in redis is gone, so it was given up", resqued.Discard)
	case !reply.Got:
		if want.Elsewhere && job.Deaths > 0 {
			// It may be the job's own lock: the lock of a dead process is not released there but has
			// to expire. The job must not be dropped for it.
			return nil, nil, fmt.Errorf("%w: %w", &HeldError{Key: c.shown(job, want.Key), Holder: reply.Holder}, resqued.Requeue(requeueLocked))
		}
		return nil, nil, c.refused(jobctx.WithLocks(ctx, service{locks: c}), class.Lock, job, want.Key, reply.Holder)
	}
	job.LockSequence = reply.Sequence
	l := newLease(ctx, c, class.Lock, job, claim, want.HeldLock, sent, reply.Expires)
	return l.ctx, l.unlock, nil
}

func (c *Locks) want(class *resqued.Class, job *resqued.Job, claim *Claim) (store.AcquireRequest, error) {
	req := store.AcquireRequest{
		HeldLock: store.HeldLock{
			Proc: claim.Proc, Token: claim.Token, Grace: c.cfg.Grace, Elsewhere: c.elsewhere(class.Lock),
		},
		Loner: class.Lock.Loner,
	}
	if req.Elsewhere {
		req.Queue, req.Payload = job.Queue, job.Payload
	}
	err := c.cfg.Guard(func() (err error) {
		if req.Key, err = wire.ClassLockKey(class, job.Class, job.Args, c.cfg.Style); err != nil {
			return err
		}
		req.Timeout, err = wire.ClassLockTimeout(class.Lock, job.Args)
		return err
	})
	return req, err
}

// moment is a time by the process's clock, for limits that count while it runs, and by a clock
// that also runs while the machine sleeps, for what Redis counts.
type moment struct {
	at   time.Time
	boot time.Duration
}

// acquire repeats the request until it is answered, and returns when the answered one was sent.
func (c *Locks) acquire(ctx context.Context, job *resqued.Job, req store.AcquireRequest, s Store, claim *Claim) (moment, store.AcquireReply, error) {
	if !req.Elsewhere {
		// Set before sending: without an answer, the lock may be held anyway.
		claim.Update(func(s *ClaimState) { s.Asked = true })
	}
	unknown := false
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if ctx.Err() != nil {
			if unknown && req.Elsewhere {
				c.giveUp(ctx, job, req.HeldLock, s, claim)
			}
			return moment{}, store.AcquireReply{}, fmt.Errorf("%w while it waited for its class lock %s",
				context.Cause(ctx), c.shown(job, req.Key))
		}
		sent := moment{at: time.Now(), boot: c.cfg.Boot()}
		reply, err := s.AcquireLock(ctx, req)
		unknown = unknown || err != nil && !rdb.Unexecuted(err)
		switch {
		case err == nil && reply.Got && req.Elsewhere && c.cfg.Boot()-sent.boot >= c.cfg.stopAfter():
			continue // the answer took so long that the lock is about to expire
		case err == nil:
			return sent, reply, nil
		case rdb.WrongType(err), isBroken(err):
			return sent, reply, &lockError{c.shownError(job, req.Key, err)}
		case ctx.Err() == nil && !errors.Is(err, store.ErrFenced): // after ErrFenced, the next beat revives the lease
			c.complain(s, "a class lock cannot be taken; its job waits, trying again", zap.String("lock", c.shown(job, req.Key)), zap.Error(c.shownError(job, req.Key, err)))
		}
		sleep(ctx, pause/2+time.Duration(rand.Int64N(int64(pause))))
	}
}

// giveUp releases a lock elsewhere that an unanswered request may have taken.
func (c *Locks) giveUp(ctx context.Context, job *resqued.Job, l store.HeldLock, s Store, claim *Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.ReleaseLock(ctx, l); err != nil {
		claim.Update(func(s *ClaimState) { s.Left = true })
		c.complain(s, "a class lock that may have been taken cannot be released; it is left to expire",
			zap.String("lock", c.shown(job, l.Key)), zap.Error(c.shownError(job, l.Key, err)))
	}
}

// refused returns the error that decides about a job whose lock is held.
func (c *Locks) refused(ctx context.Context, lock *resqued.ClassLock, job *resqued.Job, key, holder string) error {
	held := &HeldError{Key: c.shown(job, key), Holder: holder}
	if lock.OnLockFailed != nil {
		if err := c.cfg.Guard(func() error { return lock.OnLockFailed(ctx, job.Args) }); err != nil {
			return err
		}
	}
	switch lock.OnLocked {
	case resqued.LockedRequeue:
		return fmt.Errorf("%w: %w", held, resqued.Requeue(requeueLocked))
	case resqued.LockedFail:
		return held
	}
	held.Drop = true
	return held
}

func (c *Locks) elsewhere(lock *resqued.ClassLock) bool { return c.keeperOf(lock) != nil }

// Ends returns when, by Boot, the first lock kept elsewhere is about to expire unless extended:
// the process must be gone by then. 0 = there are none.
func (c *Locks) Ends() (ends time.Duration) {
	for _, k := range c.keepers {
		if end := k.ends(); end > 0 && (ends == 0 || end < ends) {
			ends = end
		}
	}
	return ends
}

func (c *Locks) storeOf(lock *resqued.ClassLock) Store {
	if k := c.keeperOf(lock); k != nil {
		return k.store
	}
	return c.cfg.Store
}

// complain logs a lasting problem of a store, once per complainEvery.
func (c *Locks) complain(s Store, text string, fields ...zap.Field) {
	c.mu.Lock()
	recent := time.Since(c.complained[s.Where()]) < complainEvery
	if !recent {
		c.complained[s.Where()] = time.Now()
	}
	c.mu.Unlock()
	if !recent {
		c.cfg.Log.Error(text, append(fields, zap.String("where", s.Where()))...)
	}
}

// shown returns the key of a job's lock in the form that may be shown.
func (c *Locks) shown(job *resqued.Job, key string) string {
	return wire.Printable(c.cfg.Redact.Key(store.TimeoutLock, job.Class, []byte(job.Args.String()), key, jobctx.RunOf(job).Wrappers...), 300)
}

// shownError returns err without the parts of the key that must not be shown.
func (c *Locks) shownError(job *resqued.Job, key string, err error) error {
	if err == nil || !c.cfg.Redact.Any() {
		return err
	}
	shown, quoted := c.shown(job, key), strconv.Quote(key)
	if shown == wire.Printable(key, 300) {
		return err
	}
	return &shownError{err, strings.NewReplacer(key, shown, quoted[1:len(quoted)-1], shown).Replace(err.Error())}
}

type shownError struct {
	error
	text string
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.error }

type lockError struct{ err error }

func (e *lockError) Error() string { return "class lock: " + e.err.Error() }
func (e *lockError) Unwrap() error { return e.err }

// isBroken reports whether err comes from the store and repeating the call is useless.
func isBroken(err error) bool {
	e, ok := errors.AsType[interface {
		error
		LockBroken() bool
	}](err)
	return ok && e.LockBroken()
}

func (e *lockError) Exception() string { return "Resqued::LockBroken" }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

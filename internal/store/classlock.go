package store

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

// This file has class locks and loner markers. Keys here lack the namespace: lock:Graph:7, for example; the
// marker of a lock is loner:<lock>.
//
// Elsewhere: the call goes to another Redis than the one with the queues and in-flight records. A lock there
// expires instead of being freed with its holder's record, and only its owner's calls touch it.

// lockMargin is how much longer than its job a lock with a time limit may stay in Redis, so that it never
// ends first.
const lockMargin = 10 * time.Second

// elsewhereMarkTTL bounds a loner marker without a time limit in another Redis, which does not show when its
// job is gone.
const elsewhereMarkTTL = 24 * time.Hour

var (
	classlockAcquireScript   = rdb.NewScript(Lua, "classlock_acquire", "lib/base", "lib/records", "lib/classlock", "classlock_acquire")
	classlockRefreshScript   = rdb.NewScript(Lua, "classlock_refresh", "lib/base", "lib/records", "lib/classlock", "classlock_refresh")
	classlockHeartbeatScript = rdb.NewScript(Lua, "classlock_heartbeat", "lib/base", "lib/records", "lib/classlock", "classlock_heartbeat")
	classlockReleaseScript   = rdb.NewScript(Lua, "classlock_release", "lib/base", "lib/records", "lib/classlock", "classlock_release")
	classlockStateScript     = rdb.NewScript(Lua, "classlock_state", "lib/base", "lib/records", "lib/classlock", "classlock_state")
	classlockExtendScript    = rdb.NewScript(Lua, "classlock_extend", "lib/base", "lib/records", "lib/classlock", "classlock_extend")
	enqueueLonerScript       = rdb.NewScript(Lua, "enqueue_loner", "lib/base", "lib/records", "lib/rights", "lib/classlock", "lib/unique", "enqueue_loner")
)

// MarkerKey returns the key of a class lock's loner marker.
func MarkerKey(lock string) string { return "loner:" + lock }

// HeldLock names a class lock and the job that holds or wants it.
type HeldLock struct {
	Proc, Token string
	Key         string
	// Timeout is how long the job may hold it; 0 = no limit.
	Timeout time.Duration
	// Grace is how much longer the job may take to stop.
	Grace     time.Duration
	Elsewhere bool
}

// owner is the holder's name in the lock's value, like owner in rdb/lua/lib/base.lua.
func (l HeldLock) owner() string { return "resqued:" + l.Proc + "#" + l.Token }

// ttl returns the key's expiry in seconds.
func (s *Store) ttl(l HeldLock) int64 {
	if l.Timeout == 0 {
		return seconds(s.opts.Load().LockTTL)
	}
	return expireAfter(l.Timeout, l.Grace+lockMargin)
}

// expireAfter returns an expiry in seconds without overflow. The extra second lets readers convert it back to
// a duration, rounded up.
func expireAfter(limit, margin time.Duration) int64 {
	return seconds(min(limit, math.MaxInt64-margin-time.Second) + margin)
}

// AcquireRequest asks for the class lock of a job in hand.
type AcquireRequest struct {
	HeldLock
	// Loner: remove the job's loner marker, even if it does not get the lock.
	Loner bool
	// Queue and Payload identify the job for its marker; only needed elsewhere.
	Queue   string
	Payload []byte
}

// AcquireReply answers an AcquireRequest.
type AcquireReply struct {
	Got bool
	// Late: the job's record is gone. It must not run, and its end will change nothing.
	Late bool
	// Holder has the lock if the job does not; see func Holder.
	Holder string
	// Expires is the time in the lock's value, in seconds since 1970; 0 = none.
	Expires int64
	// Sequence is the fencing token of a lock in PostgreSQL.
	Sequence int64
}

// AcquireLock takes a class lock. For the same job it only restarts the lock's time, so it may be repeated
// after an unknown outcome. It returns ErrFenced if the process has no valid lease.
func (s *Store) AcquireLock(ctx context.Context, req AcquireRequest) (AcquireReply, error) {
	marker := ""
	if req.Loner {
		marker = s.db.Key(MarkerKey(req.Key))
	} else {
		req.Queue, req.Payload = "", nil // only for the marker, and maybe large
	}
	return s.evalLock(ctx, classlockAcquireScript, req.HeldLock,
		s.ttl(req.HeldLock), marker, rdb.Flag(req.Elsewhere), req.Queue, req.Payload, s.leaseLeft().Milliseconds())
}

// RefreshLock restarts the time of a class lock. Without Got, the lock is no longer the job's; Holder then has
// it, "" = free.
func (s *Store) RefreshLock(ctx context.Context, l HeldLock) (AcquireReply, error) {
	return s.evalLock(ctx, classlockRefreshScript, l, s.ttl(l), rdb.Flag(l.Elsewhere))
}

// ExtendLock restarts the time of a class lock for its holder, and reports whether it is held.
func (s *Store) ExtendLock(ctx context.Context, key string, timeout time.Duration, elsewhere bool) (held bool, err error) {
	raw, err := s.db.Eval(ctx, classlockExtendScript, s.db.Key(key), []any{s.db.Prefix, timeout.Milliseconds(), rdb.Flag(elsewhere)})
	return rdb.Number(raw) == 1, err
}

// LockExpires returns the time in the value of a job's lock, in seconds since 1970; 0 if there is none or the
// lock is no longer the job's.
func (s *Store) LockExpires(ctx context.Context, l HeldLock) (int64, error) {
	value, err := s.db.Read.Get(ctx, s.db.Key(l.Key)).Result()
	switch {
	case rdb.IsNil(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", l.Key, err)
	}
	if _, name, ok := strings.Cut(value, ":"); !ok || name != l.owner() {
		return 0, nil
	}
	return expiry(value), nil
}

// expiry returns the time in a value of ours.
func expiry(value string) int64 {
	digits, _, _ := strings.Cut(value, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

func (s *Store) evalLock(ctx context.Context, sc *rdb.Script, l HeldLock, more ...any) (AcquireReply, error) {
	key := s.db.Key(rdb.KeyInflight) + l.Proc
	if l.Elsewhere {
		key = s.db.Key(l.Key)
	}
	args := append([]any{s.db.Prefix, l.Proc, l.Token, s.db.Key(l.Key), l.Timeout.Milliseconds()}, more...)
	list, err := s.db.EvalList(ctx, sc, key, args, 1, 2)
	if err != nil {
		return AcquireReply{}, err
	}
	switch status := list.Text(0); {
	case status == "FENCED":
		return AcquireReply{}, ErrFenced
	case status == "LATE":
		return AcquireReply{Late: true}, nil
	case status == "OK" && len(list) == 2:
		return AcquireReply{Got: true, Expires: expiry(list.Text(1))}, nil
	case (status == "HELD" || status == "LOST") && len(list) == 2:
		return AcquireReply{Holder: Holder(list.Text(1))}, nil
	}
	return AcquireReply{}, fmt.Errorf("script %s: unexpected reply %q", sc.Name, list)
}

// KeepLocks extends this process's locks without a time limit that are kept elsewhere, and returns the indexes
// of lost ones.
func (s *Store) KeepLocks(ctx context.Context, locks []HeldLock) (lost []int, err error) {
	if len(locks) == 0 {
		return nil, nil
	}
	args := []any{seconds(s.opts.Load().LockTTL)}
	for _, l := range locks {
		args = append(args, s.db.Key(l.Key), l.owner())
	}
	raw, err := s.db.Eval(ctx, classlockHeartbeatScript, s.db.Key(locks[0].Key), args)
	if err != nil {
		return nil, err
	}
	list, _ := raw.([]any)
	for _, index := range list {
		if i := int(rdb.Number(index)); i >= 0 && i < len(locks) {
			lost = append(lost, i)
		}
	}
	return lost, nil
}

// ReleaseLock releases a lock kept elsewhere if it is still the job's. Locks in the daemon's own Redis are
// released by their job's completion.
func (s *Store) ReleaseLock(ctx context.Context, l HeldLock) error {
	_, err := s.db.Eval(ctx, classlockReleaseScript, s.db.Key(l.Key), []any{l.owner()})
	return err
}

// LockState is the state of a class lock.
type LockState struct {
	// Holder has the lock, see func Holder; empty = free.
	Holder string
	// Marked: a loner job for this lock waits.
	Marked bool
}

// LockState returns the holder of a class lock and whether a loner job waits for it. Expired entries and
// those of dead processes do not count.
func (s *Store) LockState(ctx context.Context, key string, elsewhere bool) (LockState, error) {
	list, err := s.db.EvalList(ctx, classlockStateScript, s.db.Key(key), []any{s.db.Prefix, s.db.Key(MarkerKey(key)), rdb.Flag(elsewhere)}, 2)
	if err != nil {
		return LockState{}, err
	}
	return LockState{Holder: Holder(list.Text(0)), Marked: list.Number(1) == 1}, nil
}

// The outcomes of EnqueueLoner.
const (
	LonerPushed    = "OK"
	LonerLocked    = "LOCKED"    // a job with the same lock runs
	LonerDuplicate = "DUPLICATE" // a job with the same lock, or an equal one, waits
)

// LonerRequest enqueues a job unless one with the same class lock runs or waits.
type LonerRequest struct {
	// Key is the job's class lock, Timeout its time limit; 0 = none.
	Key     string
	Timeout time.Duration
	Queue   string
	Payload []byte
	// Unique and Strict describe Queue.
	Unique, Strict bool
	// Elsewhere: the marker is set, but nothing is pushed.
	Elsewhere bool
}

// LonerReply answers a LonerRequest.
type LonerReply struct {
	Status string
	// Length is the queue's new length.
	Length int64
	// Holder runs, for LonerLocked.
	Holder string
}

// EnqueueLoner pushes a loner job, all in one script. It returns ErrOutOfStep, with nothing done, for a strict
// queue out of step with its companions. After any other error the outcome is unknown unless Unexecuted.
func (s *Store) EnqueueLoner(ctx context.Context, req LonerRequest) (LonerReply, error) {
	ttl := int64(0)
	switch {
	case req.Timeout > 0:
		ttl = expireAfter(req.Timeout, lockMargin)
	case req.Elsewhere:
		ttl = seconds(elsewhereMarkTTL)
	}
	list, err := s.db.EvalList(ctx, enqueueLonerScript, s.db.Key(req.Key), []any{
		s.db.Prefix, s.db.Key(MarkerKey(req.Key)), req.Timeout.Milliseconds(), ttl,
		req.Queue, req.Payload, letters(req.Unique, 'u', req.Strict, 's', req.Elsewhere, 'e'),
	}, 1, 2)
	if err != nil {
		return LonerReply{}, fmt.Errorf("push to %q: %w", req.Queue, err)
	}
	reply := LonerReply{Status: list.Text(0)}
	switch {
	case reply.Status == LonerPushed && len(list) == 2:
		reply.Length = list.Number(1)
	case reply.Status == LonerLocked && len(list) == 2:
		reply.Holder = Holder(list.Text(1))
	case reply.Status == LonerDuplicate:
	case reply.Status == "STEP":
		return LonerReply{}, fmt.Errorf("push to %q: %w; run: resqued locks repair %s", req.Queue, ErrOutOfStep, req.Queue)
	default:
		return LonerReply{}, fmt.Errorf("script enqueue_loner: unexpected reply %v", list)
	}
	return reply, nil
}

// Unmark removes the loner marker of a job that will not start: it was removed, or could not be pushed. Another
// job's marker stays.
func (s *Store) Unmark(ctx context.Context, key, queue string, payload []byte) (removed bool, err error) {
	name := "queue:" + strconv.Itoa(len(queue)) + ":" + queue + string(payload)
	raw, err := s.db.Eval(ctx, classlockReleaseScript, s.db.Key(MarkerKey(key)), []any{name})
	return rdb.Number(raw) == 1, err
}

// Holder returns the holder of a class lock from its value: <process>#<token> for a lock of ours; for one of
// resque-lock-timeout, which contains no name, the value.
func Holder(value string) string {
	_, name, ok := strings.Cut(value, ":")
	if holder, ours := strings.CutPrefix(name, "resqued:"); ok && ours {
		return holder
	}
	return value
}

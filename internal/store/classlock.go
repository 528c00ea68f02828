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

// Class locks and loner markers. Their keys here are without the namespace, for
// example lock:Graph:7; the marker of a lock is loner:<lock>.
//
// Elsewhere says that a call goes to another Redis than the one that holds the
// queues and the in-flight records. A lock there expires instead of being freed
// with its holder's record, and nothing but its owner's calls touches it.

// lockMargin is how much longer than its job a lock with a time limit may stay in
// Redis, so that it never ends before the job has.
const lockMargin = 10 * time.Second

// elsewhereMarkTTL bounds a loner marker without a time limit in another Redis,
// where nothing shows that its job is gone.
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

// MarkerKey is the key of the loner marker of a class lock.
func MarkerKey(lock string) string { return "loner:" + lock }

// HeldLock names a class lock and the job that holds it, or is to hold it.
type HeldLock struct {
	Proc, Token string
	Key         string
	// Timeout is how long the job may hold it; 0 = no limit.
	Timeout time.Duration
	// Grace is how much longer than that the job may take to stop.
	Grace time.Duration
	// Elsewhere: see above.
	Elsewhere bool
}

// owner is the name of the holder in the lock's value, as owner in rdb/lua/lib/base.lua.
func (l HeldLock) owner() string { return "resqued:" + l.Proc + "#" + l.Token }

// ttl is the expiry of the key.
func (s *Store) ttl(l HeldLock) int64 {
	if l.Timeout == 0 {
		return seconds(s.opts.Load().LockTTL)
	}
	return expireAfter(l.Timeout, l.Grace+lockMargin)
}

// expireAfter is an expiry in seconds. Time limits may be as long as a duration can be; the
// second is for whoever reads it back as a duration, which is rounded up.
func expireAfter(limit, margin time.Duration) int64 {
	return seconds(min(limit, math.MaxInt64-margin-time.Second) + margin)
}

// AcquireRequest asks for the class lock of a job in hand.
type AcquireRequest struct {
	HeldLock
	// Loner: the job's loner marker is removed, whether it gets the lock or not.
	Loner bool
	// Queue and Payload name the job for its marker; only needed elsewhere.
	Queue   string
	Payload []byte
}

// AcquireReply answers an AcquireRequest.
type AcquireReply struct {
	Got bool
	// Late: the record of the job is gone. It must not run, and its end will change
	// nothing.
	Late bool
	// Holder is who has the lock if not the job; see Holder.
	Holder string
	// Expires is the time in the lock's value, in seconds since 1970; 0 = none.
	Expires int64
	// Sequence is the fencing token of a lock in PostgreSQL.
	Sequence int64
}

// AcquireLock takes a class lock. Taken again for the same job it only begins its
// time anew, so that the call may be repeated after an unknown outcome. It returns
// ErrFenced when the process has no valid lease.
func (s *Store) AcquireLock(ctx context.Context, req AcquireRequest) (AcquireReply, error) {
	marker := ""
	if req.Loner {
		marker = s.db.Key(MarkerKey(req.Key))
	} else {
		req.Queue, req.Payload = "", nil // they are for the marker, and may be large
	}
	list, err := s.evalLock(ctx, classlockAcquireScript, req.HeldLock,
		s.ttl(req.HeldLock), marker, rdb.Flag(req.Elsewhere), req.Queue, req.Payload, s.leaseLeft().Milliseconds())
	if err != nil {
		return AcquireReply{}, err
	}
	switch list[0] {
	case "FENCED":
		return AcquireReply{}, ErrFenced
	case "LATE":
		return AcquireReply{Late: true}, nil
	case "OK":
		return AcquireReply{Got: true, Expires: expiry(list[1])}, nil
	case "HELD":
		return AcquireReply{Holder: Holder(list[1])}, nil
	}
	return AcquireReply{}, fmt.Errorf("script classlock_acquire: unexpected reply %q", list)
}

// RefreshLock begins the time of a class lock anew. The reply is not Got when the
// lock is not the job's any more; Holder is then who has it, "" if the lock is free.
func (s *Store) RefreshLock(ctx context.Context, l HeldLock) (AcquireReply, error) {
	list, err := s.evalLock(ctx, classlockRefreshScript, l, s.ttl(l), rdb.Flag(l.Elsewhere))
	if err != nil {
		return AcquireReply{}, err
	}
	switch list[0] {
	case "FENCED":
		return AcquireReply{}, ErrFenced
	case "LOST":
		return AcquireReply{Holder: Holder(list[1])}, nil
	case "OK":
		return AcquireReply{Got: true, Expires: expiry(list[1])}, nil
	}
	return AcquireReply{}, fmt.Errorf("script classlock_refresh: unexpected reply %q", list)
}

// ExtendLock begins the time of a class lock anew for its holder. It reports whether the
// lock is held.
func (s *Store) ExtendLock(ctx context.Context, key string, timeout time.Duration, elsewhere bool) (held bool, err error) {
	raw, err := s.db.Eval(ctx, classlockExtendScript, s.db.Key(key), []any{s.db.Prefix, timeout.Milliseconds(), rdb.Flag(elsewhere)})
	return rdb.Number(raw) == 1, err
}

// LockExpires returns the time in the value of a job's lock, in seconds since 1970;
// 0 if it has none, or the lock is not the job's any more.
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

// expiry is the time in a value of ours.
func expiry(value string) int64 {
	digits, _, _ := strings.Cut(value, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

func (s *Store) evalLock(ctx context.Context, sc *rdb.Script, l HeldLock, more ...any) ([]string, error) {
	key := s.db.Key(rdb.KeyInflight) + l.Proc
	if l.Elsewhere {
		key = s.db.Key(l.Key)
	}
	args := append([]any{s.db.Prefix, l.Proc, l.Token, s.db.Key(l.Key), l.Timeout.Milliseconds()}, more...)
	raw, err := s.db.Eval(ctx, sc, key, args)
	if err != nil {
		return nil, err
	}
	list := rdb.Texts(raw)
	if len(list) == 0 || list[0] != "FENCED" && list[0] != "LATE" && len(list) < 2 {
		return nil, fmt.Errorf("script %s: unexpected reply %v", sc.Name, raw)
	}
	return list, nil
}

// KeepLocks extends the locks without a time limit that this process holds
// elsewhere, and returns the indexes of those that are lost.
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

// ReleaseLock releases a lock that is held elsewhere. One that is not the job's any
// more is left alone. The locks in the daemon's own Redis go with the completion of
// their job.
func (s *Store) ReleaseLock(ctx context.Context, l HeldLock) error {
	_, err := s.db.Eval(ctx, classlockReleaseScript, s.db.Key(l.Key), []any{l.owner()})
	return err
}

// LockState is the state of a class lock.
type LockState struct {
	// Holder is who holds it, see Holder; empty = it is free.
	Holder string
	// Marked: a loner job with this lock waits.
	Marked bool
}

// LockState returns who holds a class lock and whether a loner job waits for it. What
// has expired, and what a dead process has left, does not count.
func (s *Store) LockState(ctx context.Context, key string, elsewhere bool) (LockState, error) {
	raw, err := s.db.Eval(ctx, classlockStateScript, s.db.Key(key), []any{s.db.Prefix, s.db.Key(MarkerKey(key)), rdb.Flag(elsewhere)})
	if err != nil {
		return LockState{}, err
	}
	list, _ := raw.([]any)
	if len(list) != 2 {
		return LockState{}, fmt.Errorf("script classlock_state: unexpected reply %v", raw)
	}
	value, _ := list[0].(string)
	return LockState{Holder: Holder(value), Marked: rdb.Number(list[1]) == 1}, nil
}

// What became of a loner job.
const (
	LonerPushed    = "OK"
	LonerLocked    = "LOCKED"    // one with the same lock runs
	LonerDuplicate = "DUPLICATE" // one with the same lock, or an equal one, waits
)

// LonerRequest enqueues a job unless one with the same class lock runs or waits.
type LonerRequest struct {
	// Key is the class lock of the job, Timeout its time limit; 0 = none.
	Key     string
	Timeout time.Duration
	Queue   string
	Payload []byte
	// Unique and Strict are those of Queue.
	Unique, Strict bool
	// Elsewhere: see above. The marker is left, but nothing is pushed.
	Elsewhere bool
}

// LonerReply answers a LonerRequest.
type LonerReply struct {
	// Status is one of LonerPushed, LonerLocked and LonerDuplicate.
	Status string
	// Length is the queue's new length.
	Length int64
	// Holder is who runs, with LonerLocked.
	Holder string
}

// EnqueueLoner pushes a loner job, all in one script. It returns ErrOutOfStep, with
// nothing done, for a strict queue whose companions do not match it. After any other
// error the outcome is unknown unless Unexecuted.
func (s *Store) EnqueueLoner(ctx context.Context, req LonerRequest) (LonerReply, error) {
	ttl := int64(0)
	switch {
	case req.Timeout > 0:
		ttl = expireAfter(req.Timeout, lockMargin)
	case req.Elsewhere:
		ttl = seconds(elsewhereMarkTTL)
	}
	raw, err := s.db.Eval(ctx, enqueueLonerScript, s.db.Key(req.Key), []any{
		s.db.Prefix, s.db.Key(MarkerKey(req.Key)), req.Timeout.Milliseconds(), ttl,
		req.Queue, req.Payload, letters(req.Unique, 'u', req.Strict, 's', req.Elsewhere, 'e'),
	})
	if err != nil {
		return LonerReply{}, fmt.Errorf("push to %q: %w", req.Queue, err)
	}
	list, _ := raw.([]any)
	reply := LonerReply{}
	if len(list) > 0 {
		reply.Status, _ = list[0].(string)
	}
	switch {
	case reply.Status == LonerPushed && len(list) == 2:
		reply.Length = rdb.Number(list[1])
	case reply.Status == LonerLocked && len(list) == 2:
		value, _ := list[1].(string)
		reply.Holder = Holder(value)
	case reply.Status == LonerDuplicate:
	case reply.Status == "STEP":
		return LonerReply{}, fmt.Errorf("push to %q: %w; run: resqued locks repair %s", req.Queue, ErrOutOfStep, req.Queue)
	default:
		return LonerReply{}, fmt.Errorf("script enqueue_loner: unexpected reply %v", raw)
	}
	return reply, nil
}

// Unmark removes the loner marker of a job that will not start: because it was
// removed from its queue, or could not be pushed. A marker of another job stays.
func (s *Store) Unmark(ctx context.Context, key, queue string, payload []byte) (removed bool, err error) {
	name := "queue:" + strconv.Itoa(len(queue)) + ":" + queue + string(payload)
	raw, err := s.db.Eval(ctx, classlockReleaseScript, s.db.Key(MarkerKey(key)), []any{name})
	return rdb.Number(raw) == 1, err
}

// Holder says who holds a class lock, by its value: for one of ours
// <process>#<token>; for one of resque-lock-timeout, which has no name in it, its value.
func Holder(value string) string {
	_, name, ok := strings.Cut(value, ":")
	if holder, ours := strings.CutPrefix(name, "resqued:"); ok && ours {
		return holder
	}
	return value
}

package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

// This file is about locks of all kinds for people; exchange.go and classlock.go are for jobs.

const (
	LocketLock  = "locket"  // a job lock
	TimeoutLock = "timeout" // a class lock
	LonerMarker = "loner"   // a loner job that waits
)

// The states of locks.
const (
	LockHeld    = "held"
	LockStale   = "stale"   // the holder's process has no lease: dead or cut off
	LockExpired = "expired" // its time is past, but its job still runs or waits
	LockOrphan  = "orphan"  // its job is gone
	LockForeign = "foreign" // not written by resqued, so without a known holder
)

var (
	locksScript      = rdb.NewScript(Lua, "locks", "lib/base", "lib/payload", "lib/payload_functions", "lib/records", "lib/classlock", "lib/lock_info", "locks")
	removeLockScript = rdb.NewScript(Lua, "remove_lock", "lib/base", "lib/rights", "lib/payload", "lib/payload_functions", "lib/records", "lib/blocked_queues", "lib/lines", "lib/limits", "lib/line_locks", "lib/classlock", "lib/lock_info", "remove_lock")
)

// lockFields is the number of fields of a lock in replies; see lock_info.lua.
const lockFields = 16

// payloadRoom is how many bytes of a job's payload are read for a person.
const payloadRoom = 4096

// LockInfo is a lock and its holder.
type LockInfo struct {
	Kind string
	// Key is without the namespace.
	Key   string
	State string
	// Value is the beginning of the key's value, Digest identifies all of it.
	Value, Digest string
	// TTL is the key's remaining life, negative = for ever.
	TTL time.Duration
	// Expires is the time in the value of a class lock or marker; zero = none.
	Expires time.Time
	// Proc and Token name the holder's in-flight record, if the value is ours.
	Proc, Token string
	// Job is the holder, or a marker's waiting job; nil = unknown.
	Job *LockJob
	// At is when the lock was read, by Redis's clock.
	At time.Time
}

// LockJob is the job behind a lock.
type LockJob struct {
	Queue string
	// Worker and Fence are empty for a waiting job.
	Worker string
	Fence  int64
	// Class and Args are as in the payload's JSON; long arguments are cut.
	Class, Args string
	// Wrappers are the classes around an Active Job; Class and Args are its own.
	Wrappers []string
	// Since is when the job was reserved, or enqueued if it waits; zero = unknown.
	Since time.Time
	// Payload is the beginning of the payload, Size its full length.
	Payload []byte
	Size    int64
}

// Age returns how long the job behind the lock has held it or waited; 0 = unknown.
func (l LockInfo) Age() time.Duration {
	if l.Job == nil || l.Job.Since.IsZero() {
		return 0
	}
	return max(time.Millisecond, l.At.Sub(l.Job.Since))
}

// The outcomes of RemoveLock.
const (
	LockReleased = "released"
	LockChanged  = "changed" // another job holds it now
	LockRefused  = "refused" // its holder lives, or that is unknown
)

// RemoveLock releases a lock on a person's request. lock.Digest must be current: another job's newer lock is left
// alone. If the holder may live, force is needed; its job then learns of the loss with its process's next beat.
// found is false if the lock does not exist.
func (s *Store) RemoveLock(ctx context.Context, lock LockInfo, force bool) (outcome string, found bool, err error) {
	raw, err := s.db.Eval(ctx, removeLockScript, s.db.Key(lock.Key), []any{s.db.Prefix, lock.Kind, lock.Digest, rdb.Flag(force)})
	if err != nil {
		return "", false, fmt.Errorf("release lock %q: %w", wire.Printable(lock.Key, 200), err)
	}
	list, _ := raw.([]any)
	if len(list) == 0 {
		return "", false, nil
	}
	outcome, _ = list[0].(string)
	return outcome, true, nil
}

// named is a lock known only by its key.
type named struct{ kind, key string }

// look returns the holders of some locks, without missing locks. room is how much of running jobs' payloads to read.
func (s *Store) look(ctx context.Context, locks []named, room int) ([]LockInfo, error) {
	var out []LockInfo
	for len(locks) > 0 {
		batch := locks[:lookBatch(locks)]
		locks = locks[len(batch):]
		args := []any{s.db.Prefix, room}
		if batch[0].kind == LonerMarker {
			args[1] = payloadRoom // small, and the payload has the enqueue time
		}
		for _, l := range batch {
			args = append(args, l.kind, s.db.Key(l.key))
		}
		list, err := s.db.EvalList(ctx, locksScript, s.db.Key(keyProcs), args, 1+len(batch))
		if err != nil {
			return nil, err
		}
		for i, l := range batch {
			if info, ok := parseLock(l, time.UnixMilli(list.Number(0)), list[i+1]); ok {
				out = append(out, info)
			}
		}
	}
	return out, nil
}

// lookBatch returns how many of the locks go into one script call, which blocks the server: all of one kind, and
// fewer with long keys, or with markers, whose jobs are searched for.
func lookBatch(locks []named) int {
	most, size := 50, 0
	if locks[0].kind == LonerMarker {
		most = 4
	}
	for i, l := range locks {
		size += len(l.key)
		if i == most || i > 0 && (size > 1<<20 || l.kind != locks[0].kind) {
			return i
		}
	}
	return len(locks)
}

// parseLock reads the output of fields in lock_info.lua; false = no such lock.
func parseLock(l named, at time.Time, raw any) (LockInfo, bool) {
	parts, _ := raw.([]any)
	if len(parts) != lockFields {
		return LockInfo{}, false
	}
	list, text := rdb.List(parts), rdb.List(parts).Text
	whole := func(i int) int64 { n, _ := strconv.ParseInt(text(i), 10, 64); return n }
	info := LockInfo{
		Kind: l.kind, Key: l.key, State: text(0), Value: text(1), Digest: text(2), At: at,
		TTL: time.Duration(list.Number(3)) * time.Millisecond, Proc: text(5), Token: text(6),
	}
	if epoch := whole(4); epoch > 0 && epoch < maxEpoch {
		info.Expires = time.Unix(epoch, 0)
	}
	size := list.Number(14)
	if size == 0 && text(8) == "" && text(7) == "" {
		return info, true
	}
	info.Job = &LockJob{
		Queue: text(7), Worker: text(8), Class: text(9), Args: text(10), Fence: whole(11), Payload: []byte(text(13)), Size: size,
	}
	if wrapper := text(15); wrapper != "" {
		info.Job.Class, info.Job.Wrappers = wire.Named(text(9), []byte(text(10)), wrapper)
	}
	if ms := whole(12); ms > 0 {
		info.Job.Since = time.UnixMilli(ms)
	}
	if l.kind == LonerMarker && size == int64(len(info.Job.Payload)) {
		if e, err := wire.Parse(info.Job.Payload, 0); err == nil {
			info.Job.Since = e.EnqueuedAt
		}
	}
	return info, true
}

// kindOf returns the kind of lock by the beginning of its key, without the namespace; "" = none.
func kindOf(key string) string {
	for _, k := range lockPrefixes {
		if strings.HasPrefix(key, k.key) {
			return k.kind
		}
	}
	return ""
}

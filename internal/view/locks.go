package view

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// lookedThrough bounds the locks among which a key is looked for as it is shown.
	lookedThrough = 100_000
	// knownLocks bounds the keys among which the nearest one is looked for.
	knownLocks = 200
)

// Lock is one lock.
type Lock struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// Holder is the worker that runs the job; null if it is not known.
	Holder *string `json:"holder"`
	// AgeS is for how many seconds the job has held the lock, or has waited; null =
	// not known. TTLS is when Redis removes the key; null = never.
	AgeS  *int64 `json:"age_s"`
	TTLS  *int64 `json:"ttl_s"`
	State string `json:"state"`
	// ExpiresS is in how many seconds the lock's own time is over, negative if it
	// was; null = it has none.
	ExpiresS *int64 `json:"expires_s"`
	// Class, Args and Queue are those of the job that holds the lock or waits. Args
	// are null if they are long.
	Class string          `json:"class,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
	// Wrappers are the classes around an Active Job, inside out.
	Wrappers []string `json:"wrappers,omitempty"`
	Queue    string   `json:"queue,omitempty"`

	// Value to Waiting are set by Detail, Sequence for locks in PostgreSQL only.
	Value   string `json:"value,omitempty"`
	Process string `json:"process,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	// Sequence is the fencing token of a lock in PostgreSQL.
	Sequence int64  `json:"sequence,omitempty"`
	Payload  string `json:"payload,omitempty"`
	// Waiting are queues in which jobs are known to wait for the lock.
	Waiting []string `json:"waiting,omitempty"`

	// Info is what the store knows of the lock.
	Info store.LockInfo `json:"-"`

	rules *redact.Rules
}

// LockStore is what the view of locks needs of the store.
type LockStore interface {
	Locks(ctx context.Context, kind string, limit int) (locks []store.LockInfo, cut bool, err error)
	FindLocks(ctx context.Context, name string) ([]store.LockInfo, error)
	LockWaiters(ctx context.Context, key string) ([]string, error)
}

// Locks returns the locks of a kind, or all if it is "", limit at most. Cut reports whether
// there are more.
func Locks(ctx context.Context, s LockStore, kind string, limit int) (views []*Lock, cut bool, err error) {
	locks, cut, err := s.Locks(ctx, kind, limit)
	if err != nil {
		return nil, false, err
	}
	views = make([]*Lock, len(locks))
	for i, lock := range locks {
		views[i] = newLock(Rules(ctx), lock)
	}
	return views, cut, nil
}

// DatabaseLock is the kind of a lock in PostgreSQL.
const DatabaseLock = "postgres"

// NewDatabaseLock returns the view of a lock in PostgreSQL whose lease ends after left; 0 or less = it
// has. Age is for how long it has been held, 0 = not known. Nothing is known of its job, so that its key
// is shown where nothing at all is kept back.
func NewDatabaseLock(ctx context.Context, key, holder string, sequence int64, left, age time.Duration) *Lock {
	v := &Lock{Kind: DatabaseLock, Key: Rules(ctx).Key(DatabaseLock, "", nil, key), Holder: &holder, State: store.LockExpired, Sequence: sequence}
	if left > 0 {
		v.State, v.TTLS = store.LockHeld, new(int64(left/time.Second))
	}
	if age > 0 {
		v.AgeS = new(int64(age / time.Second))
	}
	return v
}

// FindLock returns the lock that a name stands for: its key, whole or without namespace or
// kind, or what a list shows in its place. The error is a NotFoundError or an AmbiguousError
// if it does not stand for exactly one.
func FindLock(ctx context.Context, s LockStore, name string) (*Lock, error) {
	locks, err := s.FindLocks(ctx, name)
	if err != nil {
		return nil, err
	}
	// Who may not see a key cannot find out either that it is the one that he has guessed.
	rules := Rules(ctx)
	locks = slices.DeleteFunc(locks, func(lock store.LockInfo) bool { return shownKey(rules, lock) != lock.Key })
	var known []string
	if len(locks) == 0 {
		// A key that is not printable, too long, or kept back can be given as it is shown, the latter
		// by whoever may see more as well.
		all, _, err := s.Locks(ctx, "", lookedThrough)
		digested := strings.Contains(name, redact.Shown)
		if err != nil {
			return nil, err
		}
		for _, lock := range all {
			key := shownKey(rules, lock)
			if len(known) < knownLocks {
				known = append(known, key)
			}
			if wire.Printable(key, 0) == name || wire.Printable(key, MaxName) == name || digested && digest(lock) == name {
				locks = append(locks, lock)
			}
		}
	}
	switch len(locks) {
	case 0:
		return nil, &NotFoundError{Kind: "lock", Name: name, Known: known}
	case 1:
		return newLock(rules, locks[0]), nil
	}
	several := &AmbiguousError{Kind: "lock", Name: name}
	for _, lock := range locks {
		several.Matches = append(several.Matches, shownKey(rules, lock))
	}
	return nil, several
}

// Detail fills in what is only shown for single locks. Fence and Payload need a lock of
// FindLock.
func (v *Lock) Detail(ctx context.Context, s LockStore) (err error) {
	if v.Waiting, err = s.LockWaiters(ctx, v.Info.Key); err != nil {
		return err
	}
	v.Value, v.Process = v.Info.Value, v.Info.Proc
	if job := v.Info.Job; job != nil {
		v.Fence, v.Payload = job.Fence, Rules(ctx).Payload(job.Payload)
	}
	return nil
}

// shownKey returns the key of a lock as it may be shown.
func shownKey(rules *redact.Rules, lock store.LockInfo) string {
	if !rules.Any() {
		return lock.Key
	}
	class, args, wrappers := "", []byte(nil), []string(nil)
	if job := lock.Job; job != nil {
		wrappers = job.Wrappers
		if class = job.Class; json.Valid([]byte(job.Args)) {
			args = []byte(job.Args)
		}
	}
	return rules.Key(lock.Kind, class, args, lock.Key, wrappers...)
}

// digest returns by which name a key that is kept back is shown.
func digest(lock store.LockInfo) string {
	class := ""
	if lock.Job != nil {
		class = lock.Job.Class
	}
	return redact.Digest(lock.Kind, class, lock.Key)
}

func newLock(rules *redact.Rules, lock store.LockInfo) *Lock {
	v := &Lock{Kind: lock.Kind, Key: shownKey(rules, lock), State: lock.State, Info: lock, rules: rules}
	whole := func(d time.Duration) *int64 {
		n := int64(d / time.Second)
		return &n
	}
	if lock.TTL >= 0 {
		v.TTLS = whole(lock.TTL)
	}
	if !lock.Expires.IsZero() {
		v.ExpiresS = whole(lock.Expires.Sub(lock.At))
	}
	if d := lock.Age(); d > 0 {
		v.AgeS = whole(d)
	}
	if job := lock.Job; job != nil {
		v.Class, v.Wrappers, v.Queue = job.Class, job.Wrappers, job.Queue
		if v.Args = json.RawMessage("null"); json.Valid([]byte(job.Args)) {
			v.Args = rules.Args(job.Class, json.RawMessage(job.Args), job.Wrappers...)
		}
		if job.Worker != "" {
			v.Holder = &job.Worker
		}
	}
	return v
}

// ArgsText returns the arguments of the job as they may be shown, also those that are too long to
// be JSON still.
func (v *Lock) ArgsText() string {
	switch {
	case v.Info.Job == nil:
		return ""
	case string(v.Args) != "null":
		return wire.ShortArgs(string(v.Args))
	}
	return v.rules.Text(v.Info.Job.Args)
}

// HolderText returns the holder of the lock in a few words.
func (v *Lock) HolderText() string {
	lock := v.Info
	switch {
	case v.Kind == DatabaseLock && v.Holder != nil:
		return WorkerText(*v.Holder) // a worker of a class with such locks, or what a program calls itself
	case v.State == store.LockForeign:
		return "foreign"
	case v.State == store.LockOrphan:
		return "no such job"
	case lock.Job == nil:
		return lock.Proc // its record cannot be read, or is kept elsewhere
	case lock.Kind == store.LonerMarker:
		return "waits in " + lock.Job.Queue
	}
	return WorkerText(lock.Job.Worker) + " " + lock.Job.Class
}

// WorkerText returns a worker id of resqued without its queues, the longest part.
func WorkerText(id string) string {
	name, err := wire.ParseWorkerID(id)
	if err != nil || !name.Ours {
		return id
	}
	return fmt.Sprintf("%s:%d.%d.%d", name.Host, name.PID, name.Slot, name.Thread)
}

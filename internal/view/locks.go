package view

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// lookedThrough limits the locks among which a key is searched by its shown form.
	lookedThrough = 100_000
	// knownLocks limits the keys among which similar ones are suggested.
	knownLocks = 200
)

// Lock is a lock as people see it.
type Lock struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// Holder is the worker that runs the job; null = unknown.
	Holder *string `json:"holder"`
	// AgeS is how many seconds the job has held the lock or waited; null = unknown. TTLS is when
	// Redis removes the key; null = never.
	AgeS  *int64 `json:"age_s"`
	TTLS  *int64 `json:"ttl_s"`
	State string `json:"state"`
	// ExpiresS is what is left of the lock's own time, negative if it is over; null = it has none.
	ExpiresS *int64 `json:"expires_s"`
	// Class, Args and Queue belong to the job that holds the lock or waits. Long Args are null.
	Class string          `json:"class,omitempty"`
	Args  json.RawMessage `json:"args,omitempty"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers []string `json:"wrappers,omitempty"`
	Queue    string   `json:"queue,omitempty"`

	// Detail sets Value to Waiting.
	Value   string `json:"value,omitempty"`
	Process string `json:"process,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	// Sequence is the fencing token of a lock in PostgreSQL.
	Sequence int64  `json:"sequence,omitempty"`
	Payload  string `json:"payload,omitempty"`
	// Waiting are queues in which jobs are known to wait for the lock.
	Waiting []string `json:"waiting,omitempty"`

	// Info is the store's record of the lock.
	Info store.LockInfo `json:"-"`

	rules *redact.Rules
}

// Locks returns at most limit locks of a kind, "" = any. cut reports whether there are more.
func Locks(ctx context.Context, s *store.Store, kind string, limit int) (views []*Lock, cut bool, err error) {
	locks, cut, err := s.Locks(ctx, kind, limit)
	if err != nil {
		return nil, false, err
	}
	views = make([]*Lock, len(locks))
	for i, lock := range locks {
		views[i] = newLock(redact.From(ctx), lock)
	}
	return views, cut, nil
}

// DatabaseLock is the kind of locks in PostgreSQL.
const DatabaseLock = "postgres"

// NewDatabaseLock returns the view of a lock in PostgreSQL whose lease ends after left; if left is
// 0 or less, it has ended. age is how long it has been held; 0 = unknown. As its job is unknown,
// its key is only shown if no rules hide anything.
func NewDatabaseLock(ctx context.Context, key, holder string, sequence int64, left, age time.Duration) *Lock {
	v := &Lock{Kind: DatabaseLock, Key: redact.From(ctx).Key(DatabaseLock, "", nil, key), Holder: &holder, State: store.LockExpired, Sequence: sequence}
	if left > 0 {
		v.State, v.TTLS = store.LockHeld, new(int64(left/time.Second))
	}
	if age > 0 {
		v.AgeS = new(int64(age / time.Second))
	}
	return v
}

// FindLock returns the lock that a name matches: its key, whole, without namespace or kind, or as
// shown. The error is a NotFoundError or an AmbiguousError if there is not exactly one.
func FindLock(ctx context.Context, s *store.Store, name string) (*Lock, error) {
	locks, err := s.FindLocks(ctx, name)
	if err != nil {
		return nil, err
	}
	// A visitor that may not see a key must not be able to confirm a guess.
	rules := redact.From(ctx)
	locks = slices.DeleteFunc(locks, func(lock store.LockInfo) bool { return shownKey(rules, lock) != lock.Key })
	var known []string
	if len(locks) == 0 {
		// Unprintable, long or hidden keys may be given as shown, even by visitors that see them.
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

// Detail fills in what single locks show. Fence and Payload need a lock from FindLock.
func (v *Lock) Detail(ctx context.Context, s *store.Store) (err error) {
	if v.Waiting, err = s.LockWaiters(ctx, v.Info.Key); err != nil {
		return err
	}
	v.Value, v.Process = v.Info.Value, v.Info.Proc
	if job := v.Info.Job; job != nil {
		v.Fence, v.Payload = job.Fence, redact.From(ctx).Payload(job.Payload)
	}
	return nil
}

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

// digest returns the name by which a hidden key is shown.
func digest(lock store.LockInfo) string {
	class := ""
	if lock.Job != nil {
		class = lock.Job.Class
	}
	return redact.Digest(lock.Kind, class, lock.Key)
}

func newLock(rules *redact.Rules, lock store.LockInfo) *Lock {
	v := &Lock{Kind: lock.Kind, Key: shownKey(rules, lock), State: lock.State, Info: lock, rules: rules}
	whole := func(d time.Duration) *int64 { return new(int64(d / time.Second)) }
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

// ArgsText returns the job's arguments as they may be shown, even if they are too long for Args.
func (v *Lock) ArgsText() string {
	switch {
	case v.Info.Job == nil:
		return ""
	case string(v.Args) != "null":
		return wire.ShortArgs(string(v.Args))
	}
	return v.rules.Text(v.Info.Job.Args)
}

// HolderText describes the holder in a few words.
func (v *Lock) HolderText() string {
	lock := v.Info
	switch {
	case v.Kind == DatabaseLock && v.Holder != nil:
		return wire.WorkerText(*v.Holder) // a worker, or the name that a program gave
	case v.State == store.LockForeign:
		return "foreign"
	case v.State == store.LockOrphan:
		return "no such job"
	case lock.Job == nil:
		return lock.Proc // its record is unreadable or elsewhere
	case lock.Kind == store.LonerMarker:
		return "waits in " + lock.Job.Queue
	}
	return wire.WorkerText(lock.Job.Worker) + " " + lock.Job.Class
}

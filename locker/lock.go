package locker

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// Lock is a holder of a key, or one that wants to be. Its methods may be called concurrently,
// but Run runs one block at a time.
type Lock struct {
	db  database
	key string
	o   Options
	sql statements

	mu      sync.Mutex
	running bool
	id      string
	held    bool
	// spent means that a release was sent that may still take effect, so id must not be used
	// for another acquisition.
	spent bool
	// revoked means that the lock was taken away but stays locked until its lease ends or it is
	// released.
	revoked bool
	// sent is when the statement that last took or renewed the lock was sent, by bootTime. The
	// lease lasts at least LockFor from then.
	sent     time.Duration
	sequence int64
	holder   Holder
}

// Holder describes who held a lock that could not be taken.
type Holder struct {
	// LockedBy is the identifier of the holder, the gem's or ours.
	LockedBy string
	// Left is the time until the lease ends, by the database's clock.
	Left time.Duration
}

// New returns a Lock on key, which is not taken yet. It does not use the database, and returns
// an error only if its arguments are invalid.
func New[D DB](db D, key string, o Options) (*Lock, error) {
	opened, err := open(db)
	if err != nil {
		return nil, err
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	statements, err := newStatements(o.Table)
	if err != nil {
		return nil, err
	}
	return &Lock{db: opened, key: key, o: o, sql: statements}, nil
}

// Key returns the key of the lock.
func (l *Lock) Key() string { return l.key }

// Identifier returns the name of this holder in the table: the one in Options, or else "host:…
// pid:… guid:…" with a new guid for every acquisition. It is empty before the first
// acquisition.
func (l *Lock) Identifier() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// Sequence returns the fencing token of the last acquisition, which is the number of times that
// the key has been locked. It is larger than that of any earlier acquisition.
func (l *Lock) Sequence() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sequence
}

// Holder returns the holder of the lock when Get or Run last returned false.
func (l *Lock) Holder() Holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// Left returns how long the holder may still work and how long its lease lasts. Both are by its
// own clock, counted from the moment at which the last renewal was sent. The context of Run's
// block ends when work is over; others cannot get the lock before the lease is over. Both are 0
// while the lock is not held, and work is 0 if the lock was revoked.
func (l *Lock) Left() (work, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held && !l.revoked {
		return 0, 0
	}
	lease = l.sent + l.o.LockFor - bootTime()
	if l.revoked {
		return 0, max(0, lease)
	}
	return max(0, lease-l.o.grace()), max(0, lease)
}

// Get tries once to take the lock and reports whether it is held. If this Lock holds it
// already, its lease is renewed and its sequence grows.
//
// After an error the lock may have been taken. Get may be called again, and takes the lock even
// if the failed call has taken it; Release gives it back. After a failed Release, Get returns
// false until that Release has taken effect or the lease is over.
func (l *Lock) Get(ctx context.Context) (bool, error) {
	l.mu.Lock()
	if l.id == "" || l.spent || !l.held && l.sequence > 0 {
		// A statement of an earlier acquisition that is still in flight must not affect this
		// one.
		l.id, l.sequence, l.held, l.spent, l.revoked = l.o.Identifier, 0, false, false, false
		if l.id == "" {
			l.id = identifier()
		}
	}
	id := l.id
	l.mu.Unlock()
	// An answer after the end of the lease is useless.
	ctx, cancel := context.WithTimeout(ctx, l.o.LockFor)
	defer cancel()
	// For a free key this takes half as long as the other statement.
	var sequence sql.NullInt64
	var durable sql.NullString
	sent := bootTime()
	switch found, err := l.db.row(ctx, l.sql.take, []any{l.key, id, l.o.LockFor.Seconds()}, &sequence, &durable); {
	case err != nil:
		return false, fmt.Errorf("locker: get %q: %w", l.key, explain(err, l.o.Table))
	case found && l.got(sent, sequence.Int64):
		return true, nil
	}
	filled := false
	for n := range attempts {
		var by string
		var left float64
		sent := bootTime()
		found, err := l.db.row(ctx, l.sql.get, []any{l.key, id, l.o.LockFor.Seconds(), prunedKey}, &sequence, &durable, &by, &left)
		switch {
		case missingValue(err) && !filled:
			filled = true
			if err := insertFilled(ctx, l.db, l.o.Table, l.key); err != nil {
				return false, fmt.Errorf("locker: get %q: %w", l.key, err)
			}
		case err != nil:
			return false, fmt.Errorf("locker: get %q: %w", l.key, explain(err, l.o.Table))
		case found && sequence.Valid:
			if l.got(sent, sequence.Int64) {
				return true, nil
			}
			// The answer took too long.
		case found && by != "" && left >= 0, found && n == attempts-1:
			l.refused(by, left)
			return false, nil
			// Otherwise another client was faster: ask again for the holder.
		}
	}
	return false, fmt.Errorf("locker: get %q: the row does not stay, or the database is too slow for leases of %s", l.key, l.o.LockFor)
}

// got records a success and reports whether there is time left to work.
func (l *Lock) got(sent time.Duration, sequence int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.revoked, l.sent, l.sequence, l.holder = true, false, sent, sequence, Holder{}
	return sent+l.o.LockFor-l.o.grace() > bootTime()
}

func (l *Lock) refused(by string, left float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.holder = Holder{LockedBy: by, Left: max(0, seconds(left))}
}

// Renew renews the lease. It returns ErrLockStolen if this Lock no longer holds the lock. After
// any other error it may be called again.
func (l *Lock) Renew(ctx context.Context) error {
	id := l.Identifier()
	if id == "" {
		return fmt.Errorf("%w: %q was never taken", ErrLockStolen, l.key)
	}
	var sequence sql.NullInt64
	var durable sql.NullString
	var over sql.NullBool
	sent := bootTime()
	found, err := l.db.row(ctx, l.sql.renew, []any{l.key, id, l.o.LockFor.Seconds()}, &sequence, &durable, &over)
	revoked := false
	if err == nil && !found {
		// If that is unknown, the lock counts as another holder's.
		revoked, _ = l.db.row(ctx, l.sql.revoked, []any{l.key, revokedName(id)}, &over)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("locker: renew %q: %w", l.key, explain(err, l.o.Table))
	case id != l.id:
		return fmt.Errorf("%w: %q is no longer ours in the table", ErrLockStolen, l.key)
	case revoked:
		l.held, l.revoked = false, l.held || l.revoked
		return fmt.Errorf("%w: %q was revoked", ErrLockStolen, l.key)
	case !found:
		l.held, l.revoked = false, false
		return fmt.Errorf("%w: %q is no longer ours in the table", ErrLockStolen, l.key)
	}
	l.held, l.sent = true, max(l.sent, sent)
	return nil
}

// Release gives the lock back and wakes one waiting Lock in each process. It returns
// ErrLockStolen if this Lock no longer holds the lock, or if the lock was revoked, which is
// given back too. After any other error it may be called again; in any case the lock is free
// when its lease ends.
func (l *Lock) Release(ctx context.Context) error {
	id := l.Identifier()
	if id == "" {
		return fmt.Errorf("%w: %q was never taken", ErrLockStolen, l.key)
	}
	found, err := l.releaseOnce(ctx, id)
	if err == nil && !found {
		return fmt.Errorf("%w: %q was no longer ours in the table", ErrLockStolen, l.key)
	}
	return err
}

func (l *Lock) releaseOnce(ctx context.Context, id string) (found bool, err error) {
	found, err = release(ctx, l.db, l.sql, l.key, id, id)
	if err == nil && !found {
		_, err = release(ctx, l.db, l.sql, l.key, revokedName(id), revokedName(id))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == l.id {
		l.spent = l.spent || err != nil
		l.held = l.held && err != nil
		l.revoked = l.revoked && err != nil
	}
	if err != nil {
		return false, fmt.Errorf("locker: release %q: %w", l.key, explain(err, l.o.Table))
	}
	return found, nil
}

// release frees the lock if one of two identifiers holds it, and wakes one waiter.
func release(ctx context.Context, db database, s statements, key, id, or string) (found bool, err error) {
	var told, hasty sql.NullString
	return db.row(ctx, s.release, []any{key, id, or, channel, topic(key)}, &told, &hasty)
}

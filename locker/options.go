package locker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Defaults of Options. If only LockFor is set, the default of RenewEvery is a third of it.
const (
	DefaultLockFor    = 30 * time.Second
	DefaultRenewEvery = DefaultLockFor / renewals
)

const renewals = 3

// DefaultTable is the default of Options.Table, and the table of functions that get an empty
// name.
const DefaultTable = "locks"

// prunedKey is the row that keeps the highest sequence of all rows removed by Prune, so that a
// removed key continues above it when it is locked again.
const prunedKey = "locker:pruned"

// maxName is the longest identifier of PostgreSQL, in bytes; it truncates longer ones.
const maxName = 63

// Errors of locks.
var (
	// ErrLockStolen means that the lock is no longer held, or may not be. It is the cause with
	// which a block's context ends.
	ErrLockStolen = errors.New("locker: lock stolen")
	// ErrNotReleased means that the block has returned, but its lock could not be released. The
	// lock is free when its lease ends.
	ErrNotReleased = errors.New("locker: lock not released")
	// ErrInUse means that Run was called on a Lock whose Run has not returned.
	ErrInUse = errors.New("locker: this Lock runs a block already")
)

// Options configure a lock. For each field the zero value means its default.
type Options struct {
	// LockFor is the duration of the lease: how long the lock is held after its last renewal,
	// and so how long it stays locked when its holder dies. Default DefaultLockFor, maximum
	// MaxLockFor.
	LockFor time.Duration
	// RenewEvery is the time between two renewals. It must be less than LockFor. Default a
	// third of LockFor.
	RenewEvery time.Duration
	// Blocking makes Run wait until the lock is free, instead of returning false. Run then also
	// waits for a database that does not answer.
	Blocking bool
	// BlockTimeout limits how long Run waits; 0 = no limit. It requires Blocking.
	BlockTimeout time.Duration
	// OnError, if not nil, is called with each error after which Run tries again: while it
	// waits, and when it cannot renew the lock. It must return at once.
	OnError func(error)
	// Identifier is the name of the holder in the table. It must be unique. By default each
	// acquisition has a name of its own.
	Identifier string
	// Table is the table of the locks, with or without its schema: "locks", "app.locks".
	// Default DefaultTable.
	Table string
}

// MaxLockFor is the maximum of Options.LockFor.
const MaxLockFor = 10 * 365 * 24 * time.Hour

func (o Options) withDefaults() (Options, error) {
	if o.LockFor == 0 {
		o.LockFor = DefaultLockFor
	}
	if o.RenewEvery == 0 {
		o.RenewEvery = max(o.LockFor/renewals, 1)
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	switch {
	case o.LockFor < 0:
		return o, fmt.Errorf("locker: LockFor %s must be greater than 0", o.LockFor)
	case o.LockFor > MaxLockFor:
		return o, fmt.Errorf("locker: LockFor %s is longer than %s: no program waits for the end of such a lease; Renew keeps a short one", o.LockFor, MaxLockFor)
	case o.RenewEvery < 0:
		return o, fmt.Errorf("locker: RenewEvery %s must be greater than 0", o.RenewEvery)
	case o.RenewEvery >= o.LockFor:
		return o, fmt.Errorf("locker: RenewEvery %s must be less than LockFor %s", o.RenewEvery, o.LockFor)
	case strings.ContainsRune(o.Identifier, 0):
		return o, errors.New("locker: Identifier holds a zero byte, which PostgreSQL cannot store")
	case strings.HasSuffix(o.Identifier, revokedMark):
		return o, errRevokedName
	case o.BlockTimeout < 0:
		return o, fmt.Errorf("locker: BlockTimeout %s must not be negative", o.BlockTimeout)
	case o.BlockTimeout > 0 && !o.Blocking:
		return o, fmt.Errorf("locker: BlockTimeout %s has no effect without Blocking", o.BlockTimeout)
	}
	return o, nil
}

func (o Options) report(err error) {
	if o.OnError != nil {
		o.OnError(err)
	}
}

// grace returns how long before the end of its lease a block is told to stop: a third of the
// time between the next renewal and the end of the lease.
func (o Options) grace() time.Duration { return (o.LockFor - o.RenewEvery) / 3 }

func quoteTable(table string) (string, error) {
	parts := strings.Split(table, ".")
	for _, part := range parts {
		if part == "" || len(part) > maxName || strings.ContainsRune(part, 0) || len(parts) > 2 {
			return "", fmt.Errorf("locker: table %q: write a name, or schema.name, of at most %d bytes each", table, maxName)
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("locker: the key is empty")
	case strings.ContainsRune(key, 0):
		return errors.New("locker: the key holds a zero byte, which PostgreSQL cannot store")
	case key == prunedKey:
		return fmt.Errorf("locker: the key %q is reserved", key)
	}
	return nil
}

// identifier returns a name for one acquisition, in the format of the gem.
func identifier() string {
	var guid [16]byte
	_, _ = rand.Read(guid[:]) // never fails
	id := fmt.Sprintf("pid:%d guid:%s", os.Getpid(), hex.EncodeToString(guid[:]))
	if host, err := os.Hostname(); err == nil {
		id = "host:" + host + " " + id
	}
	return id
}

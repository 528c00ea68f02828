// Package postgres keeps class locks in PostgreSQL, in the table of package locker, where
// "resqued locker" and the Ruby gem see them. Package classlock treats it as another Redis: the
// process keeps a lock alive, not the job's record.
package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/locker"
)

// conns is the number of a process's connections: one for the leases, the others for the calls of
// jobs, so that these never delay the extension of a lease.
const conns = 4

// maxKey is the longest key in bytes; a PostgreSQL index takes 2,704.
const maxKey = 1024

const connectFor = 5 * time.Second

// Config is where the locks are and how long they last.
type Config struct {
	// URL is the database. Table holds the locks; empty = locker.DefaultTable.
	URL, Table string
	// Namespace is put before every key, as in Redis.
	Namespace string
	// Lease is how long a lock lasts after its last extension.
	Lease time.Duration
}

// Store connects with its first call.
type Store struct {
	cfg   Config
	pool  *pgxpool.Pool
	where string
	host  string
	// asking holds an entry for each connection in use by jobs.
	asking chan struct{}
}

// Open returns the store of a database.
func Open(cfg Config) (*Store, error) {
	parsed, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	c := parsed.ConnConfig
	if parsed.MaxConns = conns; c.ConnectTimeout == 0 || c.ConnectTimeout > connectFor {
		c.ConnectTimeout = connectFor
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "resqued class locks"
	}
	s := &Store{cfg: cfg, where: fmt.Sprintf("postgres %s/%s", c.Host, c.Database), asking: make(chan struct{}, conns-1)}
	if s.host, err = os.Hostname(); err != nil {
		return nil, err
	}
	// This does not connect, so the context does not matter.
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), parsed); err != nil {
		return nil, err
	}
	return s, nil
}

// Where names the server and the database, without user and password.
func (s *Store) Where() string { return s.where }

// Close closes the connections.
func (s *Store) Close() error {
	ClosePool(s.pool)
	return nil
}

const closeWithin = time.Second

// ClosePool closes connections. It does not wait for a hanging server, for which pgxpool takes a
// minute or more; the process is about to end, and the server notices.
func ClosePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	late := time.NewTimer(closeWithin)
	defer late.Stop()
	select {
	case <-closed:
	case <-late.C:
	}
}

// key is the key in the table. Keys contain arguments, which may be too long for an index.
func (s *Store) key(key string) string {
	key = s.cfg.Namespace + ":" + key
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	end := "#" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(key[:maxKey-len(end)], "") + end
}

// row is the lock of a job. The holder is written as package locker does; its guid derives from
// the job's in-flight record, so that a call may be repeated.
func (s *Store) row(l store.HeldLock) locker.Row {
	sum := sha256.Sum256([]byte(l.Proc + "#" + l.Token))
	return locker.Row{
		Key:      s.key(l.Key),
		LockedBy: fmt.Sprintf("host:%s pid:%d guid:%s", s.host, os.Getpid(), hex.EncodeToString(sum[:16])),
	}
}

func (s *Store) ask(ctx context.Context) (done func(), err error) {
	select {
	case s.asking <- struct{}{}:
		return func() { <-s.asking }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// AcquireLock takes a lock. It may be repeated for the same job.
func (s *Store) AcquireLock(ctx context.Context, req store.AcquireRequest) (store.AcquireReply, error) {
	done, err := s.ask(ctx)
	if err != nil {
		return store.AcquireReply{}, err
	}
	defer done()
	// The first extension must come before the holder would have to stop.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease*2/7)
	defer cancel()
	r := s.row(req.HeldLock)
	l, err := locker.New(s.pool, r.Key, locker.Options{
		Table: s.cfg.Table, Identifier: r.LockedBy, LockFor: s.cfg.Lease, RenewEvery: s.cfg.Lease / 2,
	})
	if err != nil {
		return store.AcquireReply{}, &brokenError{err}
	}
	got, err := l.Get(ctx)
	switch {
	case err != nil:
		return store.AcquireReply{}, broken(err)
	case !got:
		return store.AcquireReply{Holder: l.Holder().LockedBy}, nil
	}
	return store.AcquireReply{Got: true, Sequence: l.Sequence()}, nil
}

// RefreshLock checks that the lock is still the job's, and extends it. The process counts the time limit.
func (s *Store) RefreshLock(ctx context.Context, l store.HeldLock) (store.AcquireReply, error) {
	done, err := s.ask(ctx)
	if err != nil {
		return store.AcquireReply{}, err
	}
	defer done()
	r := s.row(l)
	lost, err := locker.Extend(ctx, s.pool, s.cfg.Table, s.cfg.Lease, []locker.Row{r})
	if err != nil || len(lost) == 0 {
		return store.AcquireReply{Got: err == nil}, broken(err)
	}
	holder, err := s.holder(ctx, r.Key)
	return store.AcquireReply{Holder: holder}, err
}

// LockExpires returns 0: only the job itself moves its time limit.
func (s *Store) LockExpires(context.Context, store.HeldLock) (int64, error) { return 0, nil }

// KeepLocks extends all locks in one statement and returns the indexes of the lost ones.
func (s *Store) KeepLocks(ctx context.Context, locks []store.HeldLock) (lost []int, err error) {
	if len(locks) == 0 {
		return nil, nil
	}
	rows := make([]locker.Row, len(locks))
	for i, l := range locks {
		rows[i] = s.row(l)
	}
	lost, err = locker.Extend(ctx, s.pool, s.cfg.Table, s.cfg.Lease, rows)
	return lost, broken(err)
}

// KeepsAll returns true: the rows do not contain the time limit, so all locks must be extended.
func (s *Store) KeepsAll() bool { return true }

// ReleaseLock releases a lock if it is still the job's.
func (s *Store) ReleaseLock(ctx context.Context, l store.HeldLock) error {
	done, err := s.ask(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = locker.Break(ctx, s.pool, s.cfg.Table, s.row(l))
	return broken(err)
}

// LockState returns the holder of a lock.
func (s *Store) LockState(ctx context.Context, key string, _ bool) (store.LockState, error) {
	done, err := s.ask(ctx)
	if err != nil {
		return store.LockState{}, err
	}
	defer done()
	holder, err := s.holder(ctx, s.key(key))
	return store.LockState{Holder: holder}, err
}

// holder returns the holder of a row; empty = not held.
func (s *Store) holder(ctx context.Context, key string) (string, error) {
	rows, err := locker.List(ctx, s.pool, s.cfg.Table, key)
	if err != nil || len(rows) == 0 || !rows[0].Held() {
		return "", broken(err)
	}
	return rows[0].LockedBy, nil
}

type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// LockBroken returns true: an operator has to repair the database.
func (e *brokenError) LockBroken() bool { return true }

// broken marks server errors that waiting does not repair: a missing table or right, or text that
// the server cannot store or index.
func broken(err error) error {
	server, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok || len(server.SQLState()) != 5 || !slices.Contains([]string{"22", "23", "3F", "42", "54"}, server.SQLState()[:2]) {
		return err
	}
	return &brokenError{err}
}

// Package postgres keeps class locks in PostgreSQL, in the table of package locker, where
// "resqued locker" and the Ruby gem see them. To package classlock it is what another
// Redis is: a lock there is kept alive by its process and not by the job's record.
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

// conns are the connections of one process: one for the leases, the others for all that
// jobs ask for, so that these never keep a lease from being extended.
const conns = 4

// maxKey is the longest key, in bytes: an index of PostgreSQL takes 2,704.
const maxKey = 1024

// connectFor bounds the making of a connection.
const connectFor = 5 * time.Second

// Config is where the locks are and how long they last.
type Config struct {
	// URL is the database. Table holds the locks; empty = locker.DefaultTable.
	URL, Table string
	// Namespace stands in front of every key, as in Redis.
	Namespace string
	// Lease is how long a lock lasts after its last extension.
	Lease time.Duration
}

// Store is where locks are kept. It connects when it is asked something.
type Store struct {
	cfg   Config
	pool  *pgxpool.Pool
	where string
	host  string
	// asking holds an entry for each connection that jobs use.
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
	// It is made without a connection, whatever the context is.
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), parsed); err != nil {
		return nil, err
	}
	return s, nil
}

// Where names the server and the database, without user and password.
func (s *Store) Where() string { return s.where }

// Close ends the connections.
func (s *Store) Close() error {
	ClosePool(s.pool)
	return nil
}

// closeWithin is how long connections may take to close.
const closeWithin = time.Second

// ClosePool closes connections. It does not wait for a server that hangs, which pgxpool asks for a
// minute and more; the process is about to end, and the server sees that.
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

// key is the key in the table. Keys are made of arguments, which may be too long for an
// index.
func (s *Store) key(key string) string {
	key = s.cfg.Namespace + ":" + key
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	end := "#" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(key[:maxKey-len(end)], "") + end
}

// row is the lock of a job. The holder is named as package locker names one; the guid is
// made of the job's in-flight record, so that a call may be repeated.
func (s *Store) row(l store.HeldLock) locker.Row {
	sum := sha256.Sum256([]byte(l.Proc + "#" + l.Token))
	return locker.Row{
		Key:      s.key(l.Key),
		LockedBy: fmt.Sprintf("host:%s pid:%d guid:%s", s.host, os.Getpid(), hex.EncodeToString(sum[:16])),
	}
}

// ask takes one of the connections that jobs may use.
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
	// So that the lock is extended before its holder would have to stop.
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

// RefreshLock looks whether a lock is still the job's, and extends it. Its time limit is
// the process's to count.
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

// KeepLocks extends all the locks in one statement, and returns the indexes of those
// that are lost.
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

// KeepsAll returns true: locks with a time limit have to be extended like all others,
// because their rows do not hold it.
func (s *Store) KeepsAll() bool { return true }

// ReleaseLock releases a lock, unless it is not the job's any more.
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

// holder returns the holder of a row; empty = it is not held.
func (s *Store) holder(ctx context.Context, key string) (string, error) {
	rows, err := locker.List(ctx, s.pool, s.cfg.Table, key)
	if err != nil || len(rows) == 0 || !rows[0].Held() {
		return "", broken(err)
	}
	return rows[0].LockedBy, nil
}

// brokenError is one that does not mend by waiting.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// LockBroken returns true: an operator has to repair the database.
func (e *brokenError) LockBroken() bool { return true }

// broken marks an error of the server's that means the same tomorrow: a missing table,
// a missing right, text that it cannot store or index.
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

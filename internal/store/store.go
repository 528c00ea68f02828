// Package store keeps queues, jobs in flight and all that depends on them in Redis: one Go method for each
// script of lua/. It uses a client of package rdb.
//
// The files by subject; types.go, keys.go and args.go are shared by all:
//
//	exchange   exchange.go ends and reserves jobs; exchange_args.go, exchange_reply.go, exchange_order.go, record.go
//	finding    poll.go looks for jobs, wait.go waits for them, other_workers.go, pause.go
//	queues     push.go, pushmany.go, together.go, dequeue.go, move.go, transfer.go, walk.go, prune.go, ages.go
//	unique     unique.go
//	locks      locks.go, lockscan.go, lockwaits.go, classlock.go; lines.go, fair.go who waits for them
//	failures   failed.go, failed_edit_bulk.go, findfailed.go, parked.go, count.go the attempts of a job
//	later      later.go, due.go, undelay.go, delayed_next.go; cron.go schedules
//	processes  process.go lives, kills.go, runners.go, policy.go; recovery.go what a master does for the dead
//	masters    master_types.go, orders.go, hosts.go, ends.go, format.go
//	looking    inspect.go, totals.go, events.go, history.go
//	server     probe.go, trouble.go, bench.go
package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

// Lua holds the scripts of this package; see rdb.NewScript.
//
//go:embed lua/*.lua
var Lua embed.FS

// Defaults of Options.
const (
	DefaultLease     = 35 * time.Second
	DefaultBeatEvery = 10 * time.Second
)

// ErrFenced: the process has no valid lease. A beat revives an expired one; if its jobs were recovered, it must end.
var ErrFenced = errors.New("the lease of this process is past")

// ErrWiped: the server knows neither the process nor the data set in which it registered: it was emptied, or
// restarted without its data.
var ErrWiped = errors.New("redis has lost its data")

// Store talks to one Redis. It is safe for concurrent use.
type Store struct {
	db *rdb.Client
	// opts are replaced by Use.
	opts atomic.Pointer[Options]
	// dataSet is the result of Register.
	dataSet atomic.Pointer[string]
	bulk    atomic.Pointer[bulk]
	// noLPos: the server has refused LPOS.
	noLPos atomic.Bool
	// together combines the pushes of many goroutines into one call.
	together together
}

// Open returns a store for opts. It does not connect, so it only fails for impossible options.
func Open(opts Options) (*Store, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	db, err := rdb.Open(opts.connection())
	if err != nil {
		return nil, err
	}
	s := &Store{db: db}
	s.opts.Store(&opts)
	s.together.open(opts.PoolSize)
	return s, nil
}

// Use changes the options for all later calls. Server, namespace and connections stay, except for new
// connections' certificates.
func (s *Store) Use(opts Options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	if err := s.db.Use(opts.connection()); err != nil {
		return err
	}
	old := s.opts.Load()
	opts.Namespace, opts.nearEnd = old.Namespace, old.nearEnd
	s.opts.Store(&opts)
	return nil
}

func (o *Options) connection() rdb.Options {
	return rdb.Options{
		URL: o.URL, Namespace: o.Namespace, ClientName: o.ClientName, PoolSize: o.PoolSize,
		Password: o.Password, CA: o.CA, Cert: o.Cert, AllowEviction: o.AllowEviction, Dial: o.Dial,
	}
}

// complete sets defaults, and refuses impossible options.
func (o *Options) complete() error {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.LockTTL == 0 {
		o.LockTTL = o.Lease
	}
	if o.BeatEvery == 0 {
		o.BeatEvery = DefaultBeatEvery
	}
	if o.LockTTL < time.Second || o.Lease < o.BeatEvery {
		return fmt.Errorf("lock TTL %s, lease %s, beat %s: the TTL must be a second at least and the lease longer than a beat",
			o.LockTTL, o.Lease, o.BeatEvery)
	}
	return nil
}

// Redis returns the client of the store, for other users of its connections.
func (s *Store) Redis() *rdb.Client { return s.db }

// Close closes all connections.
func (s *Store) Close() error { return s.together.close(s.db.Close) }

// Ping checks that the server answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// Now returns the server's time.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.db.Now(ctx) }

// Server asks the server about itself; see rdb.Client.Server.
func (s *Store) Server(ctx context.Context) (rdb.Server, error) { return s.db.Server(ctx) }

// Where returns the server's address for messages, without credentials.
func (s *Store) Where() string { return s.db.Where() }

// CheckEviction returns an error if the server may evict queued jobs, unless Options.AllowEviction is set; see
// rdb.Client.CheckEviction.
func (s *Store) CheckEviction(ctx context.Context) error { return s.db.CheckEviction(ctx) }

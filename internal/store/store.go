// Package store is resqued's only Redis client: the names of the keys, one Go
// method for each script of lua/, and the rule which commands may be repeated.
//
// What is where: exchange.go is the hot path (end jobs, reserve jobs), process.go
// the life of a worker process (register, beat, unregister), recovery.go what a
// master does for the dead, push.go, dequeue.go and failed.go what goes into queues and
// out of them without being run, parked.go the ends of jobs that have no place, unique.go how unique queues are healed, pause.go which
// queues have to wait, cron.go schedules, inspect.go what people look at, wait.go how a
// process waits for jobs instead of asking.
package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults of Options.
const (
	DefaultLease     = 35 * time.Second
	DefaultBeatEvery = 10 * time.Second
)

// minVersion is the oldest server that lets a script read the clock and then
// write, as every script here does.
const minVersion = 5

// ErrFenced: the process has no valid lease. Either its lease is past and a beat
// revives it, or somebody has recovered its jobs and it must end.
var ErrFenced = errors.New("the lease of this process is past")

// ErrWiped: the server knows nothing of this process nor of the data in which it
// registered: somebody has emptied it, or it came up without its data.
var ErrWiped = errors.New("redis has lost its data")

// Store talks to one Redis. It is safe for concurrent use.
type Store struct {
	// opts are replaced by Use.
	opts   atomic.Pointer[Options]
	prefix string
	// write never repeats a command by itself; read does.
	write, read redis.UniversalClient
	// demotions is a hook of both.
	demotions demotions
	// dataSet is what Register has returned.
	dataSet atomic.Pointer[string]
	bulk    atomic.Pointer[bulk]
	// rehearsed takes the scripts of a Probe; nil in any other store.
	rehearsed *rehearsal
}

// Open returns a store for opts. It connects at the first command, so that it
// only fails on options that cannot work.
func Open(opts Options) (*Store, error) {
	if opts.Namespace == "" {
		return nil, errors.New("namespace is empty; Resque's own is \"resque\"")
	}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	opts.share = &share{}
	write, err := newClient(opts, -1)
	if err != nil {
		return nil, err
	}
	read, err := newClient(opts, 3)
	if err != nil {
		return nil, err
	}
	s := &Store{prefix: opts.Namespace + ":", write: write, read: read}
	s.opts.Store(&opts)
	s.demotions.watch(write)
	s.demotions.watch(read)
	if opts.BlockingReads {
		hook(write, blockingReads{}) // the last hook gets the connection first
	}
	return s, nil
}

// Use takes other options for all calls from now on. The server, the namespace and what
// concerns connections stay as they were opened, but for the certificates that new ones trust.
func (s *Store) Use(opts Options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	old := s.opts.Load()
	roots, err := trusted(opts.CA, overTLS(old.URL))
	if err != nil {
		return err
	}
	opts.URL, opts.Namespace, opts.ClientName, opts.PoolSize = old.URL, old.Namespace, old.ClientName, old.PoolSize
	opts.BlockingReads, opts.nearEnd, opts.small, opts.share = old.BlockingReads, old.nearEnd, old.small, old.share
	opts.share.roots.Store(roots)
	s.opts.Store(&opts)
	return nil
}

// complete puts defaults in the place of what is not given, and refuses what cannot work.
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

// Close ends all connections.
func (s *Store) Close() error { return errors.Join(s.write.Close(), s.read.Close()) }

// errReplica: the server is a replica that takes no writes.
var errReplica = errors.New("a read-only replica: redis_url must name the primary, or this server become one")

// Ping asks whether the server answers.
func (s *Store) Ping(ctx context.Context) error { return s.read.Ping(ctx).Err() }

// WaitReady returns when the server answers, or with an error that waiting does
// not heal: a wrong password or a missing right, a server that is too old, one that may
// evict jobs.
// Before each wait it calls tell (if not nil) with what was wrong.
func (s *Store) WaitReady(ctx context.Context, tell func(err error, wait time.Duration)) error {
	wait := 100 * time.Millisecond
	for {
		err := s.check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !Unreachable(err) && !waitable(err) {
			return err
		}
		pause := wait/2 + time.Duration(rand.Int64N(int64(wait)))
		if tell != nil {
			tell(err, pause)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		wait = min(wait*2, 5*time.Second)
	}
}

// Where is the server's address for messages, without credentials.
func (s *Store) Where() string {
	u, err := url.Parse(s.opts.Load().URL)
	if err != nil {
		return "redis"
	}
	return redact(u)
}

func (s *Store) check(ctx context.Context) error {
	if err := s.Ping(ctx); err != nil {
		return fmt.Errorf("redis at %s: %w", s.Where(), err)
	}
	info, _ := s.read.Info(ctx, "server").Result() // "" if it does not tell
	if n, err := majorVersion(info); err == nil && n < minVersion {
		return fmt.Errorf("redis at %s is version %s: resqued needs %d.0 or newer", s.Where(), infoField(info, "redis_version"), minVersion)
	}
	if err := s.checkRole(ctx); err != nil {
		return err
	}
	if err := s.CheckEviction(ctx); err != nil {
		return err
	}
	err := s.probe(ctx, probeMark(info))
	if refusal(err) == "OOM" {
		return nil // a full server cannot be tried, but drained
	}
	return err
}

func majorVersion(info string) (int, error) {
	major, _, _ := strings.Cut(infoField(info, "redis_version"), ".")
	return strconv.Atoi(major)
}

// checkRole refuses a replica. Servers that do not tell pass.
func (s *Store) checkRole(ctx context.Context) error {
	text, err := s.read.Info(ctx, "replication").Result()
	if err != nil || infoField(text, "role") != "slave" || infoField(text, "slave_read_only") == "0" {
		return nil //nolint:nilerr // no answer is no reason to refuse
	}
	err = fmt.Errorf("redis at %s is %w", s.Where(), errReplica)
	s.demotions.seen.Add(1) // where a name or a proxy leads to may change
	return err
}

// CheckEviction returns an error if the server may throw away queued jobs and nobody
// has allowed that. Servers that do not tell (no right to INFO, other implementations)
// pass.
func (s *Store) CheckEviction(ctx context.Context) error {
	text, err := s.read.Info(ctx, "memory").Result()
	if err != nil || s.opts.Load().AllowEviction {
		return nil //nolint:nilerr // no answer is no reason to refuse
	}
	limit, policy := infoField(text, "maxmemory"), infoField(text, "maxmemory_policy")
	if limit != "" && limit != "0" && policy != "" && policy != "noeviction" {
		return fmt.Errorf("redis at %s may evict jobs: maxmemory is %s and maxmemory-policy %q; "+
			"set it to noeviction, or allow_eviction: true to take the risk", s.Where(), limit, policy)
	}
	return nil
}

func infoField(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// waitable reports whether an answer is one that a server gives on its way up, during
// a failover, or until somebody has seen to its disk or its replicas.
func waitable(err error) bool {
	switch refusal(err) {
	case "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "ERR max number of clients":
		return true
	}
	return errors.Is(err, errReplica)
}

func (s *Store) reloadCluster(ctx context.Context) {
	if c, ok := s.write.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

func asURLError(err error, target **url.Error) bool { return errors.As(err, target) }

// SetLogger takes over what the client library would print to standard error.
func SetLogger(log func(text string)) { redis.SetLogger(libraryLog(log)) }

type libraryLog func(text string)

func (l libraryLog) Printf(_ context.Context, format string, v ...any) {
	l(fmt.Sprintf(format, v...))
}

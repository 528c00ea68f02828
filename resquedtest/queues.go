package resquedtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/longjob"
)

// Defaults of Options.
const (
	DefaultNamespace   = "resque"
	DefaultMaxJobs     = 1000
	DefaultTermTimeout = 10 * time.Second
)

// Options are the settings of a daemon that matter in a test. The zero value of each means its
// default.
type Options struct {
	// Namespace is the prefix of every key; empty = DefaultNamespace.
	Namespace string
	// Queues are the queues that Drain processes, in order of priority, as in the daemon's
	// configuration: names, globs and "!" exclusions; none = all, in alphabetical order.
	Queues []string
	// LocketedQueues are the patterns of the queues whose jobs take a job lock; nil = all,
	// empty = none. It is the daemon's setting locketed_queues.
	LocketedQueues []string
	// JobLockKey is the daemon's setting job_lock_key; empty = "class-args".
	JobLockKey string
	// UniqueQueues are the patterns of the queues that hold an equal payload once: "*" = all,
	// none = no queue. It is the daemon's setting unique_queues.
	UniqueQueues []string
	// UniqueQueuesStrict is the daemon's setting unique_queues_strict.
	UniqueQueuesStrict bool
	// Time is the initial time of the queues, in whole seconds; zero = now.
	Time time.Time
	// MaxJobs is how many jobs one Drain may perform before it fails the test, because a job
	// that enqueues itself would keep it busy forever; 0 = DefaultMaxJobs.
	MaxJobs int
	// TermTimeout is how long a job may continue after its timeout before Drain gives it up and
	// fails the test; 0 = DefaultTermTimeout. It passes by the clock of the machine.
	TermTimeout time.Duration
}

// Queues are job queues in a Redis of the test's own, and the workers for them. They are safe
// for concurrent use and end with the test.
type Queues struct {
	tb       testing.TB
	opts     Options
	handlers *resqued.Handlers
	server   *server
	worker   *worker
	client   *client.Client
	longJobs *longjob.Client

	mu     sync.Mutex
	inline bool
	ended  []Ended
	// runs are the running worker processes: several if a job calls Drain.
	runs map[*run]bool
	// count is how many jobs have ended since the first of runs began, classes how many of each
	// class. overrun says why all runs have to stop.
	count   int
	classes map[string]int
	overrun string
}

// New returns empty queues for a test. h are the handlers for their jobs, as for daemon.Main;
// nil = none.
func New(t testing.TB, h *resqued.Handlers) *Queues {
	t.Helper()
	return NewWith(t, h, Options{})
}

// NewWith is New with options.
func NewWith(t testing.TB, h *resqued.Handlers, o Options) *Queues {
	t.Helper()
	if h == nil {
		h = resqued.New()
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.LocketedQueues == nil {
		o.LocketedQueues = []string{"*"}
	}
	if o.MaxJobs <= 0 {
		o.MaxJobs = DefaultMaxJobs
	}
	if o.TermTimeout <= 0 {
		o.TermTimeout = DefaultTermTimeout
	}
	q := &Queues{tb: t, opts: o, handlers: atHome(h), runs: map[*run]bool{}}
	var err error
	if q.server, err = startServer(t, o.Time); err != nil {
		t.Fatalf("resquedtest: %v", err)
	}
	if q.worker, err = newWorker(q); err != nil {
		t.Fatalf("resquedtest: %v", err)
	}
	q.client, err = client.New(client.Options{
		URL: q.server.url, Namespace: o.Namespace, Handlers: q.handlers, Ruby34: q.worker.ruby34(),
		UniqueQueues: o.UniqueQueues, UniqueQueuesStrict: o.UniqueQueuesStrict,
		Hooks: []client.Hooks{{AfterEnqueue: q.enqueued}},
	})
	if err != nil {
		t.Fatalf("resquedtest: %v", err)
	}
	t.Cleanup(func() { _ = q.client.Close() })
	q.longJobs, err = longjob.NewClient(longjob.ClientOptions{URL: q.server.url, Namespace: o.Namespace, Handlers: q.handlers})
	if err != nil {
		t.Fatalf("resquedtest: %v", err)
	}
	t.Cleanup(func() { _ = q.longJobs.Close() })
	return q
}

// Client returns a client of the queues that knows the handlers. It is closed with the test.
func (q *Queues) Client() *client.Client { return q.client }

// LongJobs returns a client that enqueues and inspects runs of long jobs. It is closed with the
// test.
func (q *Queues) LongJobs() *longjob.Client { return q.longJobs }

// URL is the address of the Redis, for a client of the program's own, with the namespace of the
// Options. It answers until the test ends.
func (q *Queues) URL() string { return q.server.url }

// Now returns the time of the queues. Only Advance changes it.
func (q *Queues) Now() time.Time { return q.server.now() }

// Advance moves the time of the queues: jobs become due and keys expire. Nothing runs before
// the next Drain. It does not move the clock of the machine, which handlers read and by which
// the timeouts of classes pass.
func (q *Queues) Advance(d time.Duration) {
	q.tb.Helper()
	if d < 0 {
		q.tb.Fatalf("resquedtest: Advance(%s): time does not go back", d)
	}
	q.server.advance(d)
}

// Inline makes each job run at once when Client enqueues it, before the enqueueing call
// returns. A job that a handler enqueues runs while that handler waits. All other due jobs run
// too. Delayed and requeued jobs wait for their time and then for Drain or the next job, and so
// do long jobs. Ended returns how jobs ended.
func (q *Queues) Inline() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inline = true
}

// enqueued runs an enqueued job if Inline was called.
func (q *Queues) enqueued(_ context.Context, _ *client.Job, res client.Result) {
	q.mu.Lock()
	inline := q.inline
	q.mu.Unlock()
	if !inline || res.Position == 0 { // it was not pushed
		return
	}
	// Not under the context of the call, which may be a job's.
	if _, err := q.drain(); err != nil {
		q.tb.Errorf("resquedtest: inline: %v", err)
	}
}

// context returns the context of all work of these queues. It does not end before the test's
// t.Cleanup functions.
func (q *Queues) context() context.Context { return context.WithoutCancel(q.tb.Context()) }

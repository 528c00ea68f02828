package resquedtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/thread/retry"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/internal/workerproc"
)

// interval is the time between two polls. The last poll of a Drain waits for it.
const interval = time.Millisecond

// worker has the parts from which a daemon makes its worker processes.
type worker struct {
	opts   Options
	queues selector.Spec
	set    *handler.Set
	store  *store.Store
	keyer  *jobkey.Keyer
	// tenants are the handlers' tenants, fair what the scripts know of them.
	tenants *jobkey.Tenants
	fair    map[string]*store.Fair
	limits  workerproc.Limits
	runner  *thread.Runner
	hooks   []resqued.Hooks
	log     *zap.Logger
}

// atHome returns handlers whose class locks are all kept in the Redis of the test.
func atHome(h *resqued.Handlers) *resqued.Handlers {
	return handler.Copy(h, func(c *resqued.Class) {
		if c.Lock != nil {
			lock := *c.Lock
			lock.Redis, lock.Store = "", ""
			c.Lock = &lock
		}
	})
}

func newWorker(q *Queues) (*worker, error) {
	w := &worker{opts: q.opts, hooks: onceForked(q.handlers.AllHooks()), log: newLog(q.tb)}
	names := q.opts.Queues
	if len(names) == 0 {
		names = []string{"*"}
	}
	var err error
	if w.queues, _, err = selector.Parse(names, 1); err != nil {
		return nil, fmt.Errorf("option Queues: %w", err)
	}
	for setting, patterns := range map[string][]string{"LocketedQueues": q.opts.LocketedQueues, "UniqueQueues": q.opts.UniqueQueues} {
		if err := selector.CheckSet(patterns); err != nil {
			return nil, fmt.Errorf("option %s: %w", setting, err)
		}
	}
	if w.opts.JobLockKey == "" {
		w.opts.JobLockKey = jobkey.ClassArgs
	}
	if q.handlers.JobLockKeyFunc() != nil && w.opts.JobLockKey != jobkey.ClassArgs {
		return nil, errors.New("option JobLockKey is set, but the handlers compute the keys of all classes themselves (Handlers.JobLockKey)")
	}
	w.set, err = handler.New(q.handlers, handler.Options{
		KillGrace: q.opts.TermTimeout, Log: w.log,
		Environ: os.Environ(), //nolint:forbidigo // commands get that of the test
	})
	if err != nil {
		return nil, err
	}
	q.tb.Cleanup(w.set.Close)
	w.store, err = store.Open(store.Options{
		URL: q.server.url, Namespace: q.opts.Namespace, ClientName: "resquedtest",
		LockPayload: w.opts.JobLockKey == jobkey.Payload,
	})
	if err != nil {
		return nil, err
	}
	q.tb.Cleanup(func() { _ = w.store.Close() })
	w.keyer, err = jobkey.New(jobkey.Config{
		Style: w.opts.JobLockKey, Classes: w.set.Classes(), Class: w.set.Lookup, All: q.handlers.JobLockKeyFunc(), Log: w.log,
	})
	if err != nil {
		return nil, err
	}
	if w.tenants, err = jobkey.NewTenants(jobkey.TenantsConfig{Program: q.handlers.FairQueues(), Log: w.log}); err != nil {
		return nil, err
	}
	w.fair = map[string]*store.Fair{}
	for queue, rule := range w.tenants.Rules() {
		w.fair[queue] = store.NewFair(rule.Argument, rule.Weights, rule.Others)
	}
	style := wire.RubyUpTo33
	if w.ruby34() {
		style = wire.Ruby34
	}
	locks, err := classlock.New(classlock.Config{
		Store: w.store, URL: q.server.url, Classes: w.set.Classes(), Class: w.set.Lookup, Style: style, Grace: q.opts.TermTimeout,
		TTL: store.DefaultLease, BeatEvery: store.DefaultBeatEvery, Guard: handler.Guard, Boot: procfs.BootTime, Log: w.log,
	})
	if err != nil {
		return nil, err
	}
	q.tb.Cleanup(locks.Close)
	retries, err := retry.NewBook(retry.BookConfig{Store: w.store, Classes: w.set.Classes(), Class: w.set.Lookup, Style: style})
	if err != nil {
		return nil, err
	}
	q.tb.Cleanup(retries.Close)
	limits, err := jobkey.NewLimits(jobkey.LimitsConfig{Program: q.handlers.Limits(), Log: w.log})
	if err != nil {
		return nil, err
	}
	if limits != nil {
		w.limits = limits
	}
	w.runner = &thread.Runner{
		Performer: w.set, Locker: locks, Check: jobkey.NewCheck(w.opts.JobLockKey, w.store), Hit: jobkey.NewHit(limits, w.store), Retries: retries, Describe: handler.Describe,
	}
	return w, nil
}

func (w *worker) ruby34() bool { return w.opts.JobLockKey == jobkey.Ruby34 }

// onceForked returns hooks whose AfterFork runs only before the first job: all worker processes
// of a test count as one.
func onceForked(all []resqued.Hooks) []resqued.Hooks {
	hooks := slices.Clone(all)
	for i := range hooks {
		after := hooks[i].AfterFork
		if after == nil {
			continue
		}
		var once sync.Once
		var err error
		hooks[i].AfterFork = func(ctx context.Context) error {
			once.Do(func() { err = after(ctx) })
			return err
		}
	}
	return hooks
}

// work is the whole life of a worker process, which ends when no job is due.
func (w *worker) work(ctx context.Context, r *run) error {
	defer r.master.close()
	stubborn := false
	p, err := workerproc.New(workerproc.Config{
		Threads: 1, Queues: w.queues,
		Locketed:   func(queue string) bool { return selector.MatchAny(w.opts.LocketedQueues, queue) },
		NamedLocks: w.keyer.NeedsGo(), NamedClasses: w.keyer.ByClass(),
		Unique:       func(queue string) bool { return selector.MatchAny(w.opts.UniqueQueues, queue) },
		StrictUnique: w.opts.UniqueQueuesStrict, Lined: true, Fair: w.fair,
		Interval: interval, UntilEmpty: true, TermTimeout: w.opts.TermTimeout,
		Host: "resquedtest", PID: os.Getpid(),
	}, workerproc.Deps{
		Store: newDueStore(w.store), Conn: r.master, Handlers: w.set, Namer: w.keyer, Tenants: w.tenants, Limits: w.limits, Runner: w.runner, Stats: noStats{}, Hooks: w.hooks, Log: w.log,
		Observe: r.observe, Exit: func() { stubborn = true }, SetTitle: func(string) {},
	})
	if err != nil {
		return err
	}
	err = p.Run(longstore.New(w.store.Redis()).InContext(ctx))
	if stubborn {
		r.master.mu.Lock()
		defer r.master.mu.Unlock()
		return fmt.Errorf("a job runs for %s after it was told to stop (%s): a daemon would kill its worker process. "+
			"Have the handler return soon after its context ends", w.opts.TermTimeout, r.master.reason)
	}
	return err
}

func (r *run) observe(e workerproc.Event) {
	ended := Ended{
		Class: e.Job.Class, Queue: e.Job.Queue, Args: slices.Clone(e.Job.Args), Attempt: e.Job.Attempt,
		Outcome: Outcome(e.Outcome.Result), Err: e.Outcome.Err, After: e.Outcome.After,
	}
	if ended.Err == nil && ended.Outcome == OutcomeFailed {
		ended.Err = errors.New(e.Outcome.Message)
	}
	r.add(ended)
}

type noStats struct{}

func (noStats) Job(string, string, time.Duration, time.Duration) {}

func (noStats) Count(string, int) {}

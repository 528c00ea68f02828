package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/thread/retry"
	"github.com/resqued/resqued/internal/workerproc"
)

// Exit codes of a worker process.
const (
	exitOK     = 0
	exitFailed = 1
	// ExitConfig means that another worker process would fail as well.
	ExitConfig = 78
)

// strayEvery is how often a worker process reaps children that it did not start itself, in
// addition to each SIGCHLD.
const strayEvery = 2 * time.Second

// handover is what a master passes to its worker processes in an inherited file.
type handover struct {
	Config config.Config `json:"config"`
	// Waits is how many queues a poller waits for in Redis at a time.
	Waits waits `json:"waits,omitzero"`
	// Address is this machine's address in the network of Redis.
	Address string `json:"address,omitempty"`
	// Dev is set under "resqued dev".
	Dev *DevMode `json:"dev,omitempty"`
	// Bench: the jobs are a measurement's, and no code of the program runs.
	Bench bool `json:"bench,omitempty"`
	// Runners are the descriptors, in the worker process, on which runners' templates take
	// requests to fork, by runner.
	Runners map[string]int `json:"runners,omitempty"`
}

// DevMode says how worker processes of "resqued dev" show ended jobs.
type DevMode struct {
	// Redact hides parts of arguments.
	Redact *redact.Rules `json:"redact"`
	JSON   bool          `json:"json,omitempty"`
	Colour bool          `json:"colour,omitempty"`
}

// Some results of jobs; package thread has the others.
const (
	Done    = string(thread.Done)
	Failed  = string(thread.Failed)
	Retried = string(thread.Retried)
)

// Ended is a job that has ended.
type Ended struct {
	Job *resqued.Job
	// Result is Done, Failed, Retried or another outcome as in logs.
	Result string
	// Err is the failure, even if the job runs again or its failure is discarded.
	Err error
	Ran time.Duration
}

// Observer shows the jobs that end in a worker process of "resqued dev".
type Observer interface {
	// Observe is called by the process's loop and must not block.
	Observe(e Ended)
	// Close is called when the process ends; no job ends after it.
	Close()
}

// IsWorker reports whether a master started this process as a worker process.
func IsWorker() bool { return proc.IsWorker() }

// RunWorker runs a worker process and returns its exit code. Under "resqued dev" it calls
// observer once.
func (p Program) RunWorker(observer func(DevMode) Observer) int {
	// First: an earlier signal kills the process.
	received, stop := signals.Listen()
	defer stop()
	conn, data, err := proc.Inherit()
	if err != nil {
		return workerFailed(newLogger(os.Stderr, "auto", "info"), ExitConfig, err)
	}
	defer func() { _ = conn.Close() }()
	var h handover
	if err := json.Unmarshal(data, &h); err != nil {
		return workerFailed(newLogger(os.Stderr, "auto", "info"), ExitConfig, fmt.Errorf("configuration from the master: %w", err))
	}
	if h.Bench {
		p.Handlers = benchHandlers()
	}
	log := newLogger(os.Stderr, h.Config.LogFormat, h.Config.LogLevel).With(zap.Int("pid", os.Getpid()))
	defer func() { _ = log.Sync() }()
	if h.Config.Store != "" {
		proc.NameStore(h.Config.Store)
		log = log.With(zap.String("store", h.Config.Store))
	}
	w, err := p.newWorker(h, observer, conn, received, log)
	if err != nil {
		return workerFailed(log, ExitConfig, err)
	}
	defer w.close()
	err = w.process.Run(longstore.New(w.store.Redis()).InContext(context.Background()))
	if errors.Is(err, workerproc.ErrFenced) {
		// Its jobs may already run elsewhere, so they must stop here.
		workerFailed(log, exitFailed, err)
		w.killSelf()
	}
	if none, ok := errors.AsType[*noRunnerError](err); ok {
		return workerFailed(log, ExitConfig, none)
	}
	if err != nil {
		return workerFailed(log, exitFailed, err)
	}
	return exitOK
}

func workerFailed(log *zap.Logger, code int, err error) int {
	log.Error("worker process ends", zap.Error(err), zap.Int("exit", code))
	_ = log.Sync() // some callers kill the process next
	return code
}

// worker holds the parts of a worker process.
type worker struct {
	process *workerproc.Process
	set     *handler.Set
	store   *store.Store
	pools   pools
	closers []func()
}

func (p Program) newWorker(h handover, observer func(DevMode) Observer, conn *proc.Conn, received <-chan os.Signal, log *zap.Logger) (*worker, error) {
	c, w, handlers := h.Config, &worker{}, p.Handlers
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("hostname: %w", err)
	}
	if h.Dev != nil {
		handlers = withDemo(handlers)
	}
	if w.pools, err = openRunners(h, handlers, log); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.pools.close)
	set, err := handler.New(handlers, handler.Options{
		Commands: Commands(c), Runners: w.pools.byName(), KillGrace: c.TermTimeout, Proc: os.Getenv(procfs.ProcEnv), Environ: os.Environ(), Env: envRules(c), Log: log,
		RunnerClasses: runnerClasses(c), Stray: newStrays(log).giveBack,
	})
	if err != nil {
		return nil, err
	}
	w.set = set
	w.closers = append(w.closers, set.Close)
	s, err := store.Open(storeOptions(c, "resqued-worker"))
	if err != nil {
		return nil, err
	}
	w.store = s
	w.closers = append(w.closers, func() { _ = s.Close() })
	stats := statsd.New(statsConfig(c), log)
	w.closers = append(w.closers, stats.Close)
	w.closers = append(w.closers, reapStrays(set.Owns, log))

	if handlers.JobLockKeyFunc() != nil && c.JobLockKey != jobkey.ClassArgs {
		return nil, fmt.Errorf("job_lock_key is %q, but this program computes the keys of all classes itself (Handlers.JobLockKey): leave job_lock_key out",
			c.JobLockKey)
	}
	keyer, err := jobkey.New(jobkey.Config{
		Style: c.JobLockKey, Classes: set.Classes(), Class: set.Lookup, All: handlers.JobLockKeyFunc(), Log: log,
	})
	if err != nil {
		return nil, err
	}
	tenants, err := jobkey.NewTenants(jobkey.TenantsConfig{Rules: c.Fair, Program: handlers.FairQueues(), Log: log})
	if err != nil {
		return nil, err
	}
	fair := map[string]*store.Fair{}
	for queue, rule := range tenants.Rules() {
		fair[queue] = store.NewFair(rule.Argument, rule.Weights, rule.Others)
	}
	limits, err := jobkey.NewLimits(jobkey.LimitsConfig{Rules: c.Limits, Program: handlers.Limits(), Log: log})
	if err != nil {
		return nil, err
	}
	locks, err := newClassLocks(c, set, s, log)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, locks.Close)
	retries, err := retry.NewBook(retry.BookConfig{Store: s, Classes: set.Classes(), Class: set.Lookup, Style: RubyStyle(c)})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, retries.Close)
	deps := workerproc.Deps{
		Store: s, Conn: conn, Handlers: set, Namer: keyer, Tenants: tenants, LocksEnd: locks.Ends,
		Runner: &thread.Runner{Performer: set, Locker: locks, Check: jobkey.NewCheck(c.JobLockKey, s), Hit: jobkey.NewHit(limits, s), Retries: retries, Describe: handler.Describe},
		Stats:  stats, Signals: received, Hooks: handlers.AllHooks(), Log: log, Exit: w.killSelf,
	}
	if limits != nil {
		deps.Limits = limits
	}
	perFork := c.JobsPerFork
	if onlyRunners(c, handlers) {
		perFork = 0 // their jobs leave nothing in this process
		deps.Capacity, deps.Roomier = w.pools.slots, w.pools.changed()
	}
	if len(w.pools) > 0 {
		deps.Runners = w.pools.describe
		hooks := w.pools.hooks()
		if h.Dev == nil && !h.Bench && onlyRunners(c, handlers) {
			hooks.AfterFork = w.pools.await // it can do nothing without them
		}
		deps.Hooks = append(slices.Clone(deps.Hooks), hooks)
	}
	if h.Waits.One > 0 {
		deps.OpenWaiter, deps.Waits, deps.FleetWaits = func(waits int) (workerproc.Waiter, error) { return s.OpenWaiter(waits) }, h.Waits.One, h.Waits.All
	}
	if h.Dev != nil {
		events := observer(*h.Dev)
		w.closers = append(w.closers, events.Close)
		deps.Observe = func(e workerproc.Event) {
			events.Observe(Ended{Job: e.Job, Result: string(e.Outcome.Result), Err: e.Outcome.Err, Ran: e.Outcome.Ran})
		}
	}
	_, beat := leaseAndBeat(c)
	w.process, err = workerproc.New(workerproc.Config{
		Threads: c.ThreadCount, JobsPerFork: perFork, MaxRSS: maxRSS(&c), MaxAge: c.MaxAge,
		Queues: c.Queues, Locketed: c.Locked, NamedLocks: keyer.NeedsGo(), Lined: c.Lines == config.LinesAuto, Fair: fair, NamedClasses: keyer.ByClass(),
		RequeueLost: c.OnLockLost == "requeue", Unique: c.Unique, StrictUnique: c.UniqueQueuesStrict,
		Interval: c.Interval, StretchInterval: c.MayStretch, UntilEmpty: c.UntilEmpty,
		TermTimeout: c.TermTimeout, LockDuration: c.JobLockDuration, BeatEvery: beat, MaxPayload: c.MaxPayload, LogJobs: c.LogJobs, Redact: c.Redact,
		KillOnMasterDeath: c.OnMasterDeath == "kill", DrainTimeout: c.DrainTimeout, DrainRequeue: c.DrainThen == config.DrainRequeue,
		DeathPolicy: deathPolicy(c, handlers), Host: host, PID: os.Getpid(), Traces: traces(h.Address, log), Version: p.Version,
	}, deps)
	return w, err
}

// traces returns the fields by which others see that this process is dead, and on which host it
// was. Without them its jobs are recovered when its lease ends.
func traces(address string, log *zap.Logger) map[string]string {
	fields := map[string]string{}
	if t, err := procfs.TracesOfSelf(); err != nil {
		log.Warn("if this daemon is killed as a whole, its jobs wait for their lease", zap.Error(err))
	} else {
		fields = t.Fields()
	}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		fields[store.InfoBootID] = strings.TrimSpace(string(boot))
	}
	if address != "" {
		fields[store.InfoAddress] = address
	}
	return fields
}

func (w *worker) close() {
	for _, c := range slices.Backward(w.closers) {
		c()
	}
}

// reapStrays reaps processes that commands leave behind: this process adopts them, and without
// reaping they stay zombies.
func reapStrays(owned func(pid int) bool, log *zap.Logger) (stop func()) {
	if err := procfs.Subreaper(); err != nil {
		log.Debug("orphans of commands go to init", zap.Error(err))
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	var done sync.WaitGroup
	done.Go(func() {
		defer signal.Stop(ended)
		ticks := time.NewTicker(strayEvery)
		defer ticks.Stop()
		strays := procfs.Strays{Owned: owned}
		for {
			select {
			case <-ctx.Done():
				return
			case <-ended:
				strays.ReapOrphans()
			case <-ticks.C:
				strays.Reap()
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// killSelf kills the process, because a job in it ignores its kill. Nothing of that job may
// continue, including what a normal exit would run. Its descendants are killed first: the master
// that would kill them may be gone, and this process may take long to end. Handlers do not
// report these kills.
func (w *worker) killSelf() {
	w.set.Abandon()
	w.pools.abandon()
	procfs.EndDescendants()
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

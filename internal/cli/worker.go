package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/retry"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/tuning"
	"github.com/resqued/resqued/internal/workerproc"
)

// exitConfig tells the master that another worker process would fail as well.
const exitConfig = 78

// strayEvery is how often a worker process looks for children that nobody waits
// for, besides when it is told that one has ended.
const strayEvery = 2 * time.Second

// handover is what a master gives its worker processes, in memory.
type handover struct {
	Config config.Config `json:"config"`
	// Dev is set under "resqued dev".
	Dev *devMode `json:"dev,omitempty"`
}

// runWorker is the whole life of a worker process.
func runWorker(handlers *resqued.Handlers) int {
	// First of all: a signal that finds nobody listening kills the process.
	received, stop := signals.Listen()
	defer stop()
	defer tuning.FitProcessors()()
	defer tuning.HoldBallast()()
	conn, data, err := proc.Inherit()
	if err != nil {
		return workerFailed(newLogger(os.Stderr, "auto", "info"), exitConfig, err)
	}
	defer func() { _ = conn.Close() }()
	var h handover
	if err := json.Unmarshal(data, &h); err != nil {
		return workerFailed(newLogger(os.Stderr, "auto", "info"), exitConfig, fmt.Errorf("configuration from the master: %w", err))
	}
	log := newLogger(os.Stderr, h.Config.LogFormat, h.Config.LogLevel).With(zap.Int("pid", os.Getpid()))
	defer func() { _ = log.Sync() }()
	w, err := newWorker(h, handlers, conn, received, log)
	if err != nil {
		return workerFailed(log, exitConfig, err)
	}
	defer w.close()
	err = w.process.Run(w.store.InContext(context.Background()))
	if errors.Is(err, workerproc.ErrFenced) {
		// Its jobs may already run elsewhere: nothing of them may run on here.
		workerFailed(log, exitFailed, err)
		w.killSelf()
	}
	if err != nil {
		return workerFailed(log, exitFailed, err)
	}
	return exitOK
}

func workerFailed(log *zap.Logger, code int, err error) int {
	log.Error("worker process ends", zap.Error(err), zap.Int("exit", code))
	_ = log.Sync() // some callers end the process next
	return code
}

// worker is a worker process with all its parts.
type worker struct {
	process *workerproc.Process
	set     *handler.Set
	store   *store.Store
	closers []func()
}

func newWorker(h handover, handlers *resqued.Handlers, conn *proc.Conn, received <-chan os.Signal, log *zap.Logger) (*worker, error) {
	c, w := h.Config, &worker{}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("hostname: %w", err)
	}
	if h.Dev != nil {
		handlers = withDemo(handlers)
	}
	set, err := handler.New(handlers, handler.Options{
		Commands: commands(c), KillGrace: c.TermTimeout, Proc: os.Getenv(procfs.ProcEnv), Environ: os.Environ(), Env: envRules(c), Log: log,
	})
	if err != nil {
		return nil, err
	}
	w.set = set
	w.closers = append(w.closers, set.Close)
	options := storeOptions(c, "resqued-worker")
	options.BlockingReads = c.ThreadCount == 1 // its thread has nothing to do while it asks for a job
	s, err := store.Open(options)
	if err != nil {
		return nil, err
	}
	w.store = s
	w.closers = append(w.closers, func() { _ = s.Close() })
	stats := statsd.New(statsd.Config{Host: c.StatsdHost, Port: c.StatsdPort, Key: c.StatsdKey}, log)
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
	locks, err := newClassLocks(c, set, s, log)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, locks.Close)
	retries, err := retry.NewBook(retry.BookConfig{Store: s, Classes: set.Classes(), Class: set.Lookup, Style: rubyStyle(c)})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, retries.Close)
	deps := workerproc.Deps{
		Store: s, Conn: conn, Handlers: set, Namer: keyer, LocksEnd: locks.Ends,
		Runner: &thread.Runner{Performer: set, Locker: locks, Check: jobkey.NewCheck(c.JobLockKey, s), Retries: retries, Describe: handler.Describe},
		Stats:  stats, Signals: received, Hooks: handlers.AllHooks(), Log: log, Exit: w.killSelf,
	}
	if c.Waker {
		deps.OpenWaiter = func() (workerproc.Waiter, error) { return s.OpenWaiter() }
	}
	if h.Dev != nil {
		events := newEventWriter(os.Stdout, h.Dev)
		w.closers = append(w.closers, events.close)
		deps.Observe = events.observe
	}
	_, beat := leaseAndBeat(c)
	w.process, err = workerproc.New(workerproc.Config{
		Threads: c.ThreadCount, JobsPerFork: c.JobsPerFork, MaxRSS: c.MaxRSS, MaxAge: c.MaxAge,
		Queues: c.Queues, Locketed: c.Locked, NamedLocks: keyer.NeedsGo(), NamedClasses: keyer.ByClass(),
		RequeueLost: c.OnLockLost == "requeue", Unique: c.Unique, StrictUnique: c.UniqueQueuesStrict,
		Interval: c.Interval, UntilEmpty: c.UntilEmpty,
		TermTimeout: c.TermTimeout, LockDuration: c.JobLockDuration, BeatEvery: beat, MaxPayload: c.MaxPayload,
		KillOnMasterDeath: c.OnMasterDeath == "kill", DrainTimeout: c.DrainTimeout,
		DeathPolicy: deathPolicy(c, handlers), Host: host, PID: os.Getpid(), Traces: traces(log), Version: version(),
	}, deps)
	return w, err
}

// traces are what this process says of itself. Without them its jobs are recovered when
// its lease ends.
func traces(log *zap.Logger) map[string]string {
	t, err := procfs.TracesOfSelf()
	if err != nil {
		log.Warn("if this daemon is killed as a whole, its jobs wait for their lease", zap.Error(err))
		return nil
	}
	return t.Fields()
}

// close ends what the process's parts have started, the last first.
func (w *worker) close() {
	for _, c := range slices.Backward(w.closers) {
		c()
	}
}

// reapStrays collects what commands leave behind: a process whose parent has
// ended becomes this process's child, and stays a zombie unless somebody asks.
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
			case <-ticks.C:
			}
			strays.Reap()
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// killSelf ends the process with a job in it that ignores its kill: nothing of
// that job may run any longer, not even what a normal exit would still do. What jobs have
// started goes first: the master may be gone that would end it, and this process can be
// long in ending. No job is told of that.
func (w *worker) killSelf() {
	w.set.Abandon()
	procfs.EndDescendants()
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/systemd"
)

// served is what a master is made of.
type served struct {
	config config.Config
	log    *zap.Logger
	level  zap.AtomicLevel // of log
	dev    *devMode
	// reload reads the configuration again; nil refuses HUP.
	reload func(context.Context) (config.Config, error)
	// ready is called when the first worker process works, and stopping when the
	// end begins; both may be nil.
	ready, stopping func()
}

// serve waits for Redis and runs a master until it ends.
func (a *app) serve(ctx context.Context, s served) error {
	if a.received == nil {
		return errors.New("no signals: this verb runs from the program's own command line only")
	}
	defer a.hush()
	if err := procfs.Subreaper(); err != nil {
		s.log.Warn("what outlives its worker process goes to init", zap.Error(err))
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	if _, err := masterConfig(s.config, s.dev, a.handlers); err != nil {
		return err // before anything is waited for
	}
	redis, err := openStore(s.config, "resqued-master")
	if err != nil {
		return err
	}
	defer func() { _ = redis.Close() }()

	relay := newRelay(a.received, s.dev != nil)
	defer relay.stop()
	notifier := &announcer{s: s, Notifier: systemd.New(systemd.Config{
		Socket: os.Getenv("NOTIFY_SOCKET"), WatchdogUSec: os.Getenv("WATCHDOG_USEC"), WatchdogPID: os.Getenv("WATCHDOG_PID"),
	}, s.log)}
	if stopped, err := waitForRedis(ctx, redis, relay, notifier, s.log); stopped || err != nil {
		return err
	}
	if s.config.Waker {
		s.config.Waker = a.canWait(ctx, redis, s.log)
	}
	cfg, err := masterConfig(s.config, s.dev, a.handlers)
	if err != nil {
		return err
	}
	others := a.newBeside(s, redis, self)
	system := &master.Linux{}
	deps := master.Deps{
		Self: self, System: system, Store: redis, Notifier: notifier, Log: s.log, Stats: others,
		Signals: relay.out, BeforeFork: a.beforeFork,
	}
	if s.reload != nil {
		deps.Reload = func(ctx context.Context) (master.Config, error) {
			c, err := s.reload(ctx)
			if err != nil {
				return master.Config{}, err
			}
			if c.Waker {
				c.Waker = a.canWait(ctx, redis, s.log)
			}
			next, err := masterConfig(c, s.dev, a.handlers)
			next.InForce = func() { others.use(a, c, self, s.log) }
			return next, err
		}
	}
	m, err := master.New(cfg, deps)
	if err != nil {
		return err
	}
	stop := others.run(ctx)
	err = m.Run(ctx)
	stop()
	if errors.Is(err, master.ErrWorkerConfig) {
		return &problem{exit: exitConfig, code: "config", lines: []string{err.Error()}, cause: err}
	}
	return err
}

// canWait reports whether a waker works with this server, and says once if it does not.
func (a *app) canWait(ctx context.Context, redis *store.Store, log *zap.Logger) bool {
	if a.noWaker {
		return false
	}
	if err := redis.CanWait(ctx); err != nil {
		log.Warn("the waker is off: jobs are found at each interval", zap.Error(err))
		a.noWaker = true
	}
	return !a.noWaker
}

// onlyCommands reports whether nothing of the program itself runs in a worker process.
func onlyCommands(h *resqued.Handlers) bool {
	if len(h.Middleware()) > 0 || len(h.AllHooks()) > 0 || h.JobLockKeyFunc() != nil {
		return false
	}
	for _, name := range h.Classes() {
		if c, _ := h.Lookup(name); c.Handler != nil || c.JobLockKey != nil {
			return false
		}
	}
	return true
}

func (a *app) beforeFork() {
	for _, h := range a.handlers.AllHooks() {
		if h.BeforeFork != nil {
			h.BeforeFork()
		}
	}
}

// masterConfig turns a configuration into a master's.
func masterConfig(c config.Config, dev *devMode, handlers *resqued.Handlers) (master.Config, error) {
	worker, err := json.Marshal(handover{Config: c, Dev: dev})
	if err != nil {
		return master.Config{}, fmt.Errorf("configuration: %w", err)
	}
	lease, _ := leaseAndBeat(c)
	var env []string
	if onlyCommands(handlers) {
		env = handler.Unsecret(os.Environ(), envRules(c), c.DatabaseURL != "")
	}
	return master.Config{
		Slots: c.WorkerCount, Threads: c.ThreadCount, MaxRetiring: c.MaxRetiring,
		TermTimeout: c.TermTimeout, DrainTimeout: c.DrainTimeout, LockDuration: c.JobLockDuration, MaxDeaths: c.MaxDeaths, Policy: deathPolicy(c, handlers),
		Classes: knownClasses(c, handlers), FailureLists: c.FailureLists(), Shared: fleetOf(c, handlers).shared(),
		OnMasterDeath: c.OnMasterDeath, DevSignals: dev != nil, Worker: worker, Env: env, Unique: uniqueQueues(c),
		Fields: map[string]string{
			"queues": c.Queues.String(), "version": version(),
			"jobs_per_fork": strconv.Itoa(c.JobsPerFork), "config": c.Fingerprint(),
			"lease_ms": strconv.FormatInt(lease.Milliseconds(), 10), "term_timeout_ms": strconv.FormatInt(c.TermTimeout.Milliseconds(), 10),
		},
	}, nil
}

// envRules says what commands get of the daemon's environment.
func envRules(c config.Config) handler.EnvRules {
	return handler.EnvRules{Keep: c.KeepsEnv, Drop: c.DropsEnv}
}

// uniqueQueues are those that the master brings back in step, unless they are strict.
func uniqueQueues(c config.Config) store.UniqueQueues {
	u := store.UniqueQueues{Match: c.Unique, Leave: c.UniqueQueuesStrict || len(c.UniqueQueues) == 0}
	for _, entry := range c.UniqueQueues {
		if !strings.ContainsAny(entry, "*?[!") {
			u.Names = append(u.Names, entry)
		}
	}
	return u
}

// waitForRedis waits as long as it takes. A signal to stop ends it in good
// order; others are kept for the master.
func waitForRedis(ctx context.Context, redis *store.Store, relay *relay, notifier *announcer, log *zap.Logger) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = redis.WaitReady(ctx, func(err error, wait time.Duration) {
			log.Warn("waiting for redis", zap.Error(err), zap.Duration("next_try", wait))
			proc.SetTitle(proc.TitleOf + "master: waiting for redis")
			notifier.Status("waiting for redis at " + redis.Where())
			notifier.ExtendTimeout(wait + 30*time.Second)
		})
	}()
	var kept []os.Signal
	for {
		select {
		case <-done:
			for _, sig := range kept {
				select {
				case relay.out <- sig:
				default: // as many newer ones are waiting
				}
			}
			return false, err
		case sig := <-relay.out:
			switch signals.Of(sig) {
			case signals.Kill, signals.Drain:
				log.Info("stopped while waiting for redis", zap.String("signal", signals.Name(sig)))
				cancel()
				<-done
				return true, nil
			case signals.Pause, signals.Resume, signals.Reload:
				if len(kept) < cap(relay.out)/2 {
					kept = append(kept, sig)
				}
			}
		}
	}
}

// relay hands signals on to whoever currently is to obey them.
type relay struct {
	out  chan os.Signal
	end  chan struct{}
	done sync.WaitGroup
}

// newRelay starts a relay. Under "resqued dev" the end of the terminal is the end
// of the daemon, which has nobody to serve then.
func newRelay(in <-chan os.Signal, dev bool) *relay {
	r := &relay{out: make(chan os.Signal, 64), end: make(chan struct{})}
	r.done.Go(func() {
		for {
			select {
			case <-r.end:
				return
			case sig := <-in:
				if dev && sig == syscall.SIGHUP {
					sig = syscall.SIGTERM
				}
				select {
				case r.out <- sig:
				case <-r.end:
					return
				}
			}
		}
	})
	return r
}

func (r *relay) stop() {
	close(r.end)
	r.done.Wait()
}

// announcer tells the service manager, and beside it the log and the terminal,
// how the master is.
type announcer struct {
	*systemd.Notifier
	s                served
	readied, stopped bool
}

// Ready is called when the start is over, and after each reload.
func (n *announcer) Ready() {
	if !n.readied {
		n.readied = true
		c := n.s.config
		n.s.log.Info("ready", zap.Int("pid", os.Getpid()), zap.Int("workers", c.WorkerCount),
			zap.Int("threads", c.ThreadCount), zap.Stringer("queues", c.Queues), zap.String("version", version()))
		if n.s.ready != nil {
			n.s.ready()
		}
	}
	n.Notifier.Ready()
}

// Stopping is called when the end begins.
func (n *announcer) Stopping() {
	if !n.stopped && n.s.stopping != nil {
		n.s.stopping()
	}
	n.stopped = true
	n.Notifier.Stopping()
}

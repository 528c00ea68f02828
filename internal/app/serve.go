package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/sys/systemd"
)

// ErrWorkerConfig is returned by Run when no worker process can use the configuration.
var ErrWorkerConfig = master.ErrWorkerConfig

// Listen starts to receive a daemon's signals and sets the process title of a master. Call it
// first: an earlier signal ends the process or makes Go dump its stacks. stop restores the
// signals' default effects.
func Listen() (received <-chan os.Signal, stop func()) {
	received, stop = signals.Listen()
	proc.SetTitle(proc.TitleOf + "master: starting")
	return received, stop
}

// Daemon runs a master and its surroundings. Set the fields, then call Run.
type Daemon struct {
	Program Program
	Config  *config.Resolved
	// Signals is the channel of Listen.
	Signals <-chan os.Signal
	Log     *zap.Logger
	Level   zap.AtomicLevel // of Log
	// Dev is set under "resqued dev".
	Dev *DevMode
	// Reload reads the configuration again; nil = HUP is refused.
	Reload func(context.Context) (*config.Resolved, error)
	// Ready is called when the first worker process is ready, Stopping when the daemon begins to
	// end; both may be nil.
	Ready, Stopping func()

	// Elder is the master that this one replaces; nil = none.
	Elder *Elder
	// Invocation is how this program is started again; nil = never.
	Invocation *proc.Invocation
	// PIDFile is taken when this master takes over from another; nil = none.
	PIDFile *proc.PIDFile

	bench bool // see Bench
	// address is this machine's address in the network of Redis; "" = unknown.
	address string
	// noWaker is the logged reason for having no waker; see waits.
	noWaker string
}

// Run waits until Redis answers, then runs the master. It returns nil after an orderly end.
func (d *Daemon) Run(ctx context.Context) error {
	proc.NameStore(d.Config.Store)
	if err := procfs.Subreaper(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		d.Log.Warn("what outlives its worker process goes to init", zap.Error(err))
	}
	self, err := proc.Self()
	if err != nil {
		return err
	}
	if _, err := d.masterConfig(d.Config.Config, waits{}, nil); err != nil {
		return err // early, before the wait for Redis
	}
	redis, err := OpenStore(d.Config.Config, "resqued-master")
	if err != nil {
		return err
	}
	defer func() { _ = redis.Close() }()

	relay := newRelay(d.Signals, d.Dev != nil)
	defer relay.stop()
	notifier := &announcer{d: d, Notifier: systemd.New(systemd.Config{
		Socket: os.Getenv("NOTIFY_SOCKET"), WatchdogUSec: os.Getenv("WATCHDOG_USEC"), WatchdogPID: os.Getenv("WATCHDOG_PID"),
	}, d.Log)}
	if d.Elder != nil {
		notifier.Hold()
	}
	// They boot during the wait for Redis.
	first, err := bootTemplates(d.Config.Config, d.Program.Handlers, d.Log)
	if err != nil {
		return err
	}
	runners := &templates{now: first}
	defer runners.stop()
	asked := &controls{path: d.Config.ControlSocket, version: d.Program.Version, store: d.Config.Store, redis: RedisOf(d.Config.Config), requests: make(chan master.Request), log: d.Log}
	if d.Dev != nil || d.bench {
		asked.path = NoControl
	}
	defer asked.close()
	begun, booting := "it has just begun", "its runners boot"
	asked.waits.Store(&begun)
	if d.Elder == nil { // so that clients can check that it is alive
		asked.begin()
	}
	if stopped, err := waitForRedis(ctx, redis, relay, notifier, asked, d.Log); stopped || err != nil {
		return err
	}
	asked.waits.Store(&begun)
	// A first start with other handlers works without runners until they boot. A process that
	// replaces a living daemon waits: that one still has runners.
	if d.Elder != nil || d.Dev == nil && !d.bench && onlyRunners(d.Config.Config, d.Program.Handlers) {
		asked.waits.Store(&booting)
		stopped, err := waitForTemplates(ctx, runners, relay, notifier, d.Log)
		if stopped {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrWorkerConfig, err)
		}
	}
	d.address = redis.OwnAddress()
	cfg, err := d.masterConfig(d.Config.Config, d.waits(ctx, d.Config.Waker, redis), first)
	if err != nil {
		return err
	}
	others := d.newBeside(redis, self)
	inCharge := func(on bool) {
		others.inCharge(on)
		if on {
			d.takeFile()
			asked.listen(false)
		}
	}
	system := &master.Linux{}
	deps := master.Deps{
		Self: self, System: system, Store: redis, Notifier: notifier, Log: d.Log, Stats: others, History: others.counted, Events: others.events,
		Requests: asked.requests, Upgrade: d.upgrade(inCharge),
		Signals: relay.out, BeforeFork: d.Program.beforeFork, Look: others.look, Trouble: runners.trouble, Fields: runners.fields,
	}
	if d.Reload != nil {
		deps.Reload = func(ctx context.Context) (master.Config, error) {
			r, err := d.Reload(ctx)
			if err != nil {
				return master.Config{}, err
			}
			booted, err := bootTemplates(r.Config, d.Program.Handlers, d.Log)
			if err != nil {
				return master.Config{}, err
			}
			if err := booted.booted(ctx); err != nil {
				runners.drop(booted)
				return master.Config{}, err
			}
			next, err := d.masterConfig(r.Config, d.waits(ctx, r.Waker, redis), booted)
			next.InForce = func() {
				others.use(d.Program, r, self, d.Log)
				runners.use(booted)
			}
			next.Dropped = func() { runners.drop(booted) }
			if err != nil {
				runners.drop(booted)
			}
			return next, err
		}
	}
	m, err := master.New(cfg, deps)
	if err != nil {
		return err
	}
	if d.Elder == nil {
		others.inCharge(true)
		asked.listen(true)
	}
	asked.waits.Store(nil)
	stop := others.run(ctx)
	defer stop()
	return m.Run(ctx)
}

// takeFile replaces another master's pid file by this process's.
func (d *Daemon) takeFile() {
	if d.PIDFile == nil {
		return
	}
	if err := d.PIDFile.Take(); err != nil {
		d.Log.Error("the pid file still names the process before", zap.Error(err))
	}
}

const (
	// waitShare is the fraction (1/waitShare) of a server's free connections that a daemon may
	// wait with unless the waker is on explicitly: many daemons share what is left, and other
	// clients need some.
	waitShare = 16
	// waitUnknown replaces it if the server's free connections are unknown.
	waitUnknown = 4
	// All daemons together wait with a fraction (1/fleetShare) of the server's connections, at
	// most fleetWaits: a few daemons that wait for a queue do as well as hundreds, and one push
	// wakes all of them.
	fleetShare, fleetWaits, fleetUnknown = 8, 512, 128
)

type waiting interface {
	CanWait(ctx context.Context) error
	Connections(ctx context.Context) (most, free int, known bool)
}

// waits is how many queues a poller may wait for at a time (0 = none), and all daemons together.
type waits struct {
	One int `json:"one,omitempty"`
	All int `json:"all,omitempty"`
}

// waits decides how many queues to wait for. If none, it logs why, once for each reason.
func (d *Daemon) waits(ctx context.Context, mode string, redis waiting) waits {
	n, why := waits{}, ""
	if mode != config.WakerOff {
		n, why = wakerSize(ctx, mode, redis)
	}
	if why != "" && why != d.noWaker {
		level := zap.InfoLevel
		if mode == config.WakerOn {
			level = zap.WarnLevel
		}
		d.Log.Log(level, why, zap.String("waker", mode))
	}
	d.noWaker = why
	return n
}

// wakerSize decides how many queues to wait for, and describes problems.
func wakerSize(ctx context.Context, mode string, redis waiting) (n waits, why string) {
	if err := redis.CanWait(ctx); err != nil {
		return n, fmt.Sprintf("the waker is off, jobs are found at each interval: %v", err)
	}
	most, free, known := redis.Connections(ctx)
	switch {
	case mode == config.WakerOn && known && free < store.MaxWaits:
		return waits{store.MaxWaits, fleetWaits}, fmt.Sprintf("the waker takes up to %d connections, and redis has %d to spare: raise its maxclients", store.MaxWaits, free)
	case mode == config.WakerOn:
		return waits{store.MaxWaits, fleetWaits}, ""
	case !known:
		return waits{waitUnknown, fleetUnknown}, ""
	case free < waitShare:
		return n, fmt.Sprintf("the waker is off, jobs are found at each interval: redis has %d connections to spare", free)
	}
	return waits{min(store.MaxWaits, free/waitShare), min(fleetWaits, max(1, most/fleetShare))}, ""
}

// onlyCommands reports whether worker processes run only commands, no code of the program.
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

func (p Program) beforeFork() {
	for _, h := range p.Handlers.AllHooks() {
		if h.BeforeFork != nil {
			h.BeforeFork()
		}
	}
}

// masterConfig returns the settings of the master. The worker processes get runners from the
// templates of g; nil = only check whether the configuration can be used.
func (d *Daemon) masterConfig(c config.Config, waits waits, g *generation) (master.Config, error) {
	handlers := d.Program.Handlers
	if g == nil {
		g = &generation{}
	} else if size := maxRSS(&c); c.MaxRSS == config.RSSAuto && size > 0 {
		d.Log.Info("max_rss follows the memory that the control group allows", zap.Int64("max_rss", size), zap.Int64("limit", procfs.MemoryLimit()))
	}
	files, numbers := g.files()
	worker, err := json.Marshal(handover{Config: c, Waits: waits, Address: d.address, Dev: d.Dev, Bench: d.bench, Runners: numbers})
	if err != nil {
		return master.Config{}, fmt.Errorf("configuration: %w", err)
	}
	lease, _ := leaseAndBeat(c)
	var env []string
	if onlyCommands(handlers) {
		env = program.Unsecret(os.Environ(), envRules(c), c.DatabaseURL != "")
	}
	return master.Config{
		Slots: c.WorkerCount, Threads: c.ThreadCount, MaxRetiring: c.MaxRetiring,
		TermTimeout: c.TermTimeout, DrainTimeout: c.DrainTimeout, DrainRequeue: c.DrainThen == config.DrainRequeue, LockDuration: c.JobLockDuration, MaxDeaths: c.MaxDeaths, Policy: deathPolicy(c, handlers),
		Classes: knownClasses(c, handlers), FailureLists: c.FailureLists(), Shared: fleetOf(c, handlers).shared(),
		OnMasterDeath: c.OnMasterDeath, DevSignals: d.Dev != nil, Worker: worker, Env: env, Files: files, BootTimeout: workerBoot(c, handlers), Unique: uniqueQueues(c),
		Fields: map[string]string{
			"queues": c.Queues.String(), "version": d.Program.Version,
			"jobs_per_fork": strconv.Itoa(c.JobsPerFork), "config": c.Fingerprint(), "config_keys": c.KeyDigests(),
			"lease_ms": strconv.FormatInt(lease.Milliseconds(), 10), "term_timeout_ms": strconv.FormatInt(c.TermTimeout.Milliseconds(), 10),
		},
	}, nil
}

// workerBoot is how long a worker process may take to be ready; longer if runners boot in it.
func workerBoot(c config.Config, handlers *resqued.Handlers) time.Duration {
	most := 30 * time.Second
	for _, name := range usedRunners(c, handlers) {
		most = max(most, 30*time.Second+c.Runners[name].BootTimeout)
	}
	return most
}

func envRules(c config.Config) program.EnvRules {
	return program.EnvRules{Keep: c.KeepsEnv, Drop: c.DropsEnv}
}

// uniqueQueues returns the queues whose keys the master repairs, except strict ones.
func uniqueQueues(c config.Config) store.UniqueQueues {
	u := store.UniqueQueues{Match: c.Unique, Leave: c.UniqueQueuesStrict || len(c.UniqueQueues) == 0}
	for _, entry := range c.UniqueQueues {
		if !strings.ContainsAny(entry, "*?[!") {
			u.Names = append(u.Names, entry)
		}
	}
	return u
}

// waitForRedis waits until Redis answers, without a limit. stopped: a signal asked the daemon to
// end.
func waitForRedis(ctx context.Context, redis *store.Store, relay *relay, notifier *announcer, asked *controls, log *zap.Logger) (stopped bool, err error) {
	began := time.Now()
	return whileStarting(ctx, "redis", relay, log, func(ctx context.Context) error {
		return redis.WaitReady(ctx, func(err error, wait time.Duration) {
			log.Warn("waiting for redis", zap.Error(err), zap.Duration("next_try", wait))
			status := fmt.Sprintf("waiting for redis at %s for %s: it is %s", redis.Where(),
				time.Since(began).Round(time.Second), store.TroubleOf(err))
			asked.waits.Store(&status)
			notifier.waits("waiting for redis", status, wait+30*time.Second)
		}, longstore.Probed())
	})
}

// whileStarting calls wait, whose context ends when a signal asks the daemon to end; then
// stopped is true. Other signals are kept for the master.
func whileStarting(ctx context.Context, what string, relay *relay, log *zap.Logger, wait func(context.Context) error) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = wait(ctx)
	}()
	var kept []os.Signal
	for {
		select {
		case <-done:
			relay.back <- kept
			return false, err
		case sig := <-relay.out:
			switch signals.Of(sig) {
			case signals.Kill, signals.Drain:
				log.Info("stopped while waiting for "+what, zap.String("signal", signals.Name(sig)))
				cancel()
				<-done
				return true, nil
			case signals.Abort, signals.Pause, signals.Resume, signals.Reload:
				if len(kept) < maxSignals/2 {
					kept = append(kept, sig)
				}
			}
		}
	}
}

// maxSignals bounds the signals that a relay keeps.
const maxSignals = 64

// relay passes signals on in order, first to whileStarting, then to the master.
type relay struct {
	out  chan os.Signal
	back chan []os.Signal // takes signals back, to be passed on first
	end  chan struct{}
	done sync.WaitGroup
}

// newRelay starts a relay. In dev mode HUP becomes TERM: the daemon ends when its terminal is
// closed.
func newRelay(in <-chan os.Signal, dev bool) *relay {
	r := &relay{out: make(chan os.Signal), back: make(chan []os.Signal), end: make(chan struct{})}
	r.done.Go(func() {
		var waiting []os.Signal
		for {
			var out chan<- os.Signal
			var next os.Signal
			if len(waiting) > 0 {
				out, next = r.out, waiting[0]
			}
			more := in
			if len(waiting) >= maxSignals {
				more = nil
			}
			select {
			case <-r.end:
				return
			case kept := <-r.back:
				waiting = slices.Concat(kept, waiting)
			case out <- next:
				waiting = waiting[1:]
			case sig := <-more:
				if dev && sig == syscall.SIGHUP {
					sig = syscall.SIGTERM
				}
				waiting = append(waiting, sig)
			}
		}
	})
	return r
}

func (r *relay) stop() {
	close(r.end)
	r.done.Wait()
}

// announcer reports the master's state to the service manager, the log and the terminal.
type announcer struct {
	*systemd.Notifier
	d                *Daemon
	readied, stopped bool
}

// waits reports what the daemon waits for before there is a master.
func (n *announcer) waits(title, status string, timeout time.Duration) {
	proc.SetTitle(proc.TitleOf + "master: " + title)
	n.Status(status)
	if n.d.Elder != nil {
		n.d.Elder.Failed(status) // why, in case it stops waiting
	}
	n.ExtendTimeout(timeout)
}

// Ready is called after the start and after each reload.
func (n *announcer) Ready() {
	if !n.readied {
		n.readied = true
		c := n.d.Config
		n.d.Log.Info("ready", zap.Int("pid", os.Getpid()), zap.Int("workers", c.WorkerCount),
			zap.Int("threads", c.ThreadCount), zap.Stringer("queues", c.Queues), zap.String("version", n.d.Program.Version))
		if n.d.Ready != nil {
			n.d.Ready()
		}
	}
	n.Notifier.Ready()
}

func (n *announcer) Stopping() {
	if !n.stopped && n.d.Stopping != nil {
		n.d.Stopping()
	}
	n.stopped = true
	n.Notifier.Stopping()
}

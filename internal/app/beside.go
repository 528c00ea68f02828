package app

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/resqued/resqued/internal/app/deadhost"
	"github.com/resqued/resqued/internal/app/pruner"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/history/writer"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/schedule/delayed"
	"github.com/resqued/resqued/internal/schedule/runner"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// beside holds the parts of a master's process that run outside the master's loop and depend on
// the configuration. A reload changes them in one place, use, and only once the new
// configuration is in force.
type beside struct {
	store     *store.Store
	level     zap.AtomicLevel              // of the master's own lines
	stats     atomic.Pointer[statsCounter] // a reload changes it while jobs are counted
	forwarder *delayed.Forwarder
	schedules *runner.Runner
	sweeper   *longstore.Sweeper
	pruner    *pruner.Pruner
	counted   *history.Collector
	events    *recorder
	history   *writer.Writer
	hosts     *deadhost.Watcher
	// look makes the master look for dead processes.
	look chan struct{}
	// scheduled are the schedules of the configuration in force, which run while this master is
	// in charge. Only the master's loop uses both.
	scheduled runner.Config
	charge    bool
}

type statsCounter struct {
	cfg statsd.Config
	*statsd.Client
}

func statsConfig(c config.Config) statsd.Config {
	return statsd.Config{Host: c.StatsdHost, Port: c.StatsdPort, Key: c.StatsdKey}
}

func newCounter(c config.Config, log *zap.Logger) *statsCounter {
	return &statsCounter{statsConfig(c), statsd.New(statsConfig(c), log)}
}

func (b *beside) Died(class, queue string) {
	b.stats.Load().Died(class)
	b.counted.Count(time.Now(), class, queue, history.Processed|history.Failed)
}

func (b *beside) Repaired(duplicates int) {
	b.stats.Load().Count(statsd.Repaired, 1)
	b.stats.Load().Count(statsd.Duplicate, duplicates)
}

// newBeside returns the parts for the configuration that the daemon starts with.
func (d *Daemon) newBeside(redis *store.Store, self proc.Identity) *beside {
	b := &beside{
		store: redis, level: d.Level,
		schedules: runner.New(redis, d.Log.Named("schedule")),
		sweeper:   longstore.NewSweeper(longstore.New(redis.Redis()), d.Log.Named("longjobs"), longLimits(d.Config.Config)),
	}
	b.events = newRecorder(self.String(), redis, d.Log)
	b.look = make(chan struct{}, 1)
	b.hosts = deadhost.New(redis, self, b.events.Note, func() {
		select {
		case b.look <- struct{}{}:
		default: // already requested
		}
	}, d.Log.Named("hosts"))
	b.hosts.Use(hostConfig(d.Config.Config))
	b.pruner = pruner.New(d.Config.PruneQueues, redis, b.pruned, d.Log)
	b.counted = history.NewCollector(self.Host)
	b.history = writer.New(b.counted, redis, d.Log)
	stats := newCounter(d.Config.Config, d.Log)
	b.stats.Store(stats)
	b.forwarder = delayed.NewForwarder(forwarderConfig(d.Config.Config, self, stats), redis, d.Log)
	b.scheduled = d.Program.scheduleConfig(d.Config, self)
	return b
}

func (b *beside) pruned(names []string) {
	some := make([]string, min(len(names), 3))
	for i := range some {
		some[i] = wire.Printable(names[i], 100)
	}
	text := "empty for long, and named by nothing: " + strings.Join(some, ", ")
	if len(names) > len(some) {
		text += ", …"
	}
	b.events.Note(store.Event{Kind: store.EventRemoved, Subject: "names of queues", Text: text, Count: int64(len(names))})
}

// inCharge starts or stops what only one of two masters may do during an upgrade: their
// schedules may differ, and the old ones are no longer in force. The rest is done by scripts
// that any number of masters may call.
func (b *beside) inCharge(on bool) {
	b.charge = on
	if on {
		b.schedules.Set(b.scheduled)
	} else {
		b.schedules.Set(runner.Config{})
	}
}

func (b *beside) use(p Program, r *config.Resolved, self proc.Identity, log *zap.Logger) {
	c := r.Config
	if level, err := zapcore.ParseLevel(c.LogLevel); err == nil {
		b.level.SetLevel(level)
	}
	if err := b.store.Use(storeOptions(c, "")); err != nil { // unexpected: a worker process has used it
		log.Error("this master keeps its old settings for redis", zap.Error(err))
	}
	old := b.stats.Load()
	stats := old
	if statsConfig(c) != old.cfg {
		stats = newCounter(c, log)
	}
	b.stats.Store(stats)
	b.forwarder.Use(forwarderConfig(c, self, stats))
	if old != stats {
		old.Close() // counts in between are lost
	}
	b.scheduled = p.scheduleConfig(r, self)
	if b.charge {
		b.schedules.Set(b.scheduled)
	}
	b.sweeper.Use(longLimits(c))
	b.hosts.Use(hostConfig(c))
	b.pruner.Use(c.PruneQueues)
}

// run starts the parts that have a loop; stop ends them and waits for them.
func (b *beside) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { b.forwarder.Run(ctx) })
	helpers.Go(func() { b.schedules.Run(ctx) })
	helpers.Go(func() { b.sweeper.Run(ctx) })
	helpers.Go(func() { b.pruner.Run(ctx) })
	helpers.Go(func() { b.history.Run(ctx) })
	helpers.Go(func() { b.events.run(ctx) })
	helpers.Go(func() { b.hosts.Run(ctx) })
	return func() {
		cancel()
		helpers.Wait()
		b.stats.Load().Close()
	}
}

func forwarderConfig(c config.Config, self proc.Identity, stats delayed.Stats) delayed.Config {
	return delayed.Config{
		Unique: UniqueOf(c), Worker: wire.MasterID(self.Host, os.Getpid(), "delayed"), FailureLists: c.FailureLists(), Stats: stats,
	}
}

func hostConfig(c config.Config) deadhost.Config {
	if len(c.HostDeadHook) == 0 {
		return deadhost.Config{}
	}
	return deadhost.Config{
		Command: c.HostDeadHook, Env: program.Scrub(os.Environ(), envRules(c)), After: c.HostDeadAfter, Timeout: c.HostDeadTimeout,
	}
}

func longLimits(c config.Config) longstore.Limits {
	return longstore.Limits{Running: c.LongJobSilence, Queued: c.LongJobWait}
}

package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

// BusyServer is the number of commands per second above which a server must not be disturbed
// unasked.
const BusyServer = 1000

const (
	benchClass, benchQueue = "Resqued::Bench", "bench"
	// benchAhead is how many jobs wait at least, so that the workers never wait for jobs;
	// benchBatch is how many one call pushes.
	benchAhead, benchBatch = 10_000, 1_000
	benchLook              = 20 * time.Millisecond
	// benchStart bounds the time until the first job ends, benchEnd the removal of the queue;
	// benchInsist is the time between two signals to end.
	benchStart, benchEnd, benchInsist = 30 * time.Second, 30 * time.Second, 10 * time.Second
	// benchRemove bounds the removal of the keys.
	benchRemove = 2 * time.Minute
	roundTrips  = 200
)

// Bench measures a machine and a Redis: daemons with worker processes, whose jobs do nothing, in
// a namespace of its own below the configuration's. It runs no code of the program and no
// commands of the configuration.
type Bench struct {
	Program Program
	Config  config.Config
	// For is how long each daemon is measured; it ends earlier after Jobs jobs.
	For  time.Duration
	Jobs int
	Log  *zap.Logger

	base, own *store.Store
	run       config.Config                  // for own
	told      atomic.Pointer[chan os.Signal] // of the running daemon
}

// BenchRun is the result for one daemon.
type BenchRun struct {
	Name string `json:"name"`
	config.Tuning
	Jobs    int     `json:"jobs"`
	Seconds float64 `json:"seconds"`
	// Rate is in jobs per second.
	Rate float64 `json:"jobs_per_second"`
	// Micros is the server's processor time per job, Commands its number of commands; 0 =
	// unknown. The load of other clients is subtracted as measured before the run.
	Micros   float64 `json:"redis_us_per_job,omitempty"`
	Commands float64 `json:"commands_per_job,omitempty"`
}

// BenchServer is the Redis of a Bench.
type BenchServer struct {
	Where   string `json:"where"`
	Version string `json:"version,omitempty"`
	// Others counts the processes and workers registered in the configuration's namespace.
	Others    int   `json:"others"`
	PerSecond int64 `json:"commands_per_second"`
	Keys      int64 `json:"keys"`
	// P50 and P99 are round-trip times in milliseconds.
	P50 float64 `json:"round_trip_p50_ms"`
	P99 float64 `json:"round_trip_p99_ms"`
}

// Open connects. Remove removes the keys; then Close closes the connections.
func (b *Bench) Open() (err error) {
	name := make([]byte, 6)
	_, _ = rand.Read(name) // never fails
	c := b.Config
	c.Namespace = store.BenchNamespace(c.Namespace, hex.EncodeToString(name))
	spec, _, err := selector.Parse([]string{benchQueue}, 1)
	if err != nil {
		return err
	}
	c.Queues, c.Handlers, c.Schedules, c.PersistentSchedules, c.SchedulerLock = spec, nil, nil, false, config.SchedulerLockNone
	c.StatsdHost, c.DatabaseURL, c.DatabaseURLFile, c.PIDFile, c.UniqueQueues, c.LocketedQueues = "", "", "", "", nil, []string{"*"}
	c.OnMasterDeath, c.UntilEmpty, c.DrainTimeout, c.LogLevel = "kill", false, 0, "error"
	b.run = c
	if b.base, err = OpenStore(b.Config, "resqued-bench"); err != nil {
		return err
	}
	b.own, err = OpenStore(b.run, "resqued-bench")
	return err
}

// Close ends the connections.
func (b *Bench) Close() error { return errors.Join(b.base.Close(), b.own.Close()) }

// Signal passes a signal of this process on to the running daemon, if any.
func (b *Bench) Signal(sig os.Signal) {
	if told := b.told.Load(); told != nil {
		select {
		case *told <- sig:
		default: // as many wait already
		}
	}
}

// Namespace is the measurement's namespace.
func (b *Bench) Namespace() string { return b.run.Namespace }

// Server measures the server's round trips and asks for its other users.
func (b *Bench) Server(ctx context.Context) (s BenchServer, err error) {
	s.Where = b.base.Where()
	times := make([]time.Duration, 0, roundTrips)
	for end := time.Now().Add(time.Second); len(times) == 0 || len(times) < roundTrips && time.Now().Before(end); {
		took, err := b.base.RoundTrip(ctx)
		if err != nil {
			return s, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	milli := func(q float64) float64 {
		return float64(times[int(q*float64(len(times)-1))]) / float64(time.Millisecond)
	}
	s.P50, s.P99 = milli(0.5), milli(0.99)
	load, err := b.base.Load(ctx)
	if err != nil {
		return s, err
	}
	if load.PerSecond > BusyServer { // a measurement that has just ended counts for a second or two
		if err := nap(ctx, 2*time.Second); err != nil {
			return s, err
		}
		if load, err = b.base.Load(ctx); err != nil {
			return s, err
		}
	}
	s.Version, s.PerSecond, s.Keys = load.Version, load.PerSecond, load.Keys
	procs, err := b.base.ProcList(ctx)
	if err != nil {
		return s, err
	}
	workers, err := b.base.WorkerList(ctx)
	if err != nil {
		return s, err
	}
	s.Others = max(len(procs), len(workers))
	return s, nil
}

// Measure runs a daemon until its time is up or ctx ends. Call it on the main goroutine: worker
// processes must end with the thread that started them.
func (b *Bench) Measure(ctx context.Context, name string, t config.Tuning) (r BenchRun, err error) {
	r.Name, r.Tuning = name, t
	before, err := b.own.Load(ctx)
	if err != nil {
		return r, err
	}
	quiet := time.Now()
	f := feeder{store: b.own}
	c := b.run
	c.WorkerCount, c.ThreadCount, c.JobsPerFork, c.MaxRSS, c.MaxAge = t.WorkerCount, t.ThreadCount, t.JobsPerFork, t.MaxRSS, 0
	c.MaxRetiring = min(c.MaxRetiring, c.WorkerCount)
	if err := nap(ctx, 300*time.Millisecond); err != nil { // for the load of other clients
		return r, err
	}
	after, err := b.own.Load(ctx)
	if err != nil {
		return r, err
	}
	others := load{after.CPU - before.CPU, after.Commands - before.Commands}.per(time.Since(quiet))
	if f.done, f.failed, err = b.own.Stats(ctx); err != nil { // of earlier daemons
		return r, err
	}
	if err := f.fill(ctx, f.done); err != nil {
		return r, err
	}
	program := b.Program
	program.Handlers = benchHandlers()
	told, ended := make(chan os.Signal, 64), make(chan struct{})
	b.told.Store(&told)
	defer b.told.Store(nil)
	d := Daemon{
		Program: program, Config: &config.Resolved{Config: c, Sources: map[string]config.Source{}}, Signals: told,
		Log: b.Log, Level: zap.NewAtomicLevelAt(zap.ErrorLevel), bench: true,
	}
	watched := make(chan error, 1)
	go func() {
		err := b.watch(ctx, &f, &r, others, ended)
		watched <- errors.Join(err, b.stop(told, ended))
	}()
	// A signal ends the daemon, not ctx: its processes must end before the keys go.
	err = d.Run(context.WithoutCancel(ctx))
	close(ended)
	return r, errors.Join(err, <-watched)
}

type load struct {
	cpu      time.Duration
	commands int64
}

func (l load) per(d time.Duration) load {
	return load{time.Duration(float64(l.cpu) / d.Seconds()), int64(float64(l.commands) / d.Seconds())}
}

var errDaemonEnded = errors.New("the daemon has ended by itself")

// watch counts jobs from the end of the first one.
func (b *Bench) watch(ctx context.Context, f *feeder, r *BenchRun, others load, ended <-chan struct{}) error {
	var began time.Time
	var from int64
	var before store.ServerLoad
	start, ticks := time.Now(), time.NewTicker(benchLook)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			return errDaemonEnded
		case <-ticks.C:
		}
		done, failed, err := b.own.Stats(ctx)
		now := time.Now()
		switch {
		case err != nil:
			return err
		case failed > f.failed:
			return fmt.Errorf("%d jobs that do nothing have failed", failed)
		case done == f.done && now.Sub(start) > benchStart:
			return fmt.Errorf("no job has ended within %s", benchStart)
		case done == f.done:
			continue
		case began.IsZero():
			if before, err = b.own.Load(ctx); err != nil {
				return err
			}
			if done, _, err = b.own.Stats(ctx); err != nil {
				return err
			}
			began, from = time.Now(), done
		case now.Sub(began) >= b.For || done-f.done >= int64(b.Jobs):
			after, err := b.own.Load(ctx)
			if err != nil {
				return err
			}
			r.Jobs, r.Seconds = int(done-from), now.Sub(began).Seconds()
			r.Rate = float64(r.Jobs) / r.Seconds
			if before.Measured && after.Measured && r.Jobs > 0 {
				took := time.Since(began).Seconds()
				jobs := r.Rate * took // until the server was asked
				r.Micros = max(0, (float64(after.CPU-before.CPU)-float64(others.cpu)*took)/jobs/float64(time.Microsecond))
				r.Commands = max(0, (float64(after.Commands-before.Commands)-float64(others.commands)*took)/jobs)
			}
			return nil
		}
		if err := f.fill(ctx, done); err != nil {
			return err
		}
	}
}

// stop signals a daemon to end, repeatedly if needed. It returns when the daemon has ended.
func (b *Bench) stop(told chan<- os.Signal, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), benchEnd)
	defer cancel()
	_, err := b.own.RemoveQueue(ctx, benchQueue, false)
	for _, sig := range []os.Signal{syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTERM} {
		told <- sig
		select {
		case <-ended:
			return err
		case <-time.After(benchInsist):
		}
	}
	<-ended // the master kills what does not end
	return err
}

// Remove removes all keys of the measurement, even after ctx has ended, and returns their
// number.
func (b *Bench) Remove(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchRemove)
	defer cancel()
	return b.own.RemoveBench(ctx)
}

// Sweep removes the keys of killed measurements below the configuration's namespace. It refuses
// while one runs.
func (b *Bench) Sweep(ctx context.Context) (int, error) {
	live, err := b.base.LiveBenches(ctx)
	if err != nil {
		return 0, err
	}
	if live > 0 {
		return 0, fmt.Errorf("a measurement is under way: %d of its processes hold a lease; if it was killed, wait until that has ended (%s at most)", live, store.DefaultLease)
	}
	c := b.Config
	c.Namespace = store.BenchNamespace(c.Namespace, "")
	all, err := OpenStore(c, "resqued-bench")
	if err != nil {
		return 0, err
	}
	defer func() { _ = all.Close() }()
	return all.RemoveBench(ctx)
}

type feeder struct {
	store        *store.Store
	pushed       int64
	done, failed int64 // before the daemon started
}

func (f *feeder) fill(ctx context.Context, done int64) error {
	for f.pushed-(done-f.done) < benchAhead {
		batch := make([][]byte, benchBatch)
		for i := range batch {
			f.pushed++
			batch[i] = []byte(`{"class":"` + benchClass + `","args":[` + strconv.FormatInt(f.pushed, 10) + `]}`)
		}
		if _, err := f.store.Push(ctx, benchQueue, batch...); err != nil {
			return err
		}
	}
	return nil
}

func benchHandlers() *resqued.Handlers {
	h := resqued.New()
	h.HandleArgs(benchClass, func(context.Context, resqued.Args) error { return nil }, resqued.Queue(benchQueue))
	return h
}

// Package deadhost runs a command that finds out whether silent hosts are dead, or makes sure of
// it (host_dead_hook). Their jobs then need not wait for the end of their leases. Nothing
// depends on it.
//
// One master at a time asks about a host; store.SilentHosts gives it the turn.
package deadhost

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	randv2 "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// lookEvery is how often to look for silent hosts, pause how long no master asks again about
	// a host whose death was not proven.
	lookEvery = 2 * time.Second
	pause     = 5 * time.Second
	// patience bounds one call; turnMargin is how much longer the turn lasts than the hook.
	patience   = 5 * time.Second
	turnMargin = 10 * time.Second
	// mostAsked bounds the hooks that a master runs at a time.
	mostAsked = 8
)

// Config is the hook. The zero value has none.
type Config struct {
	// Command is the program and its arguments; the host's name is appended. Env is its
	// environment without the host's variables.
	Command, Env []string
	// After is how long a host has to be silent; 0 = two and a half beats of its processes.
	After   time.Duration
	Timeout time.Duration
}

// Store is what a Watcher needs of Redis.
type Store interface {
	SilentHosts(ctx context.Context, r store.SilentRequest) (hosts []store.Host, now time.Time, err error)
	SettleHost(ctx context.Context, v store.HostVerdict) (store.HostOutcome, error)
}

// Watcher asks about silent hosts, outside the loop of a master.
type Watcher struct {
	store Store
	self  proc.Identity
	note  func(store.Event)
	found func()
	log   *zap.Logger

	cfg       atomic.Pointer[Config]
	changed   chan struct{} // capacity 1
	runs      atomic.Int64
	asking    atomic.Int64
	hooks     sync.WaitGroup
	complaint string
	odd       sync.Map // places with logged names that no program is given
}

// New returns a Watcher for the master self. It reports events to note, and calls found when
// jobs of a dead host can be recovered; neither may block.
func New(s Store, self proc.Identity, note func(store.Event), found func(), log *zap.Logger) *Watcher {
	w := &Watcher{store: s, self: self, note: note, found: found, log: log, changed: make(chan struct{}, 1)}
	w.cfg.Store(&Config{})
	return w
}

// Use changes the settings. A running hook keeps those that it began with.
func (w *Watcher) Use(cfg Config) {
	w.cfg.Store(&cfg)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Run looks for silent hosts until ctx ends, and returns when the remaining hooks were killed.
func (w *Watcher) Run(ctx context.Context) {
	defer w.hooks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case <-timer.C:
		}
		if len(w.cfg.Load().Command) > 0 {
			w.look(ctx)
			timer.Reset(lookEvery*3/4 + randv2.N(lookEvery/2))
		}
	}
}

func (w *Watcher) look(ctx context.Context) {
	cfg, free := *w.cfg.Load(), mostAsked-int(w.asking.Load())
	if free <= 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	turn := w.self.String() + " " + rand.Text()
	hosts, now, err := w.store.SilentHosts(call, store.SilentRequest{
		Place: w.self.Place(), After: cfg.After, Most: free, Turn: turn, For: cfg.Timeout + turnMargin,
	})
	if err != nil {
		if text := err.Error(); text != w.complaint && ctx.Err() == nil {
			w.complaint = text
			w.log.Debug("silent hosts cannot be looked for", zap.Error(err)) // the master reports that Redis is away
		}
		return
	}
	w.complaint = ""
	for _, h := range hosts {
		w.asking.Add(1)
		w.hooks.Go(func() {
			defer w.asking.Add(-1)
			w.ask(ctx, cfg, h, turn, now.Sub(h.Last))
		})
	}
}

func (w *Watcher) ask(ctx context.Context, cfg Config, h store.Host, turn string, silent time.Duration) {
	if !plain(h.Name()) {
		if _, told := w.odd.LoadOrStore(h.Place, true); !told {
			w.log.Warn("a silent host is not asked about: its name is none that a program should be given; its lease decides",
				zap.String("host", wire.Printable(h.Name(), 300)))
		}
		w.settle(ctx, h, turn, false)
		return
	}
	log := w.log.With(zap.String("host", h.Name()), zap.String("boot", h.Boot()))
	log.Info("a host is silent; asking host_dead_hook whether it is dead", zap.Duration("silent", silent.Round(time.Millisecond)), zap.Int("processes", h.Procs))
	began := time.Now()
	name := fmt.Sprintf("%s:hook-%d", w.self, w.runs.Add(1))
	err := run(ctx, hook{
		argv: append(append([]string{}, cfg.Command...), h.Name()), env: append(append([]string{}, cfg.Env...), environ(h, name, silent)...),
		name: name, timeout: cfg.Timeout, log: log,
	})
	took := time.Since(began).Round(time.Millisecond)
	if err != nil {
		log.Warn("host_dead_hook has not proven that a host is dead; its lease decides, if it is not asked again before",
			zap.Error(err), zap.Duration("after", took))
		w.settle(ctx, h, turn, false)
		return
	}
	o, ok := w.settle(ctx, h, turn, true)
	if !ok {
		return
	}
	switch o.Outcome {
	case store.HostFenced:
		text := fmt.Sprintf("proven dead by host_dead_hook after %s of silence", (silent + took).Round(time.Second))
		if o.Left > 0 {
			text += fmt.Sprintf("; %d processes of another version keep their leases", o.Left)
		}
		log.Warn("a host is dead, says host_dead_hook: its jobs are recovered", zap.Int("processes", len(o.Procs)), zap.Int("left_to_their_leases", o.Left), zap.Duration("after", took))
		w.note(store.Event{Kind: store.EventHostDead, Subject: "host " + h.Name(), Text: text, Count: int64(len(o.Procs))})
		w.found()
	case store.HostAlive:
		log.Error("a host is dead, says host_dead_hook, but it has given a sign of life meanwhile: nothing was done", zap.Time("sign", o.Last), zap.Duration("after", took))
	default: // it has left, its lease has ended, or this process was stopped for long
		log.Info("a host is dead, says host_dead_hook, too late: nothing is to be done any more", zap.Duration("after", took))
	}
}

// settle writes the result to Redis. If that fails, the turn expires.
func (w *Watcher) settle(ctx context.Context, h store.Host, turn string, dead bool) (o store.HostOutcome, ok bool) {
	// Even when the master ends: the result is known.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	o, err := w.store.SettleHost(call, store.HostVerdict{Place: h.Place, Dead: dead, Last: h.Last, Turn: turn, Pause: pause})
	if err != nil && dead {
		w.log.Error("a host is dead, says host_dead_hook, but redis cannot be told: its lease decides, if it is not asked again before",
			zap.String("host", h.Name()), zap.Error(err))
	}
	return o, err == nil
}

// environ returns the host's variables for the hook. name identifies the run.
func environ(h store.Host, name string, silent time.Duration) []string {
	return []string{
		"RESQUED_PROC=" + name, // it identifies all descendants
		"RESQUED_HOST=" + h.Name(), "RESQUED_HOST_BOOT=" + h.Boot(),
		"RESQUED_HOST_BOOT_ID=" + text(h.BootID), "RESQUED_HOST_ADDRESS=" + text(h.Address),
		"RESQUED_HOST_SINCE=" + program.Stamp(h.Last), "RESQUED_HOST_SILENT=" + strconv.Itoa(int(math.Round(silent.Seconds()))),
		"RESQUED_HOST_PROCESSES=" + strconv.Itoa(h.Procs),
	}
}

// text returns s, which any program may have written to Redis, if it is plain; else "".
func text(s string) string {
	if !plain(s) {
		return ""
	}
	return s
}

// plain reports whether a name is safe for programs: any client of this Redis may have made it
// up.
func plain(name string) bool {
	if name == "" || len(name) > 255 || name[0] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' && c != ':' {
			return false
		}
	}
	return true
}

var errKilled = errors.New("it was killed since its time (host_dead_timeout) was over")

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/master"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/schedule/delayed"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/workerproc"
)

const (
	namespace = "sim"
	lease     = 12 * time.Second
	beatEvery = 3 * time.Second
	maxDeaths = 3
	hopeless  = 4 // times maxDeaths: deaths of any cause
)

var queues = []string{"low", "high", "once"}

func isUnique(queue string) bool { return queue == "once" }

// tenants are the first arguments of jobs.
type tenants struct{}

func (tenants) Tenant(_ string, payload []byte) string {
	var job struct{ Args []any }
	_ = json.Unmarshal(payload, &job)
	return fmt.Sprint(job.Args[0])
}

// world is a fleet with its Redis.
type world struct {
	rand    *rand.Rand // of the event that happens
	events  int
	redis   *miniredis.Miniredis
	hosts   []*host
	user    *store.Store // of people and producers, whose way to Redis never breaks
	classes classes
	ledger  *ledger
	running sync.WaitGroup // everything of the fleet
	pids    struct {
		sync.Mutex
		last int
	}
	// The daemons have lines; the tenants of the queue high take turns; the queue once is unique.
	lined, fair, unique bool
	// At most that many jobs of a class run at once; 0 = any number.
	most   int
	limits workerproc.Limits

	alter func(c *rdb.Client) error
}

func (w *world) nextPID() int {
	w.pids.Lock()
	defer w.pids.Unlock()
	w.pids.last++
	return w.pids.last
}

func (w *world) open(l *link) (*store.Store, error) {
	s, err := store.Open(store.Options{
		URL: "redis://sim:6379/0", Namespace: namespace, Lease: lease, LockTTL: lease, BeatEvery: beatEvery, Dial: l.dial,
	})
	if err == nil && w.alter != nil {
		err = w.alter(s.Redis())
	}
	return s, err
}

// host is a machine.
type host struct {
	world *world
	name  string
	boot  int
	link  *link
	// daemon is the one that runs there; nil = none.
	daemon *daemon
	// settings of its daemons.
	slots, threads, perFork int
}

// daemon is a master with its worker processes.
type daemon struct {
	host    *host
	id      proc.Identity
	worker  workerproc.Config
	store   *store.Store
	link    *link
	signals chan os.Signal
	stop    context.CancelFunc
	ended   chan struct{} // closed when its master has returned

	mu        sync.Mutex
	processes []*process
	dead      bool
}

func (h *host) start() error {
	w := h.world
	l := newLink(w.redis, h.link)
	s, err := w.open(l)
	if err != nil {
		return err
	}
	spec, _, err := selector.Parse(queues, h.threads)
	if err != nil {
		return err
	}
	pid := w.nextPID()
	policy := store.Policy{AtMostOnce: []string{"Once"}, MaxDeaths: maxDeaths}
	d := &daemon{
		host: h, store: s, link: l, signals: make(chan os.Signal, 8), ended: make(chan struct{}),
		id: proc.Identity{Host: h.name, Boot: fmt.Sprintf("boot%d", h.boot), PID: pid, Start: uint64(pid)},
		worker: workerproc.Config{
			Threads: h.threads, JobsPerFork: h.perFork, Queues: spec, Lined: w.lined, DeathPolicy: policy,
			Interval: 500 * time.Millisecond, TermTimeout: 5 * time.Second, LockDuration: lease, BeatEvery: beatEvery, Host: h.name,
		},
	}
	cfg := delayed.Config{Stats: noStats{}}
	if w.unique {
		d.worker.Unique, cfg.Unique = isUnique, isUnique
	}
	if w.fair {
		d.worker.Fair = map[string]*store.Fair{"high": store.NewFair(0, nil, 1)}
	}
	m, err := master.New(master.Config{
		Slots: h.slots, Threads: h.threads, MaxRetiring: 1, TermTimeout: 5 * time.Second, LockDuration: lease, MaxDeaths: maxDeaths, Policy: policy,
		Worker: []byte("sim"), Fields: map[string]string{"queues": "low,high,once", "host": h.name},
	}, master.Deps{
		Self: d.id, System: (*system)(d), Store: s, Notifier: notifier{}, Log: zap.NewNop(), Stats: noStats{}, Signals: d.signals,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop, h.daemon = cancel, d
	w.ledger.note("%s starts", d.id)
	w.running.Go(func() { delayed.NewForwarder(cfg, s, zap.NewNop()).Run(ctx) })
	w.running.Go(func() {
		err := m.Run(ctx)
		w.ledger.note("%s has ended: %v", d.id, err)
		close(d.ended)
		cancel()
		_ = s.Close()
	})
	return nil
}

func (d *daemon) isDead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// alive returns its living worker processes.
func (d *daemon) alive() (living []*process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.processes {
		if !p.dead() {
			living = append(living, p)
		}
	}
	return living
}

// kill ends the master as SIGKILL does: its worker processes go on without it.
func (d *daemon) kill() {
	d.mu.Lock()
	d.dead = true
	processes := d.processes
	d.mu.Unlock()
	d.link.kill()
	for _, p := range processes {
		p.orphaned()
	}
	d.stop()
	d.host.world.ledger.note("%s is killed", d.id)
}

// killAll ends the master and its worker processes at once.
func (d *daemon) killAll() {
	living := d.alive()
	d.kill()
	for _, p := range living {
		p.kill()
	}
}

func (d *daemon) over() bool {
	select {
	case <-d.ended:
		return true
	default:
		return d.isDead()
	}
}

func (d *daemon) drain() {
	if !d.over() {
		d.signals <- syscall.SIGQUIT
	}
}

// system is what the master sees of its machine.
type system daemon

func (s *system) Spawn(spec proc.Spec) (master.Child, error) {
	p, err := (*daemon)(s).spawn(spec.Proc)
	if err != nil {
		return nil, err
	}
	return child{p}, nil
}

func (*system) Sweep(context.Context, string) (int, error) { return 0, nil }

// Dead is true of a master of this boot of the machine that has ended: a machine knows its processes.
func (s *system) Dead(id proc.Identity) bool {
	if id.Place() != s.id.Place() {
		return false
	}
	now := s.host.daemon
	return now == nil || now.id != id || now.isDead()
}

func (*system) DeadWorker(procfs.Traces) (dead, inReach bool) { return false, false }
func (*system) OOMKills() (o procfs.OOM)                      { return o }
func (*system) ReapStrays(func(pid int) bool)                 {}
func (*system) SetTitle(string)                               {}

// notifier is a service manager that hears nothing.
type notifier struct{}

func (notifier) Ready()                          {}
func (notifier) HandOver(int)                    {}
func (notifier) Hold()                           {}
func (notifier) Speak()                          {}
func (notifier) Status(string)                   {}
func (notifier) Reloading()                      {}
func (notifier) Stopping()                       {}
func (notifier) ExtendTimeout(time.Duration)     {}
func (notifier) Watchdog()                       {}
func (notifier) WatchdogInterval() time.Duration { return 0 }

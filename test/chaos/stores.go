package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/test/chaos/check"
	"github.com/resqued/resqued/test/chaos/ledger"
)

// storeNames are the stores of a run with several. Each has a Redis, queues, schedules, producers
// and a history of its own, and all daemons work all of them.
var storeNames = []string{"main", "bulk"}

// storeSpan is by how much the numbers of jobs of two stores differ.
const storeSpan = 1_000_000

// newHarness returns a run with as many stores as the options say.
func newHarness(o options) *harness {
	h := &harness{o: o, began: procfs.BootTime(), homes: map[string]*chaos{}}
	epoch := time.Duration(time.Now().UnixNano()) - procfs.BootTime()
	for i := range max(1, o.stores) {
		c := &chaos{
			harness: h, history: check.NewHistory(), open: map[string]*check.Push{}, started: map[*machine]time.Duration{},
			instant: check.Result{Name: "C1 instants"}, leases: check.NewLeases(), first: i * storeSpan,
		}
		if o.stores > 1 {
			c.name, c.prefix = storeNames[i], storeNames[i]+"_"
		}
		c.history.DaemonOf = c.daemonOf
		c.history.SharedQueue = c.queue(sharedQueue)
		c.history.Epoch = epoch
		h.stores = append(h.stores, c)
	}
	return h
}

// queue returns the name of a queue, or of a schedule, in this store.
func (c *chaos) queue(name string) string { return c.prefix + name }

func (c *chaos) queues(names ...string) []string {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = c.queue(name)
	}
	return names
}

// homeOf returns the store to whose history an entry of the ledger belongs, by the queue from
// which the job has come.
func (c *harness) homeOf(e ledger.Entry) *chaos {
	home := c.homes[e.Run]
	if home == nil {
		home = c.stores[0]
		for _, s := range c.stores[1:] {
			if len(e.Queue) > len(s.prefix) && e.Queue[:len(s.prefix)] == s.prefix {
				home = s
			}
		}
		c.homes[e.Run] = home
	}
	return home
}

// pusher is what enqueues the jobs of a producer.
type pusher interface {
	EnqueueRaw(ctx context.Context, payload []byte, opts ...client.Option) (client.Result, error)
}

// pusher returns a client as a program has it: of the one Redis, or of all stores.
func (c *chaos) pusher() (p pusher, closes func(), err error) {
	var unique []string
	var stores []client.Store
	for _, s := range c.stores {
		unique = append(unique, s.queues(uniqueQueue)...)
		stores = append(stores, client.Store{Name: s.name, URL: "redis://" + s.pushProxy.Addr() + "/0", Queues: []string{s.prefix + "*"}})
	}
	o := client.Options{Namespace: namespace, UniqueQueues: unique}
	if len(stores) > 1 {
		all, err := client.NewStores(o, stores...)
		return all, func() { _ = all.Close() }, err
	}
	o.URL = stores[0].URL
	one, err := client.New(o)
	return one, func() { _ = one.Close() }, err
}

// wholeKinds hit a daemon in all of its stores. eitherKinds do that, or hit one store of it.
var (
	wholeKinds = []string{
		"tree-kill", "host-kill", "host-freeze", "deploy", "all-away", "no-files", "log-blocked", "exec-blocked", "container-restart",
		"above-kill", "above-stop", "start-without",
	}
	eitherKinds = []string{"term", "quit", "hup", "usr1", "usr2"}
)

// aim chooses the store for a fault, and returns the name of the only one that it hits.
func (c *chaos) aim(k kind, r *rand.Rand) (*chaos, string) {
	if len(c.stores) == 1 {
		return c, ""
	}
	s := c.stores[r.IntN(len(c.stores))]
	if slices.Contains(wholeKinds, k.name) || slices.Contains(eitherKinds, k.name) && r.IntN(2) == 0 {
		return s, ""
	}
	return s, s.name
}

// hitBy returns the stores that a fault hits.
func (c *harness) hitBy(f *check.Fault) []*chaos {
	if f.Store == "" {
		return c.stores
	}
	return slices.DeleteFunc(slices.Clone(c.stores), func(s *chaos) bool { return s.name != f.Store })
}

// hitBy returns the parts of the daemon that a fault hits.
func (m *machine) hitBy(f *check.Fault) []*machine {
	if f.Store == "" {
		return m.parts
	}
	return []*machine{m}
}

// crew returns the worker processes of the parts of the daemon that a fault hits.
func (m *machine) crew(f *check.Fault) (all []process) {
	for _, part := range m.hitBy(f) {
		all = append(all, part.workers()...)
	}
	return all
}

// signalHit signals the daemon, or the master of the only store that a fault hits.
func (m *machine) signalHit(f *check.Fault, sig syscall.Signal) {
	if f.Store == "" {
		m.signalTop(sig)
	} else {
		m.signal(sig)
	}
}

// awaitEndOf waits until what a fault hits has ended.
func (m *machine) awaitEndOf(ctx context.Context, f *check.Fault) (code int, err error) {
	if f.Store == "" {
		return m.awaitExit(ctx, patience)
	}
	return m.awaitEnd(ctx, patience)
}

// againAfter has what a fault has ended work again.
func (m *machine) againAfter(ctx context.Context, f *check.Fault) error {
	if f.Store == "" {
		return m.start(ctx)
	}
	return m.again(ctx)
}

// storeKinds are the faults that only a daemon of several stores can have.
func storeKinds() []kind {
	return []kind{
		{"above-kill", "process above the masters killed, new one after 0–0.5 s", 8 * time.Second, 0, aboveKill},
		{"above-stop", "process above the masters stopped for longer than a lease", 2 * time.Second, 0, aboveStop},
		{"start-without", "daemon killed, started while one Redis is away", 5 * time.Second, 0, startWithout},
	}
}

// aboveKill kills the process above the masters: these drain, beside those of the next one.
func aboveKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen, old := c.marks(), names(m.crew(f))
	f.From = procfs.BootTime()
	m.signalTop(syscall.SIGKILL)
	if _, err := m.awaitExit(ctx, patience); err != nil {
		return err
	}
	if !pause(ctx, between(r, 0, 500*time.Millisecond)) {
		return context.Cause(ctx)
	}
	lasted(f, "started again after %s", span(procfs.BootTime()-f.From))
	if err := m.start(ctx); err != nil {
		return err
	}
	err := c.awaitRecovered(ctx, f, f.From, old)
	c.noticed(f, seen, "the process above the masters of the stores is gone")
	return err
}

// aboveStop stops the process above the masters: these go on, and nothing happens to them when
// it continues.
func aboveStop(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	f.From = procfs.BootTime()
	m.signalTop(syscall.SIGSTOP)
	ok := pause(ctx, between(r, m.lease+500*time.Millisecond, m.lease+2*time.Second))
	m.signalTop(syscall.SIGCONT)
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	if !ok {
		return context.Cause(ctx)
	}
	return c.working(ctx, f, f.To, m)
}

// startWithout kills a daemon, and starts it again while it cannot reach one of its stores: it
// works the others, and that one, too, as soon as it is there.
func startWithout(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	workers := m.crew(f)
	seen := c.marks()
	f.Effect, f.Procs, f.From = check.Kills, names(workers), procfs.BootTime()
	m.killMasters()
	for _, w := range workers {
		_ = syscall.Kill(w.PID, syscall.SIGKILL)
	}
	if _, err := m.awaitExit(ctx, patience); err != nil {
		return err
	}
	m.proxy.Refuse(true)
	m.proxy.Cut()
	defer m.proxy.Heal()
	began := procfs.BootTime()
	if err := m.startWithout(ctx, m); err != nil {
		return err
	}
	for _, part := range m.parts {
		if part == m {
			continue
		}
		other := check.Fault{Store: part.store.name}
		if err := part.store.working(ctx, &other, began, part); err != nil {
			return err
		}
	}
	lasted(f, "%d worker processes, without %s for %s", len(workers), c.name, span(procfs.BootTime()-began))
	m.proxy.Heal()
	if err := c.awaitRecovered(ctx, f, f.To, f.Procs); err != nil {
		return err
	}
	err := c.working(ctx, f, f.To, m)
	c.noticed(f, seen, "recovered the jobs of a dead worker process")
	return err
}

// sum adds up numbers in texts.
func sum(texts []string) (all int) {
	for _, text := range texts {
		n, _ := strconv.Atoi(text)
		all += n
	}
	return all
}

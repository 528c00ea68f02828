package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/test/chaos/check"
	"github.com/resqued/resqued/test/chaos/ledger"
)

// producers is the number of programs that push jobs.
const producers = 2

// chaos is one run: its Redis, its load, its daemons, its history.
type chaos struct {
	o              options
	dir, ledgerDir string
	began          time.Duration
	server         *server
	machines       []*machine
	// guest runs in a container, and only while that is restarted; nil if not permitted.
	guest *machine
	// pushProxy is for producers, sideProxy for foreign workers and probes.
	pushProxy, sideProxy *faultproxy.Proxy
	// runners: a runner performs some jobs of the load.
	runners bool
	// unscheduled is set when the schedules are to end.
	unscheduled atomic.Bool

	// tasks are all goroutines except those of the load, which end earlier.
	tasks sync.WaitGroup

	mu      sync.Mutex
	quietTo time.Duration // no faults until then
	quietAt time.Duration
	trouble []string // other problems
	history *check.History
	open    map[string]*check.Push // whose fate is unknown yet
	probes  []check.Probe
	started map[*machine]time.Duration // when a job last began there
	backlog int
	lined   int           // the most jobs seen in lines
	ticked  time.Duration // the witness's last acknowledged tick
	popping int           // foreign pops without an answer yet
	instant check.Result
	leases  *check.Leases
	// lookedAt is the time of the last look, by Redis's clock.
	lookedAt int64
	// judged are the contents of Redis at the last snapshots, newest last.
	judged []check.Snapshot
}

func newChaos(o options) *chaos {
	c := &chaos{
		o: o, began: procfs.BootTime(), history: check.NewHistory(), open: map[string]*check.Push{}, started: map[*machine]time.Duration{},
		instant: check.Result{Name: "C1 instants"}, leases: check.NewLeases(),
	}
	c.history.DaemonOf = c.daemonOf
	c.history.SharedQueue = sharedQueue
	c.history.Epoch = time.Duration(time.Now().UnixNano()) - c.began
	return c
}

// run runs the harness and returns whether every check has passed.
func run(ctx context.Context, o options) (ok bool, err error) {
	c := newChaos(o)
	if err := c.makeDirs(); err != nil {
		return false, err
	}
	fmt.Printf("chaos: profile %s, seed %d, evidence in %s\n", o.profile, o.seed, c.dir)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		c.discard()
		cancel()
		c.tasks.Wait()
		for _, m := range c.daemons() {
			m.reading.Wait()
			_ = m.log.Close()
		}
		if ok && !o.keep {
			_ = os.RemoveAll(c.dir)
		}
	}()
	if err := c.setup(ctx); err != nil {
		return false, err
	}
	load, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var loads sync.WaitGroup
	c.load(load, &loads)
	look, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	var looks sync.WaitGroup
	looks.Go(func() { c.watch(look) })
	looks.Go(func() { c.pressure(look) })
	looks.Go(func() { c.snapshots(look) })
	looks.Go(func() { c.writeTicks(look) })
	looks.Go(func() { c.watchLeases(look) })

	err = c.injectFaults(ctx)
	stopLoad()
	loads.Wait()
	var late error
	if err == nil {
		// The checks report what keeps a daemon.
		if late = c.unschedule(ctx); ctx.Err() != nil {
			err = late
		}
	}
	if err == nil {
		c.awaitEnds(ctx)
	}
	stopLooking()
	looks.Wait()
	if err != nil {
		return false, errors.Join(err, c.keep(nil))
	}
	ok, err = c.judge(ctx)
	return ok && late == nil, errors.Join(err, late)
}

func (c *chaos) makeDirs() (err error) {
	c.dir = c.o.dir
	if c.dir == "" {
		c.dir, err = os.MkdirTemp("", "chaos-")
	} else {
		err = os.MkdirAll(c.dir, 0o700)
	}
	if err != nil {
		return err
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	c.ledgerDir = filepath.Join(c.dir, "ledger")
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(c.ledgerDir, 0o700); err != nil {
		return fmt.Errorf("-dir has to be a directory that no run has used: %w", err)
	}
	return nil
}

// setup starts Redis, the proxies and the daemons.
func (c *chaos) setup(ctx context.Context) (err error) {
	first, err := startInstance(ctx)
	if err != nil {
		return err
	}
	c.server = &server{instance: *first}
	if c.sideProxy, err = c.proxy(ctx, 9); err != nil {
		return err
	}
	if c.pushProxy, err = c.proxy(ctx, 0); err != nil {
		return err
	}
	if err := c.place(); err != nil {
		return err
	}
	if err := c.findBeside(); err != nil {
		return err
	}
	if err := c.exclude(); err != nil {
		return err
	}
	c.findRunner(ctx)
	if len(c.o.kinds()) == 0 {
		return errors.New("none of these faults is possible here")
	}
	for i, m := range c.daemons() {
		if m.proxy, err = c.proxy(ctx, i+1); err != nil {
			return err
		}
		if m.log, err = os.Create(filepath.Join(c.dir, m.name+".log")); err != nil {
			return err
		}
	}
	from := procfs.BootTime()
	for _, m := range c.machines {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return c.schedule(ctx, from)
}

func (c *chaos) proxy(ctx context.Context, n int) (*faultproxy.Proxy, error) {
	p, err := faultproxy.Listen(faultproxy.Config{Network: "unix", Address: c.server.socket, Seed: c.o.seed + uint64(n)})
	if err == nil {
		c.tasks.Go(func() { _ = p.Run(ctx) })
	}
	return p, err
}

// injectFaults injects the faults of the profile one after another, each kind once before any
// comes again.
func (c *chaos) injectFaults(ctx context.Context) error {
	r := rand.New(rand.NewPCG(c.o.seed, 1))
	end := procfs.BootTime() + c.o.duration
	most := end + c.o.duration/4
	short, gate := c.o.profile == "short", c.o.profile == "gate"
	// enough reports whether a long run has reached its goals. Otherwise it continues until most
	// has passed.
	enough := func(decks int) bool {
		return procfs.BootTime() > end && decks >= c.o.leastFaults() && c.recovered() >= c.o.leastRecoveries()
	}
	for deck := 0; ; deck++ {
		// A quiet time per deck would take a tenth of a long run's faults.
		if (short || gate || deck%3 == 0 || c.o.quiet != defaultQuiet) && !c.quiet(ctx, c.o.quiet) {
			return context.Cause(ctx)
		}
		kinds := c.o.kinds()
		if deck > 0 {
			kinds = slices.DeleteFunc(kinds, func(k kind) bool { return slices.Contains(rare, k.name) })
		}
		if short && deck > 0 {
			kinds = slices.DeleteFunc(kinds, func(k kind) bool { return slices.Contains(lengthy, k.name) })
		}
		r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, k := range kinds {
			own := rand.New(rand.NewPCG(r.Uint64(), 2))
			if !pause(ctx, time.Duration(50+own.IntN(250))*time.Millisecond) {
				return context.Cause(ctx)
			}
			if err := c.inject(ctx, k, own); err != nil {
				return err
			}
			now := procfs.BootTime()
			switch {
			case deck == 0:
			case short && now > c.began+shortTime, !short && now > most:
				return nil
			case !short && enough(deck):
				return nil
			}
		}
		if gate || short && deck+1 == shortDecks || !short && enough(deck+1) {
			return nil
		}
	}
}

// quiet injects no faults for a while. It begins when earlier faults have no effect any more:
// after a machine was stopped, its jobs wait for seconds.
func (c *chaos) quiet(ctx context.Context, d time.Duration) bool {
	if d > 0 && !c.catchUp(ctx) {
		return false
	}
	now := procfs.BootTime()
	c.mu.Lock()
	c.quietAt, c.quietTo = now, now+d
	c.history.Quiet = append(c.history.Quiet, check.Span{From: now, To: now + d})
	c.mu.Unlock()
	return pause(ctx, d)
}

// catchUp waits until every fault is over and the backlog is worked: until a job pushed to the
// lowest queue afterwards has run. It reports whether that happened.
func (c *chaos) catchUp(ctx context.Context) bool {
	from := procfs.BootTime()
	c.mu.Lock()
	for _, f := range c.history.Faults {
		from = max(from, f.To) // also for processes that wait for a lost reply
	}
	c.mu.Unlock()
	err := c.await(ctx, maxCatchUp, "the lowest queue to have its turn", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.probes, func(p check.Probe) bool { return p.Pushed > from && c.history.Done(p.ID) })
	})
	if err != nil && ctx.Err() == nil && c.o.verbose {
		fmt.Printf("%8s %v\n", c.clock(), err) // C5 reports it
	}
	return ctx.Err() == nil
}

func (c *chaos) inject(ctx context.Context, k kind, r *rand.Rand) error {
	f := &check.Fault{Kind: k.name, Noticed: -1, Recovered: -1, From: procfs.BootTime()}
	err := k.fire(ctx, c, f, r)
	for tries := 0; errors.Is(err, errNoWorker) && tries < 20 && pause(ctx, 250*time.Millisecond); tries++ {
		// The chosen process has left in between.
		*f = check.Fault{Kind: k.name, Noticed: -1, Recovered: -1, From: procfs.BootTime()}
		err = k.fire(ctx, c, f, r)
	}
	if f.To == 0 {
		f.To = procfs.BootTime()
	}
	f.Lease = c.leaseOf(f.Daemon)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		f.Recovered = -1
		f.Note += " " + err.Error()
	}
	c.mu.Lock()
	c.history.Faults = append(c.history.Faults, *f)
	c.mu.Unlock()
	if c.o.verbose || err != nil {
		fmt.Printf("%8s %-18s %-2s noticed %s recovered %s %s\n", c.clock(), f.Kind, f.Daemon, span(f.Noticed), span(f.Recovered), f.Note)
	}
	return c.restartEnded(ctx)
}

// restartEnded restarts what has ended without being told to.
func (c *chaos) restartEnded(ctx context.Context) error {
	c.pushProxy.Heal()
	for _, m := range c.machines {
		m.proxy.Heal()
		select {
		case <-m.done:
			c.complain("daemon %s ended by itself with exit code %d", m.name, m.exit)
			if err := m.start(ctx); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

// watch reads the ledger.
func (c *chaos) watch(ctx context.Context) {
	tail := ledger.NewTail(c.ledgerDir)
	for on := true; on; {
		before := procfs.BootTime()
		on = pause(ctx, 20*time.Millisecond)
		c.stalled(before, procfs.BootTime())
		read := tail.Next
		if !on {
			read = tail.All
		}
		entries, err := read()
		if err != nil {
			c.complain("%v", err)
		}
		c.mu.Lock()
		for _, e := range entries {
			c.history.Add([]ledger.Entry{e})
			if m := c.machineOf(e.Proc); m != nil && e.What == ledger.Start {
				c.started[m] = max(c.started[m], e.At)
			}
		}
		c.mu.Unlock()
	}
}

// stalled notes that the whole machine was stopped, as virtual ones are, for so long that the
// daemon with the shortest lease might take it for a fault.
func (c *chaos) stalled(from, to time.Duration) {
	if to-from < c.o.lease/6 {
		return
	}
	f := check.Fault{Kind: check.Stall, From: from, To: to, Noticed: -1, Effect: check.Disturbs | check.Kills, Note: span(to - from)}
	if to-from > c.o.lease/2 {
		f.Effect |= check.Freezes
	}
	c.mu.Lock()
	c.history.Faults = append(c.history.Faults, f)
	c.mu.Unlock()
	fmt.Printf("%8s the machine stood still for %s\n", c.clock(), span(to-from))
}

// daemons returns all daemons, including the guest.
func (c *chaos) daemons() []*machine {
	if c.guest == nil {
		return c.machines
	}
	return append(slices.Clone(c.machines), c.guest)
}

func (c *chaos) machineOf(worker string) *machine {
	for _, m := range c.daemons() {
		if m.owns(worker) {
			return m
		}
	}
	return nil
}

func (c *chaos) daemonOf(worker string) string {
	if m := c.machineOf(worker); m != nil {
		return m.name
	}
	return ""
}

func (c *chaos) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = append(c.trouble, fmt.Sprintf(format, args...))
}

// clock returns the time since the harness began.
func (c *chaos) clock() string {
	return fmt.Sprintf("%.1fs", (procfs.BootTime() - c.began).Seconds())
}

func span(d time.Duration) string {
	if d < 0 {
		return "-"
	}
	return d.Round(time.Millisecond).String()
}

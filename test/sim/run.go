package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/resqued/resqued/internal/locket/jobkey"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
)

const (
	// storm is how long faults fall, calm how long all may take to end afterwards: leases, quarantines
	// and the backlog.
	storm = 4 * time.Minute
	calm  = 30 * time.Minute
)

// Result is what a run has shown.
type Result struct {
	Seed   uint64
	Errors []string
	Trace  []string
	// Simulated is how long it lasted in the fleet's time.
	Simulated time.Duration
	Jobs      int64
	// Events is how many pushes, acts and faults there were, those left out included.
	Events int
}

// Options change a run.
type Options struct {
	// Alter, if not nil, changes the scripts of each client.
	Alter func(c *rdb.Client) error
	// Without are events to leave out, by their number. The others stay as they were.
	Without map[int]bool
}

// Run simulates one fleet. It has to be called in a bubble of testing/synctest.
func Run(seed uint64, o Options) Result {
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it has to be repeatable
	m := miniredis.NewMiniRedis()
	defer m.Close()
	w := &world{redis: m, alter: o.Alter, lined: rnd.IntN(4) > 0, unique: rnd.IntN(3) == 0}
	w.fair = w.lined && rnd.IntN(3) == 0
	w.most = int(seed % 3) //nolint:gosec // small
	w.ledger = &ledger{began: time.Now(), jobs: map[string]*account{}, most: w.most}
	if w.most > 0 {
		limits, err := jobkey.NewLimits(jobkey.LimitsConfig{Rules: map[string]jobkey.LimitRule{
			"class": {Queues: []string{"*"}, Key: "{{class}}", Concurrency: w.most},
		}})
		if err != nil {
			return w.result(seed, err)
		}
		w.limits = limits
	}
	user, err := w.open(newLink(m, nil))
	if err != nil {
		return w.result(seed, err)
	}
	m.ClockTTL(true)
	w.user = user
	defer func() { _ = user.Close() }()
	for i := range 1 + rnd.IntN(3) {
		h := &host{
			world: w, name: fmt.Sprintf("h%d", i), link: newLink(m, nil), slots: 1 + rnd.IntN(2), threads: 1 + rnd.IntN(3), perFork: []int{0, 1, 5}[rnd.IntN(3)],
		}
		w.hosts = append(w.hosts, h)
		if err := h.start(); err != nil {
			return w.result(seed, err)
		}
	}
	w.ledger.note("seed %d: %d hosts, lines %t, fair %t, unique %t, %d of a class", seed, len(w.hosts), w.lined, w.fair, w.unique, w.most)
	w.weather(seed, o.Without)
	err = w.calm()
	w.running.Wait()
	return w.result(seed, err)
}

func (w *world) result(seed uint64, err error) Result {
	l := w.ledger
	due := l.total()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.wrongLocked("%s", err)
	}
	return Result{Seed: seed, Errors: l.errors, Trace: l.trace, Simulated: time.Since(l.began), Jobs: due, Events: w.events}
}

// weather pushes jobs, and lets users act and faults fall. Each event has random numbers of its own.
func (w *world) weather(seed uint64, without map[int]bool) {
	ctx := context.Background()
	for end := time.Now().Add(storm); time.Now().Before(end); w.events++ {
		w.rand = rand.New(rand.NewPCG(seed, uint64(w.events)+1)) //nolint:gosec // it has to be repeatable
		<-time.After(time.Duration(w.rand.IntN(2000)) * time.Millisecond)
		if without[w.events] {
			continue
		}
		switch w.rand.IntN(12) {
		case 0, 1:
			w.fault()
		case 2:
			w.act(ctx)
		default:
			w.push(ctx)
		}
	}
}

// push enqueues a job: few names, so that many jobs are equal and wait for each other's locks.
func (w *world) push(ctx context.Context) {
	class := []string{"Work", "Work", "Work", "Work", "Work", "Once", "Once", "Fails", "Fails", "Crash"}[w.rand.IntN(10)]
	args := fmt.Sprintf(`["k%d",%d]`, w.rand.IntN(4), []int{0, 1, 3, 20}[w.rand.IntN(4)])
	queue := queues[w.rand.IntN(len(queues))]
	unique := w.unique && isUnique(queue)
	if unique {
		class = "Uniq"
	}
	payload := []byte(`{"class":"` + class + `","args":` + args + `}`)
	w.ledger.pushed(class + args)
	var err error
	switch {
	case w.rand.IntN(5) == 0:
		in := time.Duration(w.rand.IntN(30)) * time.Second
		w.ledger.note("push %s%s to %s in %s", class, args, queue, in)
		err = w.user.EnqueueLater(ctx, []store.LaterJob{{Queue: queue, Payload: payload, In: in, Unique: unique}})[0].Err
	case unique:
		w.ledger.note("push %s%s to %s, once", class, args, queue)
		_, err = w.user.PushUnique(ctx, queue, false, payload)
	default:
		w.ledger.note("push %s%s to %s", class, args, queue)
		_, err = w.user.Push(ctx, queue, payload)
	}
	if err != nil {
		w.wrong("push: %v", err)
	}
}

func (w *world) wrong(format string, args ...any) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.wrongLocked(format, args...)
}

// act does what people do.
func (w *world) act(ctx context.Context) {
	queue := queues[w.rand.IntN(len(queues))]
	var err error
	switch w.rand.IntN(5) {
	case 0:
		o := store.PauseOptions{For: time.Duration(1+w.rand.IntN(20)) * time.Second, Reason: "to see"}
		w.ledger.note("pause %s%s", queue, o)
		_, _, err = w.user.Pause(ctx, queue, o)
	case 1:
		w.ledger.note("resume %s", queue)
		_, err = w.user.Resume(ctx, queue)
	case 2: // remove equal jobs
		key := fmt.Sprintf(`Work["k%d",1]`, w.rand.IntN(4))
		payload := `{"class":"Work","args":` + strings.TrimPrefix(key, "Work") + `}`
		var n int64
		n, err = w.user.Dequeue(ctx, queue, func(p []byte) bool { return string(p) == payload }, nil)
		w.ledger.removed(key, n)
		w.ledger.note("remove %d of %s from %s", n, key, queue)
	default: // kill a running job
		var procs []store.ProcInfo
		if procs, err = w.user.ProcList(ctx); err != nil {
			break
		}
		for _, p := range procs {
			for _, job := range p.Running {
				requeue := w.rand.IntN(2) == 0 && !strings.Contains(string(job.Payload), "Once")
				w.ledger.note("kill %s/%s %s, requeue %t", p.Proc, job.Token, job.Payload, requeue)
				_, err = w.user.RequestKill(ctx, store.RunName{Proc: p.Proc, Token: job.Token}, store.KillRequest{Grace: 2 * time.Second, Requeue: requeue})
				break
			}
		}
	}
	if err != nil {
		w.wrong("an act: %v", err)
	}
}

// fault breaks something. A daemon that has gone comes back with a later fault.
func (w *world) fault() {
	h := w.hosts[w.rand.IntN(len(w.hosts))]
	d := h.daemon
	for0 := time.Duration(1+w.rand.IntN(25)) * time.Second
	switch kind := w.rand.IntN(9); {
	case d == nil || d.over():
		w.ledger.note("%s gets a daemon again", h.name)
		if err := h.start(); err != nil {
			w.wrong("start: %v", err)
		}
	case kind == 0:
		if living := d.alive(); len(living) > 0 {
			p := living[w.rand.IntN(len(living))]
			w.ledger.note("kill -9 %s", p.name)
			p.kill()
		}
	case kind == 1:
		d.kill()
	case kind == 2: // the machine
		w.ledger.note("%s loses its power", h.name)
		d.killAll()
		h.boot++
	case kind == 3:
		w.ledger.note("%s is cut off for %s", h.name, for0)
		h.link.refuse()
		w.later(for0, h.link.heal)
	case kind == 4:
		w.ledger.note("%s hears nothing for %s", h.name, for0)
		h.link.silence()
		w.later(for0, h.link.heal)
	case kind >= 5 && kind < 8:
		w.ledger.note("an answer to %s is lost", h.name)
		h.link.loseOne()
	default:
		w.ledger.note("%s drains", h.name)
		d.drain()
	}
}

func (w *world) later(d time.Duration, do func()) {
	w.running.Go(func() {
		<-time.After(d)
		do()
	})
}

// calm ends all faults, waits until nothing is left to do, ends the daemons and judges.
func (w *world) calm() error {
	ctx := context.Background()
	w.ledger.note("calm")
	for _, queue := range queues {
		if _, err := w.user.Resume(ctx, queue); err != nil {
			return err
		}
	}
	idle := false
	for end := time.Now().Add(calm); !idle && time.Now().Before(end); {
		<-time.After(5 * time.Second)
		for _, h := range w.hosts {
			h.link.heal()
			if h.daemon.over() {
				if err := h.start(); err != nil {
					return err
				}
			}
		}
		left, err := w.left(ctx)
		if err != nil {
			return err
		}
		idle = len(left) == 0
	}
	if !idle {
		left, err := w.left(ctx)
		w.wrong("endless: after %s there are still %q %v", calm, left, err)
	}
	for _, h := range w.hosts {
		h.daemon.drain()
	}
	for _, h := range w.hosts {
		select {
		case <-h.daemon.ended:
		case <-time.After(2 * time.Minute):
			w.wrong("endless: %s does not end", h.daemon.id)
			h.daemon.killAll()
		}
	}
	failed := map[string]int64{}
	records, _, err := w.user.FailedList(ctx, "failed", 0, 1<<30)
	if err != nil {
		return err
	}
	for _, r := range records {
		var record struct {
			Payload struct {
				Class string          `json:"class"`
				Args  json.RawMessage `json:"args"`
			} `json:"payload"`
		}
		if err := json.Unmarshal(r.Raw, &record); err != nil {
			return err
		}
		failed[record.Payload.Class+string(record.Payload.Args)]++
	}
	w.ledger.settle(failed)
	processed, _, err := w.user.Stats(ctx)
	if err != nil {
		return err
	}
	// Equal jobs of a unique queue may be one.
	if due := w.ledger.total(); processed != due && !w.unique || processed < due {
		w.wrong("counted: %d jobs were due, and %d are counted as processed", due, processed)
	}
	left, err := w.left(ctx)
	if len(left) > 0 {
		w.wrong("left behind: %q", left)
	}
	return err
}

// left returns the keys that exist while a job waits, runs, or holds or wants something.
func (w *world) left(ctx context.Context) (left []string, err error) {
	keys, err := w.user.Redis().Read.Keys(ctx, namespace+":*").Result()
	slices.Sort(keys)
	for _, key := range keys {
		name := strings.TrimPrefix(key, namespace+":")
		for _, begin := range []string{
			"queue:", "locket:", "delayed", "timestamps:", "pause:", "resqued:inflight:", "resqued:line", "resqued:ready:", "resqued:awaited", "resqued:asks:",
			"resqued:blocked:", "resqued:open:", "resqued:suspects", "resqued:deaths", "resqued:died", "resqued:parked", "resqued:parking", "resqued:delayed", "resqued:request:",
			"resqued:room", "resqued:gates",
		} {
			if strings.HasPrefix(name, begin) {
				left = append(left, name)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	// A process keeps places of its last jobs under limits until it needs others, or ends.
	procs, err := w.user.Redis().Read.ZRange(ctx, namespace+":resqued:procs", 0, -1).Result()
	for _, key := range keys {
		name := strings.TrimPrefix(key, namespace+":")
		var of []string
		if proc, ok := strings.CutPrefix(name, "resqued:slots:"); ok {
			of = []string{proc}
		} else if strings.HasPrefix(name, "resqued:limit:class:") {
			of = w.user.Redis().Read.ZRange(ctx, key, 0, -1).Val()
		}
		for _, proc := range of {
			if proc, _, _ = strings.Cut(proc, "#"); !slices.Contains(procs, proc) {
				left = append(left, name+" of "+proc)
			}
		}
	}
	return left, err
}

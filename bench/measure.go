package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/resqued/resqued/bench/job"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
)

// result is one measurement. A zero figure was not measured.
type result struct {
	Scenario string  `json:"scenario"`
	Peer     string  `json:"peer"`
	Round    int     `json:"round"`
	Jobs     int     `json:"jobs,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	Rate     float64 `json:"jobs_per_second,omitempty"`
	// Milliseconds of processor time per 1,000 jobs; in the idle scenario per second.
	WorkerCPU float64 `json:"worker_cpu_ms,omitempty"`
	ServerCPU float64 `json:"server_cpu_ms,omitempty"`
	// Per job; in the idle scenario per second.
	Commands float64 `json:"commands,omitempty"`
	Reads    float64 `json:"reads,omitempty"`
	Bytes    float64 `json:"bytes,omitempty"`
	// MiB, of the largest worker process and of all processes of the peer.
	Memory    float64 `json:"memory,omitempty"`
	MemoryAll float64 `json:"memory_all,omitempty"`
	// Stolen is the share of processor time that a hypervisor gave to others.
	Stolen float64 `json:"stolen,omitempty"`
	// Milliseconds from enqueue to start.
	Latencies   []float64       `json:"latencies_ms,omitempty"`
	Connections float64         `json:"connections,omitempty"` // without jobs
	Calls       map[string]call `json:"calls,omitempty"`
}

type bench struct {
	o   *options
	pg  *postgres
	dir string
	// daemon is the path of resqued's program.
	daemon string
	rate   map[string]float64 // best estimate by scenario and peer
}

func (sp *spec) address(t *target) {
	if t.redis != nil {
		sp.Redis = t.redis.addr
	}
	if t.pg != nil {
		sp.Postgres = t.pg.server.URL("")
	}
}

func (b *bench) measure(ctx context.Context, s *scenario, p *peer, round int) (*result, error) {
	dir, err := os.MkdirTemp(b.dir, "m")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := &target{dir: dir, daemon: b.daemon}
	if p.postgres {
		t.pg = b.pg
		err = b.pg.reset(ctx, p.tuned)
	} else {
		t.redis, err = startRedis(ctx)
	}
	if err != nil {
		return nil, err
	}
	if t.redis != nil {
		defer t.redis.stop()
	}
	m := &measurement{b: b, s: s, p: p, t: t, r: &result{Scenario: s.Name, Peer: p.name, Round: round}}
	m.sp = spec{Peer: p.name, Scenario: *s, Shared: filepath.Join(dir, "shared")}
	m.sp.address(t)
	if s.Delay > 0 {
		far, err := faultproxy.Listen(faultproxy.Config{Network: "tcp", Address: t.redis.addr})
		if err != nil {
			return nil, err
		}
		far.SetDelay(s.Delay, 0)
		m.sp.Redis = far.Addr()
		serving, stop := context.WithCancel(ctx)
		var served sync.WaitGroup
		served.Go(func() { _ = far.Run(serving) })
		defer served.Wait()
		defer stop()
	}
	if b.o.profile && round > 0 {
		m.sp.Profile, _ = filepath.Abs(filepath.Join(b.o.out, fmt.Sprintf("%s-%d", s.Name, round)))
	}
	var unmap func()
	if m.shared, unmap, err = job.Open(m.sp.Shared); err != nil {
		return nil, err
	}
	defer unmap()
	defer func() {
		for _, c := range m.children {
			c.kill()
		}
	}()
	switch s.Kind {
	case kindDrain:
		err = m.drain(ctx)
	case kindEnqueue:
		err = m.enqueue(ctx)
	case kindLatency:
		err = m.latency(ctx)
	case kindIdle:
		err = m.idle(ctx)
	case kindQueue:
		err = m.drainQueue(ctx)
	case kindFleet:
		err = m.fleet(ctx)
	}
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, stderrName))
		return nil, fmt.Errorf("%s, %s: %w: %s", s.Name, p.name, err, text[max(0, len(text)-500):])
	}
	return m.r, nil
}

type measurement struct {
	b        *bench
	s        *scenario
	p        *peer
	t        *target
	r        *result
	sp       spec
	shared   *job.Shared
	children []*child
	whole    bool // all jobs are done
}

// jobs returns how many jobs fill the window.
func (m *measurement) jobs() int {
	key := m.s.Name + " " + m.p.name
	rate := m.b.rate[key]
	if rate == 0 {
		rate = float64(m.p.guess) / 5
		if m.s.Bulk {
			rate *= 20
		}
		if m.s.Kind == kindDrain {
			rate *= math.Min(1, float64(m.s.Threads)/10)
		}
		if m.s.Size > 10000 {
			rate /= 10
		}
	}
	n := rate * m.b.o.window.Seconds()
	if m.s.PerFork > 0 {
		n = math.Max(n, float64(4*m.s.PerFork*m.s.Processes))
	}
	if m.s.Size > 10000 {
		n = math.Min(n, 2e9/float64(m.s.Size))
	}
	return int(math.Max(math.Min(n, 2e6), 100))
}

func (m *measurement) learn() {
	m.b.rate[m.s.Name+" "+m.p.name] = m.r.Rate
}

func (m *measurement) launch(role string) error {
	if m.p.launch != nil && role == roleWorker {
		c, err := m.p.launch(m.t, &m.sp)
		if err == nil {
			m.children = append(m.children, c)
		}
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for range max(m.s.Processes, 1) {
		cmd := exec.Command(self)
		cmd.Env, cmd.Dir = childEnv(specEnv, &m.sp, append(m.s.env(), roleEnv+"="+role)...), m.t.dir
		c, err := start(cmd)
		if err != nil {
			return err
		}
		m.children = append(m.children, c)
	}
	return nil
}

// lookEvery is the polling interval of the harness. It does not affect precision, because
// results have the workers' own times, but polling takes processor time from the workers.
const lookEvery = 10 * time.Millisecond

// wait bounds the time until the first job begins.
const wait = time.Minute

func (m *measurement) until(ctx context.Context, what string, limit time.Duration, ok func() bool) error {
	for end := time.Now().Add(limit); !ok(); pause(lookEvery) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return fmt.Errorf("waited %s %s; %d done", limit, what, m.shared.Done.Load())
		}
		for _, c := range m.children {
			if c.exited() {
				return errors.New("a process has ended " + what)
			}
		}
	}
	return nil
}

// instant holds the readings at the beginning or the end. Reading takes a while on a busy
// machine, and jobs continue, so each part has its own count of done jobs.
type instant struct {
	processors  processors
	workers     time.Duration
	workersDone float64
	server      counters
	serverDone  float64
}

func (m *measurement) instant(ctx context.Context) (i instant, err error) {
	done := func() float64 { return float64(m.shared.Done.Load()) }
	i.processors = processorTime()
	before := done()
	for _, c := range m.children {
		i.workers += cpu(tree(c.pid))
	}
	between := done()
	if m.t.redis != nil {
		i.server, err = m.t.redis.snapshot(ctx)
	} else {
		i.server, err = m.t.pg.snapshot(ctx)
	}
	i.workersDone, i.serverDone = (before+between)/2, (between+done())/2
	return i, err
}

// costs divides the use between two instants by the number of jobs, or of other units.
func (m *measurement) costs(from, to instant, units float64) {
	milli := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	or := func(n float64) float64 {
		if units > 0 {
			return units
		}
		return math.Max(n, 1)
	}
	m.r.Stolen = from.processors.stolen(to.processors)
	m.r.WorkerCPU = milli(to.workers-from.workers) / or(to.workersDone-from.workersDone) * 1000
	per := or(to.serverDone - from.serverDone)
	m.r.ServerCPU = milli(to.server.cpu-from.server.cpu) / per * 1000
	m.r.Commands = (to.server.commands - from.server.commands) / per
	m.r.Reads = (to.server.reads - from.server.reads) / per
	m.r.Bytes = (to.server.bytes - from.server.bytes) / per
	m.r.Calls = map[string]call{}
	for name, c := range to.server.calls {
		before := from.server.calls[name]
		if n := c.Calls - before.Calls; n > 0 {
			m.r.Calls[name] = call{Calls: n / per, Micros: (c.Micros - before.Micros) / per}
		}
	}
}

func (m *measurement) remember(field string) {
	for _, c := range m.children {
		for _, pid := range tree(c.pid) {
			mib := memory(pid, field)
			m.r.MemoryAll += mib
			if pid != c.pid || m.p.launch == nil || m.s.Kind == kindEnqueue {
				m.r.Memory = math.Max(m.r.Memory, mib)
			}
		}
	}
}

// drain queues jobs, starts the workers, and measures the time from the beginning of the first
// job to the end of the n-th. For no peer does it include the start of the workers.
func (m *measurement) drain(ctx context.Context) error {
	n := m.jobs()
	if err := m.p.fill(ctx, m.t, m.s, max(n, m.s.Depth)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if m.t.pg != nil {
		if err := m.t.pg.analyze(ctx); err != nil {
			return err
		}
	}
	m.sp.Jobs = n
	if err := m.work(ctx, roleWorker, n); err != nil {
		return err
	}
	if m.p.name == "resqued" && m.whole && m.s.Depth == 0 {
		return checkResqued(ctx, m.t, n)
	}
	return nil
}

func (m *measurement) enqueue(ctx context.Context) error {
	m.sp.Jobs = m.jobs()
	return m.work(ctx, roleEnqueue, m.sp.Jobs)
}

func (m *measurement) work(ctx context.Context, role string, n int) error {
	m.shared.Target.Store(int64(n))
	if err := m.launch(role); err != nil {
		return err
	}
	if err := m.until(ctx, "before the first job began", wait, func() bool { return m.shared.First.Load()+m.shared.Ready.Load() != 0 }); err != nil {
		return err
	}
	from, err := m.instant(ctx)
	if err != nil {
		return err
	}
	m.shared.Gate.Store(1)
	// A peer that has become much slower, or sleeps between jobs, is measured by what it has
	// done until now.
	patience := 5 * m.b.o.window
	err = m.until(ctx, "before the last job was done", 2*wait, func() bool {
		first := m.shared.First.Load()
		cut := first != 0 && job.Monotonic()-time.Duration(first) > patience && m.shared.Done.Load() > 0
		return cut || m.shared.Last.Load() != 0
	})
	if err != nil {
		return err
	}
	end := m.shared.Last.Load()
	if m.whole = end != 0; !m.whole {
		n, end = int(m.shared.Done.Load()), int64(job.Monotonic())
	}
	to, err := m.instant(ctx)
	if err != nil {
		return err
	}
	m.remember("VmHWM")
	m.r.Jobs, m.r.Seconds = n, time.Duration(end-m.shared.First.Load()).Seconds()
	m.r.Rate = float64(n) / m.r.Seconds
	m.costs(from, to, 0)
	m.learn()
	return nil
}

// latency pushes single jobs to an idle worker, at times unrelated to its timers.
func (m *measurement) latency(ctx context.Context) error {
	samples, budget := 60, 8*time.Second
	if m.b.o.short {
		samples, budget = 20, 3*time.Second
	}
	if err := m.launch(roleWorker); err != nil {
		return err
	}
	c, err := m.p.client(ctx, &m.sp)
	if err != nil {
		return err
	}
	end := time.Now().Add(budget)
	for i := 0; i <= samples && (i < 3 || time.Now().Before(end)); i++ {
		pause(20*time.Millisecond + time.Duration(rand.Int64N(int64(130*time.Millisecond))))
		if err := c.enqueue(ctx, m.s.queueOf(0), int64(job.Monotonic()), m.s.text()); err != nil {
			return err
		}
		if err := m.until(ctx, "for a job to begin", wait, func() bool { return m.shared.Latencies.Load() > int64(i) }); err != nil {
			return err
		}
		if i > 0 { // the first one also waits for the worker to start
			m.r.Latencies = append(m.r.Latencies, float64(m.shared.Latency[i].Load())/1e6)
		}
	}
	return nil
}

// idle measures a worker without jobs, after it has settled.
func (m *measurement) idle(ctx context.Context) error {
	settle, window := 7*time.Second, 5*time.Second
	if m.b.o.short {
		settle, window = 6*time.Second, 2*time.Second
	}
	if err := m.launch(roleWorker); err != nil {
		return err
	}
	pause(settle)
	defer m.remember("VmRSS")
	return m.quiet(ctx, window)
}

// quiet measures for a while in which nothing happens.
func (m *measurement) quiet(ctx context.Context, window time.Duration) error {
	from, err := m.instant(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	pause(window)
	to, err := m.instant(ctx)
	if err != nil {
		return err
	}
	m.costs(from, to, time.Since(began).Seconds())
	m.r.WorkerCPU /= 1000 // milliseconds per second
	m.r.ServerCPU /= 1000
	m.r.Connections = to.server.connections
	return nil
}

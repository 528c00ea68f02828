package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resqued/resqued/bench/job"
	"github.com/resqued/resqued/internal/store"
)

// A fleet has no jobs; its cost is measured. Either it is real masters, each with its own host
// name, or simulated hosts: only the calls to Redis of many more hosts.

const fleetMethod = `Nothing happens. Masters are real ones, each with a host name of its own and one worker process of four threads,
with the defaults. Hosts are simulated: they are registered, and their masters and eight worker processes of
four threads call the scripts as often as those of idle daemons do, from the harness; wakers are left out. Figures are those of
the server while it runs; its processor time depends on the machine and on what else runs on it, counts do not.
`

// noFleet returns why masters cannot have their own host names, or "".
func noFleet(ctx context.Context) string {
	if err := exec.CommandContext(ctx, "unshare", "--uts", "true").Run(); err != nil {
		return fmt.Sprintf("masters with host names of their own need root, and unshare: %v", err)
	}
	return ""
}

func (m *measurement) fleet(ctx context.Context) error {
	window := 10 * time.Second
	if m.b.o.short {
		window = 5 * time.Second
	}
	names := make([]any, m.s.Queues)
	for i, name := range m.s.queueNames() {
		names[i] = name
	}
	if err := m.t.redis.client.SAdd(ctx, resqueNamespace+":queues", names...).Err(); err != nil {
		return err
	}
	for i := range m.s.Masters {
		if err := m.launchMaster(i); err != nil {
			return err
		}
	}
	masters := func() int { return int(m.t.redis.client.ZCard(ctx, resqueNamespace+":resqued:procs").Val()) }
	if err := m.until(ctx, "until all masters are there", 5*time.Minute, func() bool { return masters() == m.s.Masters }); err != nil {
		return err
	}
	pause(15 * time.Second) // masters poll at each interval for a while, and learn their number
	return m.quiet(ctx, window)
}

func (m *measurement) launchMaster(i int) error {
	dir := filepath.Join(m.t.dir, strconv.Itoa(i))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf(resquedConfig, m.sp.Redis, resqueNamespace, 1, 4, 1000, `"*"`) + "control_socket: off\n"
	file := filepath.Join(dir, "resqued.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("unshare", "--uts", "sh", "-c", fmt.Sprintf(`hostname bench-%d && exec "$0" "$@"`, i), m.t.daemon, "work", "--config", file)
	cmd.Env, cmd.Dir = childEnv(job.Env, m.sp.job()), m.t.dir
	c, err := start(cmd)
	if err == nil {
		m.children = append(m.children, c)
	}
	return err
}

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
	info, err := m.t.redis.client.Info(ctx, "clients").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "connected_clients:"); found {
			m.r.Connections, _ = strconv.ParseFloat(value, 64)
		}
	}
	return nil
}

func (m *measurement) hosts(ctx context.Context) error {
	s, err := store.Open(store.Options{URL: "redis://" + m.sp.Redis + "/0", Namespace: resqueNamespace, PoolSize: 32})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for _, name := range m.s.queueNames() {
		if err := m.t.redis.client.SAdd(ctx, resqueNamespace+":queues", name).Err(); err != nil {
			return err
		}
	}
	f := &hosts{store: s, slots: m.s.Processes, threads: m.s.Threads}
	for i := range m.s.Masters {
		if err := f.register(ctx, i); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer f.working.Wait()
	defer stop()
	for i := range m.s.Masters {
		f.run(ctx, i)
	}
	pause(80 * time.Second) // the intervals between polls grow
	late, due := f.late.Load(), f.due.Load()
	if err := m.quiet(ctx, 10*time.Second); err != nil {
		return err
	}
	if err := f.failed.Load(); err != nil {
		return *err
	}
	// On too slow a machine, the hosts poll less often than daemons would.
	m.r.Late = float64(f.late.Load()-late) / float64(max(f.due.Load()-due, 1))
	return nil
}

type hosts struct {
	store          *store.Store
	slots, threads int
	working        sync.WaitGroup
	due, late      atomic.Int64 // calls, and how many of them were late by a tenth of their interval
	failed         atomic.Pointer[error]
}

func master(i int) string { return fmt.Sprintf("host-%d:0b5d3c1e:1000-500000", i) }

func (h *hosts) info(i int) store.MasterInfo {
	return store.MasterInfo{ID: master(i), TTL: time.Minute, Fields: map[string]string{
		"host": fmt.Sprintf("host-%d", i), "pid": "1000", "state": "running", "slots": strconv.Itoa(h.slots), "threads": strconv.Itoa(h.threads), "ready": strconv.Itoa(h.slots),
		"busy": "0", "done": "0", "queues": "*", "version": "v1", "jobs_per_fork": "1000", "settings": `{"job_lock_key":"class-args","queues":["*"]}`, "shared": "6a3f09b1c2d4", "orders": "1",
	}}
}

func (h *hosts) procInfo(slot int) map[string]string {
	return map[string]string{
		"slot": strconv.Itoa(slot), "state": "running", "busy": "0", "done": "0", "limit": "1000", "rss": "41943040", "version": "v1", "threads": strconv.Itoa(h.threads),
		"on_worker_death": "requeue", "max_deaths": "3", "at_most_once": "[]", "resumes": "[]", "pid": "2000", "start": "500100", "cgroup": "/system.slice/resqued.service",
	}
}

func (h *hosts) register(ctx context.Context, i int) error {
	if _, err := h.store.PutMaster(ctx, h.info(i)); err != nil {
		return err
	}
	for slot := range h.slots {
		if err := h.store.Register(ctx, h.registration(i, slot)); err != nil {
			return err
		}
	}
	return nil
}

func (h *hosts) registration(i, slot int) store.Registration {
	r := store.Registration{Proc: fmt.Sprintf("%s:%d.1", master(i), slot), Started: "2026-11-25 00:00:00 +0000", Info: h.procInfo(slot)}
	for thread := range h.threads {
		r.Workers = append(r.Workers, fmt.Sprintf("host-%d~resqued:%d.%d.%d-2i6ujh:*:,*", i, 2000+slot, slot, thread))
	}
	return r
}

func (h *hosts) run(ctx context.Context, i int) {
	every := func(d time.Duration, call func() (time.Duration, error)) {
		h.working.Go(func() { h.again(ctx, d, call) })
	}
	fixed := func(d time.Duration, call func() error) {
		every(d, func() (time.Duration, error) { return d, call() })
	}
	// The master's rounds, and its forwarder of delayed jobs.
	fixed(5*time.Second, func() error {
		if _, err := h.store.PutMaster(ctx, h.info(i)); err != nil {
			return err
		}
		_ = h.store.CheckEviction(ctx)
		if _, err := h.store.RestoreFailed(ctx); err != nil {
			return err
		}
		if _, err := h.store.Unpark(ctx); err != nil {
			return err
		}
		_, err := h.store.LookAround(ctx, "6a3f09b1c2d4", fmt.Sprintf("host-%d:0b5d3c1e", i), master(i))
		return err
	})
	every(time.Second, func() (time.Duration, error) {
		due, err := h.store.MoveDue(ctx, master(i), nil)
		return min(time.Second*time.Duration(max(16, due.Masters))/16, 10*time.Second), err
	})
	for slot := range h.slots {
		r := h.registration(i, slot)
		proc := r.Proc
		fixed(10*time.Second, func() error {
			_, err := h.store.Beat(ctx, store.BeatRequest{Proc: proc, Look: r.Workers[:1], Info: map[string]string{
				"state": "running", "busy": "0", "done": "0", "rss": "41943040", "killed": "", "stubborn": "",
			}})
			return err
		})
		// Polls: one process at each interval, the others each second, less often if others
		// poll too.
		pace, spread, masters := time.Second, 1.0, 0
		if slot == 0 {
			pace = 95 * time.Millisecond
		}
		every(pace, func() (time.Duration, error) {
			reply, err := h.store.Poll(ctx, store.PollRequest{All: true, Share: 40 * time.Millisecond})
			if reply.Masters > 0 {
				masters = reply.Masters
			}
			if reply.Shared {
				spread = min(spread*5/4, float64(min(max(4, masters/8), 32)))
			} else {
				spread = max(spread/2, 1)
			}
			return min(time.Duration(float64(pace)*spread), 10*time.Second), err
		})
	}
}

// again repeats a call, each time after the duration that the call returns.
func (h *hosts) again(ctx context.Context, d time.Duration, call func() (time.Duration, error)) {
	d = rand.N(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for began := time.Now(); ; began = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		h.due.Add(1)
		if time.Since(began) > d+d/10+10*time.Millisecond {
			h.late.Add(1)
		}
		next, err := call()
		if err != nil && ctx.Err() == nil {
			h.failed.CompareAndSwap(nil, &err)
			return
		}
		d = next
		timer.Reset(d)
	}
}

func (r *report) fleets(b *strings.Builder) {
	b.WriteString("## Fleets that do nothing\n\n" + fleetMethod + "\n")
	b.WriteString(row("fleet", "commands/s", "per master", "scripts/s per master", "server CPU ms/s", "per master", "µs/command", "connections per master") +
		row("---", "--:", "--:", "--:", "--:", "--:", "--:", "--:"))
	for i := range r.scenarios {
		s := &r.scenarios[i]
		if !s.isFleet() || len(r.of(s.Name, "resqued")) == 0 {
			continue
		}
		of := func(figure func(*result) float64) spread { return r.spread(s.Name, "resqued", figure) }
		masters := float64(s.Masters)
		connections := "–"
		if s.Kind == kindFleet {
			connections = human(of(func(m *result) float64 { return m.Connections / masters }).Median)
		}
		title := s.Title
		if late := of(func(m *result) float64 { return m.Late }).Median; late > 0.05 {
			title += fmt.Sprintf(" (%.0f %% of the calls came late: the machine was too slow)", 100*late)
		}
		b.WriteString(row(title, of(func(m *result) float64 { return m.Commands }).String(),
			human(of(func(m *result) float64 { return m.Commands / masters }).Median),
			human(of(func(m *result) float64 { return (m.Calls["evalsha"].Calls + m.Calls["eval"].Calls) / masters }).Median),
			of(serverCPU).String(), human(of(func(m *result) float64 { return m.ServerCPU / masters }).Median),
			human(of(func(m *result) float64 { return 1000 * m.ServerCPU / m.Commands }).Median), connections))
	}
	b.WriteString("\n")
}

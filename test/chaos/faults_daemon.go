package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// mastersStop stops all masters, so that no process recovers anything. The worker processes keep
// running, undisturbed when the masters continue.
func mastersStop(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	seen := c.marks()
	f.From = procfs.BootTime()
	for _, m := range c.machines {
		m.signal(syscall.SIGSTOP)
	}
	lease := c.someLease(r)
	ok := pause(ctx, between(r, lease, lease+2*time.Second))
	for _, m := range c.machines {
		m.signal(syscall.SIGCONT)
	}
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	if !ok {
		return context.Cause(ctx)
	}
	return c.allWorking(ctx, f, seen)
}

// noFiles prevents the daemon's processes from opening files, sockets and pipes, so that they
// can neither start nor connect anything. A worker process dies in that time.
func noFiles(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	f.Effect, f.From = check.Kills|check.Fails|check.Disturbs, procfs.BootTime()
	before := map[int]unix.Rlimit{}
	for _, p := range m.processes() {
		var had unix.Rlimit
		if unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, nil, &had) != nil {
			continue // it has ended
		}
		if unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}, nil) == nil {
			before[p.PID] = had
		}
	}
	_ = syscall.Kill(w.PID, syscall.SIGKILL)
	ok := pause(ctx, between(r, 300*time.Millisecond, m.lease/3))
	var usual unix.Rlimit
	for pid, limit := range before {
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
		usual.Cur = max(usual.Cur, limit.Cur)
	}
	// A process started at that instant has inherited the limit, and would keep it.
	for _, p := range m.processes() {
		var has unix.Rlimit
		if unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, nil, &has) == nil && has.Cur == 0 {
			_ = unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(usual.Cur, has.Max), Max: has.Max}, nil)
		}
	}
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	if !ok {
		return context.Cause(ctx)
	}
	if err := c.awaitRecovered(ctx, f, f.To, []string{w.proc}); err != nil {
		return err
	}
	err = c.working(ctx, f, f.To, m)
	c.noticed(f, seen, `worker process died`, "too many open files")
	return err
}

// deploy acts like a deployment: each daemon restarts its worker processes, and then the daemons
// are replaced one after the other.
func deploy(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	f.Effect, f.From = check.Fails, procfs.BootTime()
	for _, i := range r.Perm(len(c.machines)) {
		m := c.machines[i]
		m.signal(syscall.SIGHUP)
		if !pause(ctx, between(r, 100*time.Millisecond, 400*time.Millisecond)) {
			return context.Cause(ctx)
		}
		one := check.Fault{Noticed: -1}
		if err := c.restarted(ctx, &one, m, []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT}[r.IntN(2)]); err != nil {
			return err
		}
		f.Procs = append(f.Procs, one.Procs...)
		f.Recovered = max(f.Recovered, one.Recovered)
		if f.Noticed < 0 {
			f.Noticed = one.Noticed
		}
	}
	lasted(f, "one after the other")
	return nil
}

// absence is how long no daemon runs: longer than the minute after which a tick of a schedule
// counts as missed.
const absence = 66 * time.Second

// allAway stops all daemons normally and starts them after a while. Jobs pushed in between are
// worked, and missed ticks are caught up as their schedules demand.
func allAway(ctx context.Context, c *chaos, f *check.Fault, _ *rand.Rand) error {
	seen := c.marks()
	f.From = procfs.BootTime()
	for _, m := range c.machines {
		if err := m.quit(ctx); err != nil {
			return err
		}
	}
	away := check.Absence{MaybeFrom: c.wall(f.From), From: c.wall(procfs.BootTime())}
	if !pause(ctx, absence) {
		return context.Cause(ctx)
	}
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	away.To = c.wall(f.To)
	for _, m := range c.machines {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	err := c.working(ctx, f, f.To, c.machines...)
	c.noticed(f, seen, `"msg":"signal"`)
	away.MaybeTo = c.wall(procfs.BootTime())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Absences = append(c.history.Absences, away)
	return err
}

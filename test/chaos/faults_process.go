package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/chaos/check"
)

// victim chooses a worker process, preferably with jobs in hand, and half of the time with a
// command: most of its jobs take longer than Go functions.
func (c *chaos) victim(ctx context.Context, m *machine, r *rand.Rand) (process, error) {
	var chosen process
	if r.IntN(2) == 0 {
		_ = within(ctx, 2*time.Second, "a command", func() bool {
			commands := names(m.commands())
			for _, w := range m.workers() {
				if slices.Contains(commands, w.proc) {
					chosen = w
				}
			}
			return chosen.PID != 0
		})
		if chosen.PID != 0 {
			return chosen, nil
		}
	}
	err := within(ctx, 5*time.Second, "a worker process with a job", func() bool {
		workers := m.workers()
		r.Shuffle(len(workers), func(i, j int) { workers[i], workers[j] = workers[j], workers[i] })
		for _, w := range workers {
			chosen = w
			if c.server.ctl().HLen(ctx, key("resqued:inflight:"+w.proc)).Val() > 0 {
				return true
			}
		}
		return false
	})
	if chosen.PID != 0 {
		err = nil
	} else if err != nil {
		err = errNoWorker
	}
	return chosen, err
}

func workerKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	f.Effect, f.Procs, f.From = check.Kills, []string{w.proc}, procfs.BootTime()
	_ = syscall.Kill(w.PID, syscall.SIGKILL)
	lasted(f, "pid %d", w.PID)
	err = c.awaitRecovered(ctx, f, f.From, f.Procs)
	c.noticed(f, seen, fmt.Sprintf(`worker process died","proc":%q`, w.proc))
	return err
}

// workerStop stops a worker process: it still holds its locks, and its commands run on. The
// master must kill it before the locks expire.
func workerStop(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hitCommand(ctx, f, r)
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	f.Effect, f.Procs, f.From = check.Kills, []string{w.proc}, procfs.BootTime()
	if m.lease < guarded {
		f.Effect |= check.Freezes
	}
	_ = syscall.Kill(w.PID, syscall.SIGSTOP)
	err = c.awaitRecovered(ctx, f, f.From, f.Procs)
	pause(ctx, 300*time.Millisecond) // its jobs begin elsewhere; nothing may be left to wake up
	_ = syscall.Kill(w.PID, syscall.SIGCONT)
	lasted(f, "pid %d", w.PID)
	c.noticed(f, seen, fmt.Sprintf(`killing a worker process","proc":%q`, w.proc))
	return err
}

func workerTerm(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	f.Effect, f.Procs, f.From = check.Fails, []string{w.proc}, procfs.BootTime()
	_ = syscall.Kill(w.PID, syscall.SIGTERM)
	err = c.awaitRecovered(ctx, f, f.From, f.Procs)
	lasted(f, "pid %d", w.PID)
	c.noticed(f, seen, `"msg":"signal"`)
	return err
}

// masterKill kills a master: the worker processes finish their jobs, and nothing runs twice.
func masterKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen, old := c.marks(), names(m.workers())
	f.From = procfs.BootTime()
	m.signal(syscall.SIGKILL)
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
	c.noticed(f, seen, "the master is gone")
	return err
}

// masterStop stops a master: the worker processes keep running, undisturbed when it continues.
func masterStop(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen := c.marks()
	f.From = procfs.BootTime()
	m.signal(syscall.SIGSTOP)
	ok := pause(ctx, between(r, m.lease+500*time.Millisecond, m.lease+2*time.Second))
	m.signal(syscall.SIGCONT)
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	if !ok {
		return context.Cause(ctx)
	}
	err := c.working(ctx, f, f.To, m)
	c.noticed(f, seen, "the master was held up")
	return err
}

// treeKill kills a whole daemon at once. Processes that its commands started in their own
// sessions live on. A new master on the same host recovers at once.
func treeKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	workers := m.workers()
	seen := c.marks()
	f.Effect, f.Procs, f.From = check.Kills, names(workers), procfs.BootTime()
	m.signal(syscall.SIGKILL)
	for _, w := range workers {
		_ = syscall.Kill(w.PID, syscall.SIGKILL)
	}
	if _, err := m.awaitExit(ctx, patience); err != nil {
		return err
	}
	lasted(f, "%d worker processes", len(workers))
	if err := m.start(ctx); err != nil {
		return err
	}
	err := c.awaitRecovered(ctx, f, f.From, f.Procs)
	c.noticed(f, seen, "recovered the jobs of a dead worker process")
	return err
}

// hostKill kills all processes of a machine; another machine recovers its jobs.
func hostKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen := c.marks()
	f.Effect, f.From = check.Kills, procfs.BootTime()
	f.Procs = names(m.signalAll(syscall.SIGKILL))
	if _, err := m.awaitExit(ctx, patience); err != nil {
		return err
	}
	lasted(f, "%d worker processes", len(f.Procs))
	err := c.awaitRecovered(ctx, f, f.From, f.Procs)
	c.noticed(f, seen, "recovered the jobs of a dead worker process")
	if startErr := m.start(ctx); err == nil {
		err = startErr
	}
	return err
}

// hostFreeze stops all processes of a machine until others consider it dead, as moving a virtual
// machine may do. When it continues, it believes for a moment that it holds its locks: only
// fencing tokens help then.
func hostFreeze(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen := c.marks()
	f.Effect, f.From = check.Kills|check.Freezes|check.Fails|check.Disturbs, procfs.BootTime()
	hit := m.signalAll(syscall.SIGSTOP)
	f.Procs = names(hit)
	ok := pause(ctx, between(r, m.lease+time.Second, m.lease+round))
	m.signalAll(syscall.SIGCONT)
	for _, p := range hit {
		_ = syscall.Kill(p.PID, syscall.SIGCONT)
	}
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	if !ok {
		return context.Cause(ctx)
	}
	err := c.working(ctx, f, f.To, m)
	c.noticed(f, seen, "recovered the jobs of a dead worker process", "was held up")
	// The continued processes may act slightly longer than they need to notice.
	f.To = procfs.BootTime()
	return err
}

// restarted ends a daemon by a signal and starts it again.
func (c *chaos) restarted(ctx context.Context, f *check.Fault, m *machine, sig syscall.Signal) error {
	seen := c.marks()
	f.Procs, f.From = names(m.workers()), procfs.BootTime()
	master, _ := proctest.Look(m.pid)
	m.signal(sig)
	code, err := m.awaitExit(ctx, patience)
	if err != nil {
		return err
	}
	if code != 0 {
		c.complain("daemon %s left with exit code %d after %s", m.name, code, sig)
	}
	for _, p := range m.processes() {
		// Processes of an earlier master that died end by themselves; the last check looks for them.
		if p.Start >= master.Start && proctest.Alive(p.PID) {
			c.complain("daemon %s left behind after %s: %s", m.name, sig, p.Process)
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	lasted(f, "gone after %s", span(procfs.BootTime()-f.From))
	if err := m.start(ctx); err != nil {
		return err
	}
	err = c.working(ctx, f, f.From, m)
	f.Recovered = max(f.Recovered, f.To-f.From)
	c.noticed(f, seen, `"msg":"signal"`)
	return err
}

func term(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	f.Effect = check.Fails
	return c.restarted(ctx, f, c.hit(f, r), syscall.SIGTERM)
}

func quit(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	return c.restarted(ctx, f, c.hit(f, r), syscall.SIGQUIT)
}

func reload(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen, old := c.marks(), m.workers()
	f.From = procfs.BootTime()
	m.signal(syscall.SIGHUP)
	err := c.await(ctx, patience, "the end of the old worker processes", func() bool {
		for _, w := range old {
			if proctest.Alive(w.PID) {
				return false
			}
		}
		return true
	})
	lasted(f, "%d worker processes replaced", len(old))
	if err == nil {
		f.Recovered = f.To - f.From
	}
	c.noticed(f, seen, `"msg":"signal"`)
	return err
}

func usr1(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen := c.marks()
	f.Effect, f.Procs, f.From = check.Fails, names(m.workers()), procfs.BootTime()
	m.signal(syscall.SIGUSR1)
	err := c.working(ctx, f, f.From, m)
	lasted(f, "")
	c.noticed(f, seen, `"msg":"signal"`)
	// A job that ignores its kill may take as long as its grace.
	f.To += termTimeout + time.Second
	return err
}

func usr2(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	seen := c.marks()
	f.From = procfs.BootTime()
	m.signal(syscall.SIGUSR2)
	ok := pause(ctx, between(r, 300*time.Millisecond, 1500*time.Millisecond))
	lasted(f, "for %s", span(procfs.BootTime()-f.From))
	m.signal(syscall.SIGCONT)
	if !ok {
		return context.Cause(ctx)
	}
	err := c.working(ctx, f, f.To, m)
	c.noticed(f, seen, `"msg":"signal"`)
	return err
}

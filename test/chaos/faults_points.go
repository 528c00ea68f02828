package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/test/chaos/check"
)

// records returns the worker process to whose records a script refers.
func records(q faultproxy.Request) (worker string, ok bool) {
	worker, ok = strings.CutPrefix(q.Key, key("resqued:inflight:"))
	return worker, ok && q.Script()
}

// catch waits until a script about the records of a worker process passes a machine's proxy, or
// with reply, its reply.
func catch(ctx context.Context, m *machine, nth int, reply bool, about func(worker string) bool) (*faultproxy.Caught, string, error) {
	trap := m.proxy.Trap(faultproxy.Trap{Nth: nth, Reply: reply, Match: func(q faultproxy.Request) bool {
		worker, ok := records(q)
		return ok && about(worker)
	}})
	select {
	case caught := <-trap:
		worker, _ := records(caught.Request)
		return caught, worker, nil
	case <-time.After(patience):
		return nil, "", errors.New("no script to catch")
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
}

// killAt kills a worker process at a point of the script that ends and takes jobs: after its
// execution but before the process knows its new jobs, or before Redis knows which jobs have
// ended.
func killAt(reply bool) injector {
	return func(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
		m := c.hit(f, r)
		seen := c.marks()
		caught, worker, err := catch(ctx, m, 1+r.IntN(3), reply, m.owns)
		if err != nil {
			return err
		}
		defer caught.Cut()
		var pid int
		for _, w := range m.workers() {
			if w.proc == worker {
				pid = w.PID
			}
		}
		if pid == 0 {
			return errNoWorker
		}
		f.Effect, f.Procs, f.From = check.Kills, []string{worker}, procfs.BootTime()
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if r.IntN(2) == 0 {
			caught.Pass() // a request may arrive after its sender's death
		}
		lasted(f, "pid %d", pid)
		err = c.awaitRecovered(ctx, f, f.From, f.Procs)
		c.noticed(f, seen, `worker process died","proc":"`+worker)
		return err
	}
}

// recoverKill kills a worker process, and its master in the middle of the recovery.
func recoverKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	w, err := c.victim(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	old := names(m.workers())
	type catches struct {
		caught *faultproxy.Caught
		err    error
	}
	found := make(chan catches, 1)
	reply := r.IntN(2) == 0
	f.Effect, f.Procs, f.From = check.Kills, []string{w.proc}, procfs.BootTime()
	c.tasks.Go(func() {
		// All requests of the dead process are over, so this is another process's.
		caught, _, err := catch(ctx, m, 1, reply, func(worker string) bool {
			return worker == w.proc && syscall.Kill(w.PID, 0) != nil
		})
		found <- catches{caught, err}
	})
	_ = syscall.Kill(w.PID, syscall.SIGKILL)
	at := <-found
	if at.err != nil {
		return at.err
	}
	m.signal(syscall.SIGKILL)
	at.caught.Cut()
	if _, err := m.awaitExit(ctx, patience); err != nil {
		return err
	}
	lasted(f, "pid %d and its master, answered: %v", w.PID, reply)
	if err := m.start(ctx); err != nil {
		return err
	}
	err = c.awaitRecovered(ctx, f, f.From, old)
	c.noticed(f, seen, "worker process died", "the master is gone")
	return err
}

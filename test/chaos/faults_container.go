package main

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"syscall"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// containerOn returns a command prefix that runs a command as the first process of a PID
// namespace with a host name; nil if not permitted.
func containerOn(name string) []string {
	for _, flags := range [][]string{nil, {"--map-root-user"}} {
		argv := slices.Concat([]string{"unshare"}, flags, []string{
			"--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", `hostname "$0" && exec "$@"`, name,
		})
		if exec.Command(argv[0], append(argv[1:], "true")...).Run() == nil {
			return argv
		}
	}
	return nil
}

// containerRestart kills a whole container and starts it again with the same identity as far as
// it can tell: host name and most pids. The jobs of dead processes run again, and living
// processes stay registered.
func containerRestart(ctx context.Context, c *chaos, f *check.Fault, _ *rand.Rand) error {
	m := c.guest
	f.Daemon = m.name
	if err := m.start(ctx); err != nil {
		return err
	}
	defer func() {
		select {
		case <-m.done:
		default: // something has gone wrong
			m.signalAll(syscall.SIGKILL)
		}
	}()
	err := c.await(ctx, patience, "jobs in hand in the container", func() bool {
		for _, w := range m.workers() {
			if c.server.ctl().HLen(ctx, key("resqued:inflight:"+w.proc)).Val() > 0 {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	seen := c.marks()
	before := m.workers()
	pids := innerPIDs(before)
	f.Effect, f.Procs, f.From = check.Kills, names(before), procfs.BootTime()
	m.signal(syscall.SIGKILL)
	if _, err := m.awaitExit(ctx, patience); err != nil {
		return err
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	again := 0
	for _, pid := range innerPIDs(m.workers()) {
		if slices.Contains(pids, pid) {
			again++
		}
	}
	lasted(f, "%d worker processes, %d pids again", len(before), again)
	if err := c.awaitRecovered(ctx, f, f.From, f.Procs); err != nil {
		return err
	}
	recovered := f.Recovered
	if err := c.lookAtLeases(ctx); err != nil { // the living are registered now, not only after the next beat
		return err
	}
	c.noticed(f, seen, "recovered the jobs of a dead worker process")
	if err := c.beating(ctx, f, procfs.BootTime(), m); err != nil {
		return err
	}
	f.Recovered = recovered
	return m.quit(ctx)
}

// innerPIDs returns the pids of processes in their own PID namespace.
func innerPIDs(all []process) (pids []string) {
	for _, p := range all {
		pids = append(pids, p.InnerPID())
	}
	return pids
}

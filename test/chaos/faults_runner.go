package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/chaos/check"
	"github.com/resqued/resqued/test/chaos/ledger"
)

// runnerTimeout bounds the jobs of runners, so that a stopped runner does not keep its job.
const runnerTimeout = 3 * time.Second

// runnerKinds are the kinds of faults that need a runner.
var runnerKinds = []string{"runner-kill", "runner-stop", "template-kill"}

// busy returns a runner that performs a job according to the ledger, which is read a little
// later, with its machine and run; m is nil if there is none. Any machine will do: one with few
// threads may have no job for a runner for many seconds.
func (c *chaos) busy(r *rand.Rand) (*machine, process, ledger.Entry) {
	runs := c.openRuns()
	r.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	for _, run := range runs {
		i := slices.IndexFunc(c.machines, func(m *machine) bool { return m.owns(run.Proc) })
		if i < 0 {
			continue
		}
		m := c.machines[i]
		if p, ok := proctest.Look(run.PID); ok && m.isKin(p) && p.State != "Z" {
			return m, process{Process: p}, run
		}
	}
	return nil, process{}, ledger.Entry{}
}

// openRuns returns the starts of jobs of runners that may be under way.
func (c *chaos) openRuns() (open []ledger.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := procfs.BootTime() - runnerTimeout
	for _, run := range c.lately() {
		if run.At >= from && isRunnerClass(run.Class) && run.Outcome == "" {
			open = append(open, run.Entry)
		}
	}
	return open
}

// busyRunner waits for a runner that performs a job, and notes its machine as hit.
func (c *chaos) busyRunner(ctx context.Context, f *check.Fault, r *rand.Rand) (m *machine, p process, err error) {
	err = c.await(ctx, patience, "a runner with a job", func() bool {
		m, p, _ = c.busy(r)
		return m != nil
	})
	if err == nil {
		f.Daemon = m.name
	}
	return m, p, err
}

// stopRunner stops a runner and reports whether it has the run's job in hand. If the job had
// ended, the runner continues: it might get no other job, and nothing would end it.
func (c *chaos) stopRunner(p process, run ledger.Entry) bool {
	_ = syscall.Kill(p.PID, syscall.SIGSTOP)
	now := p.Process
	for ok := true; ok && now.State != "T"; {
		now, ok = proctest.Look(p.PID)
		if !ok || now.Start != p.Start || now.State == "Z" {
			return false
		}
	}
	// From here on it writes nothing.
	entries, err := ledger.Of(c.ledgerDir, run.Proc)
	if err == nil && !slices.ContainsFunc(entries, func(e ledger.Entry) bool {
		return e.Run == run.Run && e.What != ledger.Start && e.What != ledger.Act
	}) {
		return true
	}
	_ = syscall.Kill(p.PID, syscall.SIGCONT)
	return false
}

// lately returns the runs whose first entries were read last, not in order of their starts.
func (c *chaos) lately() []*check.Run {
	const some = 2000
	return c.history.Runs[max(0, len(c.history.Runs)-some):]
}

func runnerKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m, p, err := c.busyRunner(ctx, f, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	runners, templates := m.kin()
	before := pids(slices.Concat(runners, templates))
	f.Runner, f.From = p.PID, procfs.BootTime()
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	lasted(f, "pid %d", p.PID)
	err = c.runnerWorking(ctx, f, m, f.From, before)
	c.noticed(f, seen, "runner died")
	return err
}

// runnerStop stops a runner: the timeout must end its job, and the process with it.
func runnerStop(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	var p process
	err := c.await(ctx, patience, "a runner that can be stopped with its job in hand", func() bool {
		m, one, run := c.busy(r)
		if m == nil || !c.stopRunner(one, run) {
			return false
		}
		f.Daemon, p = m.name, one
		return true
	})
	if err != nil {
		return err
	}
	f.Runner, f.From = p.PID, procfs.BootTime()
	err = c.await(ctx, patience, "the end of a stopped runner", func() bool { return !alive(p) })
	_ = syscall.Kill(p.PID, syscall.SIGCONT) // nothing may be left to wake up
	lasted(f, "pid %d", p.PID)
	f.Recovered = f.To - f.From
	return err
}

// templateKill kills a template: the runners that it has forked live on, and a new one replaces
// it.
func templateKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	var old process
	err := c.await(ctx, patience, "a template", func() bool {
		templates := m.templates()
		if len(templates) > 0 {
			old = templates[r.IntN(len(templates))]
		}
		return len(templates) > 0
	})
	if err != nil {
		return err
	}
	seen := c.marks()
	f.From = procfs.BootTime()
	_ = syscall.Kill(old.PID, syscall.SIGKILL)
	lasted(f, "pid %d", old.PID)
	var next process
	// Its title says when it has booted.
	err = c.await(ctx, patience, "a new template", func() bool {
		templates := m.templates()
		i := slices.IndexFunc(templates, func(p process) bool { return p.PID != old.PID })
		if i >= 0 {
			next = templates[i]
		}
		return i >= 0
	})
	if err == nil {
		f.Recovered = procfs.BootTime() - f.From
	}
	f.Note += " replaced by " + next.String()
	c.noticed(f, seen, "template")
	return err
}

// runnerWorking waits until a runner of a machine has begun a job since an instant, or a new one
// is ready: whether it gets a job is a matter of luck.
func (c *chaos) runnerWorking(ctx context.Context, f *check.Fault, m *machine, since time.Duration, before []int) error {
	err := c.await(ctx, patience, "a runner to begin a job again, or another one to be ready", func() bool {
		if at, ok := c.runnerBegan(m, since); ok {
			f.Recovered = at - f.From
			return true
		}
		f.Recovered = procfs.BootTime() - f.From
		runners, _ := m.kin()
		return slices.ContainsFunc(runners, func(p process) bool { return !slices.Contains(before, p.PID) })
	})
	if err != nil {
		return errors.Join(err, errNoWorker)
	}
	return nil
}

// runnerBegan returns when a runner of a machine has begun a job since an instant.
func (c *chaos) runnerBegan(m *machine, since time.Duration) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, run := range c.lately() {
		if run.At > since && isRunnerClass(run.Class) && m.owns(run.Proc) && run.What == ledger.Start {
			return run.At, true
		}
	}
	return 0, false
}

func pids(all []process) (numbers []int) {
	for _, p := range all {
		numbers = append(numbers, p.PID)
	}
	return numbers
}

func alive(p process) bool {
	st, err := procfs.ReadStat(p.PID)
	return err == nil && !st.Dead()
}

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/test/chaos/check"
	"github.com/resqued/resqued/test/chaos/ledger"
)

// runnerTimeout bounds the jobs of runners, so that one that is stopped does not keep its job.
const runnerTimeout = 3 * time.Second

// runnerKinds are the kinds of faults that need a runner.
var runnerKinds = []string{"runner-kill", "runner-stop", "template-kill"}

// busyRunner returns a runner of a machine that performs a job according to the ledger, which is
// read a little later.
func (c *chaos) busyRunner(ctx context.Context, m *machine, r *rand.Rand) (process, error) {
	var chosen process
	err := within(ctx, 10*time.Second, "a runner with a job", func() bool {
		runners, _ := m.kin()
		r.Shuffle(len(runners), func(i, j int) { runners[i], runners[j] = runners[j], runners[i] })
		busy := c.busyPIDs()
		i := slices.IndexFunc(runners, func(p process) bool { return busy[p.PID] })
		if i >= 0 {
			chosen = runners[i]
		}
		return i >= 0
	})
	return chosen, err
}

// busyPIDs returns the processes that have begun a job and not ended it, as far as the ledger was
// read.
func (c *chaos) busyPIDs() map[int]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := map[int]bool{}
	from := procfs.BootTime() - time.Second
	for _, run := range c.lately() {
		if run.At >= from && isRunnerClass(run.Class) && run.Outcome == "" {
			busy[run.PID] = true
		}
	}
	return busy
}

// lately returns the runs whose first entries were read last, which are not in the order of their
// starts.
func (c *chaos) lately() []*check.Run {
	const some = 2000
	return c.history.Runs[max(0, len(c.history.Runs)-some):]
}

func runnerKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	p, err := c.busyRunner(ctx, m, r)
	if err != nil {
		return err
	}
	seen := c.marks()
	f.Runner, f.From = p.PID, procfs.BootTime()
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	lasted(f, "pid %d", p.PID)
	err = c.runnerWorking(ctx, f, m, f.From)
	c.noticed(f, seen, "runner died")
	return err
}

// runnerStop stops a runner: its job has to be ended by its timeout, and the process with it.
func runnerStop(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	p, err := c.busyRunner(ctx, m, r)
	if err != nil {
		return err
	}
	f.Runner, f.From = p.PID, procfs.BootTime()
	_ = syscall.Kill(p.PID, syscall.SIGSTOP)
	err = within(ctx, patience, "the end of a stopped runner", func() bool { return !alive(p) })
	_ = syscall.Kill(p.PID, syscall.SIGCONT) // there must be nothing left to wake up
	lasted(f, "pid %d", p.PID)
	f.Recovered = f.To - f.From
	return err
}

// templateKill kills a template: the runners that it has forked go on, and a new one takes its
// place.
func templateKill(ctx context.Context, c *chaos, f *check.Fault, r *rand.Rand) error {
	m := c.hit(f, r)
	var old process
	err := within(ctx, 10*time.Second, "a template", func() bool {
		_, templates := m.kin()
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
	err = within(ctx, patience, "a new template", func() bool {
		_, templates := m.kin()
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

// runnerWorking waits until a runner of a machine has begun a job since an instant.
func (c *chaos) runnerWorking(ctx context.Context, f *check.Fault, m *machine, since time.Duration) error {
	err := within(ctx, patience, "a runner to begin a job again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, run := range c.lately() {
			if run.At > since && isRunnerClass(run.Class) && m.owns(run.Proc) && run.What == ledger.Start {
				f.Recovered = run.At - f.From
				return true
			}
		}
		return false
	})
	if err != nil {
		return errors.Join(err, errNoWorker)
	}
	return nil
}

func alive(p process) bool {
	st, err := procfs.ReadStat(p.PID)
	return err == nil && !st.Dead()
}

package workerproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// greet says hello and waits for the master's welcome. Signals until then stay in their channel.
func (p *Process) greet() error {
	if err := p.d.Conn.Send(proc.Message{Type: proc.Hello, Protocol: proc.Protocol, PID: p.cfg.PID}); err != nil {
		return fmt.Errorf("say hello to the master: %w", err)
	}
	// The reader ends when the master closes its end or dies. It is not awaited: nothing can
	// interrupt it while the master lives.
	go p.link.read(p.work)
	for m := range p.link.messages {
		if m.Type == proc.Welcome {
			p.assemble(newIdentity(m))
			p.life.welcome(signals.State(m.State))
			return nil
		}
	}
	return errors.New("the master went away before it said welcome")
}

// staggered returns how many jobs a process may start. The first processes of a master start
// fewer, each by a different part of half the number. Otherwise all would be used up at the same
// time, again and again.
func staggered(jobsPerFork int, id identity) int {
	var slot, sequence int
	_, err := fmt.Sscanf(id.proc[strings.LastIndexByte(id.proc, ':')+1:], "%d.%d", &slot, &sequence)
	if err != nil || id.slots < 2 || sequence >= id.slots {
		return jobsPerFork
	}
	return jobsPerFork - jobsPerFork*slot/(2*id.slots)
}

// boot registers the process in Redis and reports that it is ready, handling signals and
// messages in between. It returns errStopped if one of them makes the process leave.
func (p *Process) boot() error {
	if p.life.wanted == signals.Draining || p.life.wanted == signals.Killing {
		p.life.state = p.life.wanted
		return errStopped
	}
	ctx, cancel := context.WithCancelCause(p.work)
	defer cancel(errStopped)
	// Not awaited when the process has to leave: a hook may hang.
	hooked := make(chan error, 1)
	go func() { hooked <- p.afterFork(ctx) }()
	var registered chan error
	for {
		select {
		case err := <-hooked:
			if err != nil {
				return err
			}
			registered = make(chan error, 1)
			p.registrar.registration = p.newRegistration()
			p.helpers.Go(func() { registered <- p.registrar.join(ctx) })
		case err := <-p.registrar.waits:
			p.troubles.redisAway(err)
			m := proc.Message{Type: proc.Beat, State: string(p.life.state)}
			p.troubles.show(&m)
			p.link.tell(m)
		case err := <-registered:
			if err != nil {
				return err
			}
			p.troubles.redisBack()
			p.lease.renewed = p.registrar.at
			if p.life.state == signals.Starting {
				p.life.state = p.life.wanted
				p.life.since = time.Now()
			}
			if p.life.state == signals.Paused {
				p.pauseHooks(signals.Paused)
			}
			// If the master has died, the loop notices, and the registered process leaves in
			// order.
			if err := p.link.send(proc.Message{Type: proc.Ready, RSS: rss(), LockEnd: p.lease.end()}); errors.Is(err, proc.ErrFull) {
				return err
			}
			return nil
		case sig := <-p.d.Signals:
			p.onSignal(sig)
		case m, ok := <-p.link.messages:
			p.onMasterMessage(m, ok)
		}
		if p.life.state == signals.Starting {
			continue
		}
		cancel(errStopped)
		if registered == nil {
			return errStopped
		}
		// If it is registered already, the loop unregisters it.
		return <-registered
	}
}

func (p *Process) afterFork(ctx context.Context) error {
	for _, h := range p.d.Hooks {
		if h.AfterFork == nil {
			continue
		}
		if err := h.AfterFork(ctx); err != nil {
			return fmt.Errorf("hook AfterFork: %w", err)
		}
	}
	return nil
}

var errStopped = errors.New("told to stop before it was ready")

func (p *Process) onSignal(sig os.Signal) {
	intent := signals.Of(sig)
	if intent == signals.None || intent == signals.Reap {
		return
	}
	step := signals.Worker(p.life.state, intent, time.Since(p.life.since))
	if step.Do == signals.Ignore {
		return
	}
	p.log.Info("signal", zap.String("signal", signals.Name(sig)), zap.String("means", string(intent)),
		zap.String("state", string(p.life.state)), zap.String("does", string(step.Do)))
	switch step.Do {
	case signals.Enter:
		if step.Next == signals.Killing {
			p.kills.kill(resqued.ErrKilled, p.threads.jobs.all(), p.cfg.TermTimeout)
		}
		p.enter(step.Next)
	case signals.KillJobs:
		p.kills.kill(resqued.ErrKilled, p.threads.jobs.all(), p.cfg.TermTimeout)
		p.enter(step.Next)
	case signals.StartPaused:
		p.life.wanted = signals.Paused
	case signals.StartRunning:
		p.life.wanted = signals.Running
	case signals.KillNow:
		p.kills.die(p.threads.jobs.all(), "killed twice")
	}
}

func (p *Process) onMasterMessage(m proc.Message, ok bool) {
	if !ok {
		p.orphaned()
		return
	}
	switch m.Type {
	case proc.SetState:
		p.setState(signals.State(m.State))
	case proc.KillJobs:
		jobs := p.threads.jobs.all()
		grace := m.Grace
		if grace <= 0 {
			grace = p.cfg.TermTimeout
		}
		p.log.Info("told to kill jobs", zap.Int("jobs", len(jobs)), zap.Duration("grace", grace), zap.String("reason", m.Reason))
		if !m.Requeue {
			p.kills.told++
		}
		cause := resqued.ErrKilled
		if m.Cause != "" {
			cause = &limitError{m.Cause, m.Requeue}
		}
		p.kills.kill(cause, jobs, grace)
		if m.Exit {
			p.enter(signals.Killing)
		}
	case proc.Poller:
		p.poller.pollForAll(m.On)
		// An exchange under way, or the first look, finds jobs too; but a waker begins with a
		// look.
		if m.On && (p.exchanges.polled && p.exchanges.underway() == 0 || p.d.OpenWaiter != nil) {
			p.poller.look()
		}
	case proc.Look:
		if p.exchanges.vacant() && p.life.state == signals.Running {
			p.poller.hurry()
			p.poller.look()
		}
	case proc.Retire:
		p.tellLeaving()
		switch p.life.state {
		case signals.Starting, signals.Waiting, signals.Running, signals.Paused:
			p.enter(signals.Retiring)
		}
	}
}

// setState enters the state of the master, but never goes back from leaving.
func (p *Process) setState(s signals.State) {
	goes := s == signals.Draining || s == signals.Killing
	switch p.life.state {
	case signals.Starting, signals.Retiring:
		if goes {
			p.enter(s)
		} else if p.life.state == signals.Starting {
			p.life.welcome(s)
		}
	case signals.Waiting, signals.Running, signals.Paused:
		p.enter(s)
	case signals.Draining:
		if s == signals.Killing {
			p.enter(s)
		}
	}
}

// orphaned handles the death of the master. Nothing would replace this process or clean up after
// it, so it takes no new jobs and leaves.
func (p *Process) orphaned() {
	p.link.lose()
	if p.life.state == signals.Draining || p.life.state == signals.Killing {
		return
	}
	p.log.Error("the master is gone", zap.Bool("kill_jobs", p.cfg.KillOnMasterDeath))
	if p.cfg.KillOnMasterDeath {
		// The kernel does the same at about this moment. A job told to stop might end in between
		// as failed, while others run again.
		p.kills.die(nil, "its master is gone")
		return
	}
	p.leaving.boundDrain()
	p.enter(signals.Draining)
}

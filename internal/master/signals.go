package master

import (
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

func (m *Master) onSignal(sig os.Signal) {
	intent := signals.Of(sig)
	if m.cfg.DevSignals {
		intent = signals.OfDev(sig)
	}
	switch intent {
	case signals.None:
		return
	case signals.Reap:
		// It usually is a worker process, which is waited for; strays can wait.
		if m.straysAt.IsZero() {
			m.straysAt = time.Now().Add(straysAfter)
		}
		return
	}
	step := signals.Master(m.state, intent, time.Since(m.since))
	does := string(step.Do)
	if step.Do == signals.Ignore {
		does = "nothing"
	}
	m.log.Info("signal", zap.String("signal", signals.Name(sig)), zap.String("means", string(intent)),
		zap.String("state", string(m.state)), zap.String("does", does))
	if step.Do != signals.Enter { // enter passes it on
		m.passOnSignal(intent)
	}
	switch step.Do {
	case signals.Enter:
		m.enter(step.Next, string(intent))
	case signals.KillJobs:
		m.killJobs(string(intent))
		if step.Next == signals.Running && m.state == signals.Running {
			m.passOnAll(true) // this also ends the pause of a single process
		}
		m.enter(step.Next, string(intent))
	case signals.StartPaused:
		m.startAs = signals.Paused
		m.passOnAll(true)
	case signals.StartRunning:
		m.startAs = signals.Running
		m.passOnAll(true)
	case signals.Repeat:
		m.passOnAll(true)
	case signals.Reread, signals.RereadLater:
		m.reload()
	case signals.KillNow:
		for w := range m.workers {
			m.kill(w, "told to shut down twice")
		}
	}
}

func (m *Master) enter(next signals.State, why string) {
	if next == m.state {
		return
	}
	m.log.Info("state", zap.String("from", string(m.state)), zap.String("to", string(next)), zap.String("because", why))
	wasLeaving, before := m.leaving(), m.state
	m.state, m.since = next, time.Now()
	m.noteState(before, why)
	m.roundAt = time.Time{} // people see it at once
	m.tellSuccessor()
	if m.leaving() {
		if m.roll != nil && !m.roll.proven {
			m.roll.cfg.dropped()
		}
		m.roll = nil
		if !wasLeaving {
			m.d.Notifier.Stopping()
		}
	}
	m.passOnState()
	if next == signals.Killing {
		m.killAll(why)
		return
	}
	m.passOnAll(false)
}

// passOnAll tells every worker process its target state. again: also those that know it, because
// a signal of their own may have changed their state since. A process that has not said hello
// gets the state with its welcome.
func (m *Master) passOnAll(again bool) {
	for w := range m.workers {
		if again {
			w.told = ""
		}
		m.passOn(w)
	}
}

// killAll makes every worker process kill its jobs and leave, in time. One that has not said
// hello has no jobs and does not listen yet.
func (m *Master) killAll(why string) {
	grace := m.cfg.TermTimeout
	m.d.Notifier.ExtendTimeout(grace + killMargin + lastTries + 5*time.Second)
	order := proc.Message{Type: proc.KillJobs, Grace: grace, Reason: why, Exit: true}
	if m.over != nil {
		order.Cause, order.Requeue = m.over.cause, m.over.requeue
	}
	for w := range m.workers {
		if !w.greeted {
			m.kill(w, why)
			continue
		}
		if !order.Requeue {
			w.orders.given++
		}
		w.kill.by = time.Now().Add(grace + killMargin)
		m.send(w, order)
	}
}

// killJobs makes every worker process kill its jobs and continue. A process ends itself if a job
// does not stop; one that does not answer is ended.
func (m *Master) killJobs(why string) {
	m.note(store.EventKilled, "", "tells its jobs to stop, and continues: "+why, m.busy())
	grace := m.cfg.TermTimeout
	now := time.Now()
	for w := range m.workers {
		if !w.greeted || w.kill.sent {
			continue
		}
		w.orders.given++
		w.orders.answerBy = now.Add(max(grace, 2*proc.BeatEvery) + killMargin)
		m.send(w, proc.Message{Type: proc.KillJobs, Grace: grace, Reason: why})
	}
}

func (m *Master) started() {
	m.note(store.EventStarted, "", m.described(), 0)
	m.enter(m.startAs, "the first worker process is ready")
	m.d.Notifier.Ready()
	if m.taking != nil {
		m.tellPeer(m.taking.elder, proc.Message{Type: proc.Up})
	}
	m.reloadAgain()
}

package master

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

// The new master's part in an upgrade; see upgrade.go.

// errElderGone: the master that has started this one, to take its place, is gone too early.
var errElderGone = errors.New("the master whose place this one was to take has ended, or has given it up")

// taking is the old master, whose place this one takes.
type taking struct {
	elder   Peer
	charged bool      // this one is in charge
	granted int       // slots that may be filled
	filled  int       // filled slots that the old one knows of
	all     bool      // all slots are filled
	endBy   time.Time // the old one must be gone then; zero: it has time
}

// takingOver reports whether slots of the old master have not gone over yet.
func (m *Master) takingOver() bool { return m.taking != nil && !m.taking.all }

// granted reports whether slot n may be filled.
func (m *Master) granted(n int) bool { return !m.takingOver() || n < m.taking.granted }

// greet tells the old master that this one is there.
func (m *Master) greet() {
	elder := m.d.Upgrade.Elder
	if elder == nil {
		return
	}
	m.taking = &taking{elder: elder}
	m.d.Notifier.Hold()
	m.children.Go(func() { m.listen(elder) })
	m.tellPeer(elder, proc.Message{Type: proc.Hello, Protocol: proc.BesideProtocol, PID: m.d.Self.PID})
}

// onElder takes a message of the old master.
func (m *Master) onElder(h heard) {
	t := m.taking
	if h.err != nil {
		m.lostElder()
		return
	}
	switch h.message.Type {
	case proc.Welcome:
		t.granted = 1
		m.follow(h.message.State)
	case proc.SetState:
		m.follow(h.message.State)
	case proc.Charge:
		m.takeCharge(h.message.State)
	case proc.Next:
		t.granted++
	case proc.Signal:
		if sig := signals.Named(h.message.Reason); sig != nil {
			m.onSignal(sig)
		}
	}
}

// follow takes on the state of the old master, running or paused.
func (m *Master) follow(state string) {
	next := signals.Running
	if state == string(signals.Paused) {
		next = signals.Paused
	}
	switch {
	case m.state == signals.Starting:
		m.startAs = next
		m.passOnAll(false)
	case !m.leaving():
		m.enter(next, "the old master is")
	}
}

// takeCharge: from here on this master is the one that the service manager and people speak to.
func (m *Master) takeCharge(state string) {
	if m.taking.charged || m.leaving() {
		return
	}
	m.taking.charged = true
	m.follow(state)
	m.inCharge(true)
	m.d.Notifier.Speak()
	m.d.Notifier.Ready()
	m.told = told{} // all of it is said again
	m.note(store.EventDeployed, "", "takes over from the version before: "+m.described(), 0)
	m.log.Info("in charge: the old version hands over its slots and finishes its jobs", zap.Int("old_pid", m.taking.elder.PID()))
	m.tellPeer(m.taking.elder, proc.Message{Type: proc.InCharge})
}

// countFilled tells the old master how many slots have their worker process.
func (m *Master) countFilled() {
	t := m.taking
	if t == nil || t.all || !t.charged || m.leaving() {
		return
	}
	n := 0
	for _, s := range m.slots {
		if s.closed || s.current != nil && !s.current.readyAt.IsZero() {
			n++
		}
	}
	if n <= t.filled {
		return
	}
	t.filled, t.all = n, n == len(m.slots)
	m.tellPeer(t.elder, proc.Message{Type: proc.Filled, Slots: n, On: t.all})
	if t.all {
		m.log.Info("all slots are taken over")
		m.reloadAgain()
	}
}

// lostElder: the old master is gone.
func (m *Master) lostElder() {
	t := m.taking
	m.taking = nil
	_ = t.elder.Close()
	if !t.charged {
		m.err = errElderGone
		if !m.leaving() {
			m.enter(signals.Draining, "the old master is gone, or has given this one up")
		}
		return
	}
	m.log.Info("the old version has ended", zap.Int("old_pid", t.elder.PID()))
	m.reloadAgain()
}

// passOnSignal lets the old master know what was asked of this one.
func (m *Master) passOnSignal(intent signals.Intent) {
	if m.taking == nil || !m.taking.charged {
		return
	}
	if name := signals.For(intent); name != "" {
		m.tellPeer(m.taking.elder, proc.Message{Type: proc.Signal, Reason: name})
	}
	if intent == signals.Kill {
		m.elderEndsBy()
	}
}

// passOnState lets the old master know the state of this one, whoever has asked for it.
func (m *Master) passOnState() {
	switch m.state {
	case signals.Killing:
		m.passOnKill()
	case signals.Draining:
		m.passOnSignal(signals.Drain)
	case signals.Paused:
		m.passOnSignal(signals.Pause)
	case signals.Running:
		m.passOnSignal(signals.Resume)
	}
}

// passOnKill has the old master end as this one does.
func (m *Master) passOnKill() {
	if m.over == nil {
		m.passOnSignal(signals.Kill)
		return
	}
	if m.taking == nil || !m.taking.charged {
		return
	}
	m.tellPeer(m.taking.elder, proc.Message{Type: proc.KillJobs, Cause: m.over.cause, Requeue: m.over.requeue, Exit: true})
	m.elderEndsBy()
}

// elderEndsBy bounds how long the old master may take to end, from now on.
func (m *Master) elderEndsBy() {
	if m.taking.endBy.IsZero() {
		m.taking.endBy = time.Now().Add(m.cfg.TermTimeout + killMargin + lastTries + 5*time.Second)
	}
}

// elderEnds reports whether the old master has to be waited for before this one ends: with the
// main process of a service systemd ends all others.
func (m *Master) elderEnds() (wait bool) {
	t := m.taking
	if t == nil || !t.charged {
		return false
	}
	if m.due(t.endBy) {
		m.log.Error("the old version does not end after it was told to shut down: killing it", zap.Int("old_pid", t.elder.PID()))
		_ = t.elder.Kill()
		t.endBy = time.Time{}
	}
	return true
}

// takingText says how far an upgrade is, in a few words; "" if there is none.
func (m *Master) takingText() string {
	switch t := m.taking; {
	case m.given():
		return fmt.Sprintf("handed over to process %d", m.handing.peer.PID())
	case m.handing != nil:
		return fmt.Sprintf("process %d starts to take over", m.handing.peer.PID())
	case t == nil:
		return ""
	case !t.all && t.charged:
		return fmt.Sprintf("taking over %d/%d from process %d", t.filled, len(m.slots), t.elder.PID())
	default:
		return fmt.Sprintf("process %d finishes its jobs", t.elder.PID())
	}
}

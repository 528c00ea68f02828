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

// The new master's part of an upgrade; see upgrade.go.

// errElderGone means that the master to be replaced by this one has gone too early.
var errElderGone = errors.New("the master whose place this one was to take has ended, or has given it up")

// taking is the old master that this one replaces.
type taking struct {
	elder   Peer
	charged bool      // this master is in charge
	granted int       // slots that it may fill
	filled  int       // filled slots reported to the old master
	all     bool      // all slots are filled
	endBy   time.Time // when the old master must be gone; zero = no limit
}

// takingOver reports whether the old master still has slots to hand over.
func (m *Master) takingOver() bool { return m.taking != nil && !m.taking.all }

func (m *Master) granted(n int) bool { return !m.takingOver() || n < m.taking.granted }

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

// takeCharge makes this master the one for the service manager and people.
func (m *Master) takeCharge(state string) {
	if m.taking.charged || m.leaving() {
		return
	}
	m.taking.charged = true
	m.follow(state)
	m.inCharge(true)
	m.d.Notifier.Speak()
	m.d.Notifier.Ready()
	m.told = told{} // repeat everything
	m.note(store.EventDeployed, "", "takes over from the version before: "+m.described(), 0)
	m.log.Info("in charge: the old version hands over its slots and finishes its jobs", zap.Int("old_pid", m.taking.elder.PID()))
	m.tellPeer(m.taking.elder, proc.Message{Type: proc.InCharge})
}

// countFilled tells the old master how many slots have a worker process.
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

// passOnSignal passes a signal to this master on to the old one.
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

// passOnState passes this master's state on to the old one, whatever its cause.
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

// passOnKill makes the old master end like this one.
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

// elderEnds reports whether this master must wait for the end of the old one: when a service's
// main process ends, systemd kills the others.
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

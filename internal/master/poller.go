package master

import (
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// The cost of an idle daemon must not grow with its processes. One of them, the poller, polls at
// every interval; the others look when it has found more than it can take. A process that has
// just worked also polls at every interval, and each process does from time to time, so that
// nothing depends on a poller that hangs.

// post makes a process with an idle thread the poller. It runs in each turn of the loop.
func (m *Master) post() {
	if m.state != signals.Running || m.poller != nil && m.mayPoll(m.poller) {
		return
	}
	old := m.poller
	m.poller = nil
	for _, s := range m.slots {
		if s.current != nil && m.mayPoll(s.current) {
			m.poller = s.current
			break
		}
	}
	if m.poller == old {
		return
	}
	if old != nil && m.workers[old] && !old.kill.sent {
		m.send(old, proc.Message{Type: proc.Poller})
	}
	if m.poller != nil {
		m.send(m.poller, proc.Message{Type: proc.Poller, On: true})
	}
}

func (m *Master) mayPoll(w *worker) bool {
	return m.workers[w] && w.suspect == nil && !w.readyAt.IsZero() && !w.kill.sent && w.leaves.stage == working && !w.health.saturated &&
		w.told == signals.Running
}

// found handles that w has more jobs than it can take.
func (m *Master) found(w *worker) {
	w.health.saturated = true
	for other := range m.workers {
		if other != w && m.mayPoll(other) {
			m.send(other, proc.Message{Type: proc.Look})
		}
	}
}

package master

import (
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// The cost of an idle daemon must not grow with its processes: one of them, the
// lookout, looks for jobs at every interval, and the others look when it has
// found more than it can take. A process that has just worked looks at every
// interval anyway, and each now and then, so that nothing depends on a lookout
// that hangs.

// post makes sure that a process with an idle thread is the lookout. It runs in
// each turn of the loop.
func (m *Master) post() {
	if m.state != signals.Running || m.lookout != nil && m.mayLookOut(m.lookout) {
		return
	}
	old := m.lookout
	m.lookout = nil
	for _, s := range m.slots {
		if s.current != nil && m.mayLookOut(s.current) {
			m.lookout = s.current
			break
		}
	}
	if m.lookout == old {
		return
	}
	if old != nil && m.workers[old] && !old.kill.sent {
		m.send(old, proc.Message{Type: proc.Lookout})
	}
	if m.lookout != nil {
		m.send(m.lookout, proc.Message{Type: proc.Lookout, On: true})
	}
}

func (m *Master) mayLookOut(w *worker) bool {
	return m.workers[w] && w.suspect == nil && !w.readyAt.IsZero() && !w.kill.sent && w.leaves.stage == working && !w.health.saturated &&
		w.told == signals.Running
}

// found: w has more jobs than it can take.
func (m *Master) found(w *worker) {
	w.health.saturated = true
	for other := range m.workers {
		if other != w && m.mayLookOut(other) {
			m.send(other, proc.Message{Type: proc.Look})
		}
	}
}

package master

import (
	"slices"
	"time"
)

// While a successor starts, the slot of a process that has used up its jobs would be empty. So a
// process announces its end a little earlier, and one successor at a time is started ahead. It
// is ready but waits until the other one has stopped taking jobs, so that no more processes work
// than there are slots.

// aheadAtMost is how long a successor waits: the jobs may have run out.
const aheadAtMost = 30 * time.Second

// learn updates the usual duration of a start, which worker processes are told.
func (m *Master) learn(took time.Duration) {
	if m.lead == 0 {
		m.lead = took
	}
	m.lead += (took - m.lead) / 4
}

func (m *Master) startAhead() {
	if m.cfg.MaxRetiring == 0 || m.roll != nil {
		return
	}
	if slices.ContainsFunc(m.slots, func(s *slot) bool { return s.next != nil && s.next.ahead }) {
		return
	}
	for _, s := range m.slots {
		if w := s.current; w != nil && w.leaves.soon && s.next == nil && m.mayStart(s) {
			m.spawn(s, w)
			if s.next != nil {
				s.next.ahead = true
			}
			return
		}
	}
}

// handOver ends the waiting of successors.
func (m *Master) handOver() {
	for _, s := range m.slots {
		next, old := s.next, s.current
		if next == nil || !next.ahead {
			continue
		}
		ready := !next.readyAt.IsZero()
		switch {
		case old.leaves.stage >= stopped && m.extra() < m.cfg.MaxRetiring:
			m.succeed(s)
			m.itsTurn(next)
		case m.wantsNow(old) && ready && m.extra() < m.cfg.MaxRetiring:
			m.succeed(s)
			m.itsTurn(next)
		case ready && (m.roll != nil || m.due(next.readyAt.Add(aheadAtMost))):
			s.next, old.leaves.soon = nil, false
			m.retire(next, "it is not needed")
		}
	}
}

func (m *Master) itsTurn(w *worker) {
	if w != nil && w.ahead {
		w.ahead = false
		m.passOn(w)
	}
}

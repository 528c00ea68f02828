package master

import (
	"fmt"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

// note records an event for people. It is best effort: nothing waits for it.
func (m *Master) note(kind store.EventKind, subject, text string, n int) {
	if m.d.Events != nil {
		m.d.Events.Note(store.Event{Kind: kind, Subject: subject, Text: text, Count: int64(n)})
	}
}

func (m *Master) described() string {
	return fmt.Sprintf("version %s, %d worker processes with %d threads each, queues %s", m.cfg.Fields["version"], m.cfg.Slots, m.cfg.Threads, m.cfg.Fields["queues"])
}

func (m *Master) noteState(before signals.State, why string) {
	switch m.state {
	case signals.Running:
		if before == signals.Paused {
			m.note(store.EventResumed, "", why, 0)
		}
	case signals.Paused:
		m.note(store.EventPaused, "", why, 0)
	case signals.Draining:
		m.note(store.EventStopped, "", "finishes its jobs and ends: "+why, 0)
	case signals.Killing:
		m.note(store.EventKilled, "", "kills its jobs and ends: "+why, m.busy())
	}
}

func (m *Master) busy() (n int) {
	for w := range m.workers {
		n += w.health.beat.Busy
	}
	return n
}

func (m *Master) noteDeath(w *worker, exit proc.Exit) {
	m.ends.Died++
	m.note(store.EventDied, w.proc, fmt.Sprintf("worker process: %s, after %d jobs", w.ending(exit), w.health.beat.Done), w.health.beat.Busy)
}

func (m *Master) happened(w *worker, told proc.Message) {
	switch kind := store.EventKind(told.Cause); kind {
	case store.EventLockLost, store.EventDied:
		if kind == store.EventDied { // a runner
			m.ends.Died++
		}
		m.note(kind, w.proc, told.Reason, told.Busy)
	}
}

package master

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
)

// An order is what an operator elsewhere leaves for this master in Redis, where a signal cannot
// reach it. The recoverer takes it when it renews the master's entry, the loop carries it out as it
// does a signal, and the next renewal, at once, has the answer.

// answerKept is how long an answer is written with each renewal: one may fail.
const answerKept = time.Minute

// answered is an answer that was given.
type answered struct {
	store.OrderAnswer
	at time.Time
}

// execute carries out an order and answers it.
func (m *Master) execute(o store.Order) {
	if _, known := m.answers[o.ID]; known {
		return
	}
	done, text := m.carryOut(o)
	m.log.Info("order from afar", zap.String("verb", string(o.Verb)), zap.String("proc", o.Proc),
		zap.String("state", string(m.state)), zap.Bool("obeyed", done), zap.String("answer", text))
	m.answers[o.ID] = answered{store.OrderAnswer{Done: done, Text: text}, time.Now()}
	m.roundAt = time.Time{} // who asks sees it at once
}

// recentAnswers returns the answers for the next renewal, and forgets old ones.
func (m *Master) recentAnswers() map[string]store.OrderAnswer {
	recent := map[string]store.OrderAnswer{}
	for id, a := range m.answers {
		if time.Since(a.at) > answerKept {
			delete(m.answers, id)
			continue
		}
		recent[id] = a.OrderAnswer
	}
	return recent
}

// carryOut does what is ordered, and says what it has done, or why not.
func (m *Master) carryOut(o store.Order) (done bool, text string) {
	switch o.Verb {
	case store.OrderRecycle:
		return m.recycle(o.Proc)
	case store.OrderDrain:
		if o.Proc != "" {
			return m.recycle(o.Proc) // a slot does not stay empty
		}
		return m.intend(signals.Drain, signals.Draining, string(o.Verb))
	case store.OrderPause, store.OrderResume:
		if o.Proc != "" {
			return false, "single worker processes cannot be told to " + string(o.Verb) + "; name their master"
		}
		if o.Verb == store.OrderPause {
			return m.intend(signals.Pause, signals.Paused, string(o.Verb))
		}
		return m.intend(signals.Resume, signals.Running, string(o.Verb))
	}
	return false, fmt.Sprintf("this version does not know the order %q", o.Verb)
}

// intend does what a signal of that intent would do; wanted is the state that it leads to.
func (m *Master) intend(intent signals.Intent, wanted signals.State, verb string) (done bool, text string) {
	if m.state == wanted || m.state == signals.Starting && m.startAs == wanted && wanted != signals.Draining {
		if wanted != signals.Draining {
			m.passOnSignal(intent)
			m.passOnAll(true)
		}
		return true, "it is " + string(wanted) + " already"
	}
	switch step := signals.Master(m.state, intent, time.Since(m.since)); step.Do {
	case signals.Enter:
		m.enter(step.Next, verb+" was ordered from afar")
		return true, string(step.Next)
	case signals.StartPaused, signals.StartRunning:
		m.startAs = wanted
		m.passOnAll(true)
		return true, "it is starting, and will be " + string(wanted)
	}
	return false, "it is " + string(m.state)
}

// recycle has worker processes be replaced, as if they had come of age: their successors start
// first, and they finish the jobs that they have. name is one of them, empty = all.
func (m *Master) recycle(name string) (done bool, text string) {
	switch {
	case m.leaving(), m.state == signals.Starting:
		return false, "it is " + string(m.state)
	case m.roll != nil:
		return false, "a reload is replacing them already"
	case m.handing != nil: // to it, or to none, the slots belong soon
		return false, m.takingText()
	}
	n, found := 0, false
	for w := range m.workers {
		if name != "" && w.proc != name {
			continue
		}
		switch {
		case w.suspect != nil:
			if name != "" {
				return false, "it runs one suspect alone and leaves by itself"
			}
		case w.leaves.stage >= stopped:
			found = true // it is leaving
		case w.slot.current != w || w.readyAt.IsZero():
			found = found || name != "" // it has just been started
		default:
			found = true
			n++
			w.leaves.wanted, w.leaves.wantedFrom = "order", time.Time{}
		}
	}
	switch {
	case name != "" && !found:
		return false, "it has no such worker process"
	case n == 0:
		return true, "nothing to replace"
	}
	if n == 1 {
		return true, "replacing 1 worker process"
	}
	return true, fmt.Sprintf("replacing %d worker processes", n)
}

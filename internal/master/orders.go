package master

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
)

// Orders are what operators elsewhere leave for this master in Redis, where signals cannot reach
// it. The recoverer fetches them when it renews the master's entry. The loop executes them like
// signals, and the next renewal, at once, carries the answer.

// answerKept is how long each renewal repeats an answer: one may fail.
const answerKept = time.Minute

type answered struct {
	store.OrderAnswer
	at time.Time
}

func (m *Master) execute(o store.Order) {
	if _, known := m.answers[o.ID]; known {
		return
	}
	done, text := m.carryOut(o)
	m.log.Info("order from afar", zap.String("verb", string(o.Verb)), zap.String("proc", o.Proc),
		zap.String("state", string(m.state)), zap.Bool("obeyed", done), zap.String("answer", text))
	m.answers[o.ID] = answered{store.OrderAnswer{Done: done, Text: text}, time.Now()}
	m.roundAt = time.Time{} // the operator sees it at once
}

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

// carryOut executes an order and returns the result, or why it was refused.
func (m *Master) carryOut(o store.Order) (done bool, text string) {
	switch o.Verb {
	case store.OrderRecycle:
		return m.recycle(o.Proc)
	case store.OrderDrain:
		if o.Proc != "" {
			return m.recycle(o.Proc) // a slot is refilled
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

// intend acts like a signal of that intent; wanted is the state that it leads to.
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

// recycle replaces worker processes as max_age would: successors start first, and the old ones
// finish their jobs. name is one process; empty = all.
func (m *Master) recycle(name string) (done bool, text string) {
	switch {
	case m.leaving(), m.state == signals.Starting:
		return false, "it is " + string(m.state)
	case m.roll != nil:
		return false, "a reload is replacing them already"
	case m.handing != nil: // the slots are about to be handed over
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
			found = found || name != "" // it has just started
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

package master

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// reap handles the end of a worker process: it frees the slot and gives the jobs to the
// recoverer.
func (m *Master) reap(e exited) {
	w := e.worker
	m.now = time.Now()
	delete(m.workers, w)
	if w.kill.endSweep != nil {
		w.kill.endSweep()
	}
	m.done += w.health.beat.Done
	m.booted(w)
	for other := range m.workers {
		if other.after == w {
			other.after = nil
			m.passOn(other)
		}
	}
	orderly := w.farewell.orderly() && e.exit.Code == 0
	m.suspectOOM(w, e.exit)
	m.vacate(w, orderly, e.exit)
	m.recover(w, orderly, e.exit)
	switch {
	case m.onTrial(w):
		m.abortRoll("its first worker process ended: " + w.ending(e.exit))
	case m.taking != nil && !m.taking.charged && m.state == signals.Starting:
		m.err = fmt.Errorf("its first worker process ended: %s; see its last lines in the log", w.ending(e.exit))
		m.enter(signals.Draining, "the first worker process of the new version ended")
	case e.exit.Code == configExit && m.state == signals.Starting:
		// Later, the configuration has worked. Then a job or something temporary causes this
		// exit code; the next process is started with a growing delay.
		m.err = fmt.Errorf("%w: %s left with exit code %d; see its last lines in the log", ErrWorkerConfig, w.proc, configExit)
		m.enter(signals.Draining, "a worker process cannot use the configuration")
	}
}

// vacate frees the slot of w and decides when to fill it again.
func (m *Master) vacate(w *worker, orderly bool, exit proc.Exit) {
	s := w.slot
	held := s.current == w || s.next == w || w.suspect != nil
	if s.current == w {
		// A booting successor takes the slot.
		s.current, s.next = s.next, nil
		m.itsTurn(s.current)
	} else if s.next == w {
		s.next = nil
	}
	var lived time.Duration
	if !w.readyAt.IsZero() {
		lived = m.now.Sub(w.readyAt)
	}
	if lived >= healthy {
		s.forgive()
	}
	fields := []zap.Field{
		zap.String("proc", w.proc), zap.Int("pid", w.child.PID()), zap.String("ended", w.ending(exit)),
		zap.Int("jobs_done", w.health.beat.Done), zap.Int64("peak_rss", exit.MaxRSS),
	}
	if w.kill.asked {
		fields = append(fields, zap.Int("jobs_not_stopped", w.kill.stuckJobs))
	}
	useful := w.health.beat.Done > 0 || lived >= briefly
	switch {
	case orderly && w.suspect != nil:
		if useful {
			s.forgive()
		}
		m.log.Debug("worker process left", fields...)
	case orderly && w.farewell.reason == proc.Empty:
		s.closed = held
		m.log.Info("worker process left: the queues are empty", fields...)
	case orderly && useful && w.leaves.stage >= stopped && !m.leaving():
		m.recycled(w, lived, fields)
	case orderly && (useful || !held), m.leaving() && exit.Code == 0:
		m.log.Info("worker process left", fields...)
	case w.kill.asked, m.state == signals.Killing:
		m.log.Warn("worker process ended with the jobs that did not stop", fields...)
		m.noteDeath(w, exit)
	case held && !m.leaving() && !m.onTrial(w):
		m.log.Error("worker process died", append(fields, zap.Duration("next_in", s.fail(m.now)))...)
		m.noteDeath(w, exit)
	default:
		m.log.Error("worker process died", fields...)
		m.noteDeath(w, exit)
	}
}

func (w *worker) ending(exit proc.Exit) string {
	if w.kill.cause != "" {
		return fmt.Sprintf("%s (%s)", exit, w.kill.cause)
	}
	return exit.String()
}

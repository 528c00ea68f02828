package master

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/proc"
)

// The back-off of a slot whose worker processes die: from the first delay, doubled up to the
// longest, half of it random to spread the slots.
const (
	firstDelay   = 100 * time.Millisecond
	longestDelay = 30 * time.Second
	// healthy is how long a worker process must work to reset its slot's back-off.
	healthy = 10 * time.Second
	// briefly: a worker process that leaves sooner without one job done counts as a failure,
	// even after an orderly end.
	briefly = time.Second
)

// slot is one of the places that a master keeps filled.
type slot struct {
	number int
	// current fills the slot; next is starting to replace it.
	current, next *worker
	failures      int
	// swollen counts consecutive processes that were too large although they had hardly grown;
	// see memory.go.
	swollen int
	// due is when the next spawn is allowed; zero = now.
	due time.Time
	// closed: its worker process has left because nothing was left to do.
	closed bool
}

func (s *slot) fail(now time.Time) time.Duration {
	delay := min(firstDelay<<min(s.failures, 16), longestDelay)
	s.failures++
	delay = delay/2 + rand.N(delay/2)
	s.due = now.Add(delay)
	return delay
}

func (s *slot) forgive() { s.failures, s.due = 0, time.Time{} }

// fill starts the next worker process that is needed, one at a time: the next one follows when
// this one is ready or dead.
func (m *Master) fill() {
	m.checkRoll()
	if m.leaving() {
		return
	}
	m.handOver()
	if m.booting != nil {
		return
	}
	for i, s := range m.slots {
		if s.current == nil && !s.closed && m.granted(i) && m.mayStart(s) {
			m.spawn(s, nil)
			return
		}
	}
	if m.roll != nil && !m.roll.tried {
		// Neither MaxRetiring nor failures of the old configuration hold up the first process of
		// a new one.
		s := m.slots[m.leastBusy()]
		m.spawn(s, s.current)
		return
	}
	extra := m.extra()
	for _, s := range m.slots {
		w := s.current
		if w == nil || s.next != nil || !m.mayStart(s) {
			continue
		}
		switch {
		case w.leaves.stage >= stopped:
			// It finishes its jobs; another process gets the slot.
			if extra < m.cfg.MaxRetiring {
				w.leaves.stage, s.current = retired, nil
				m.spawn(s, w)
				return
			}
		case m.wantsNow(w) && m.cfg.MaxRetiring == 0:
			if !m.replacing() {
				m.retire(w, w.leaves.wanted)
			}
		case m.wantsNow(w) && extra < m.cfg.MaxRetiring,
			m.outdated(w) && !m.given() && extra < max(1, m.cfg.MaxRetiring):
			m.spawn(s, w)
			return
		}
	}
	m.startAhead()
}

func (m *Master) mayStart(s *slot) bool { return s.due.IsZero() || m.due(s.due) }

// extra counts the processes outside the slots, except those that only wait for their turn or
// have only to end.
func (m *Master) extra() int {
	n := 0
	for w := range m.workers {
		if w.leaves.stage == retired && !w.leaves.surplus && !w.farewell.orderly() || w.slot.next == w && !w.ahead {
			n++
		}
	}
	return n
}

func (m *Master) replacing() bool {
	return slices.ContainsFunc(m.slots, func(s *slot) bool { return s.current == nil || s.current.leaves.stage >= stopped })
}

// spawn starts a worker process for s: as current, or as next while old is there.
func (m *Master) spawn(s *slot, old *worker) {
	cfg, gen := m.cfg, m.gen
	if m.roll != nil && !m.roll.tried {
		m.roll.tried = true
		cfg, gen = m.roll.cfg, m.roll.gen
	}
	before := *s
	w, err := m.launch(s, cfg, gen, fmt.Sprintf(proc.TitleOf+"worker %d of %d", s.number+1, cfg.Slots))
	if err != nil {
		if gen != m.gen {
			*s = before
			m.abortRoll(err.Error())
		}
		return
	}
	if cfg.Slots*cfg.Threads == 1 {
		w.after = old // one job at a time was configured
	}
	if s.current == nil {
		s.current = w
	} else {
		s.next = w
	}
	m.booting = w
}

func (m *Master) succeed(s *slot) {
	old := s.current
	s.current, s.next = s.next, nil
	switch {
	case old == nil:
	case old.leaves.stage >= stopped:
		old.leaves.stage = retired
	default:
		m.retire(old, old.leaves.wanted)
	}
}

// launch starts a worker process. On error it logs, and delays the next try of s.
func (m *Master) launch(s *slot, cfg Config, gen int, title string) (*worker, error) {
	if m.d.BeforeFork != nil {
		m.d.BeforeFork()
	}
	name := m.d.Self.Child(s.number, m.seq)
	m.seq++
	child, err := m.d.System.Spawn(proc.Spec{
		Proc: name, Title: title, Config: cfg.Worker, Env: cfg.Env, Files: cfg.Files, DieWithMaster: cfg.OnMasterDeath == "kill",
	})
	if err != nil {
		m.log.Error("cannot start a worker process", zap.Int("slot", s.number), zap.Error(err),
			zap.Duration("again_in", s.fail(m.now)))
		m.due(s.due)
		return nil, err
	}
	w := &worker{proc: name, slot: s, gen: gen, cfg: cfg, child: child, spawnedAt: m.now, health: health{heard: m.now}}
	m.workers[w] = true
	m.log.Debug("worker process started", zap.String("proc", name), zap.Int("pid", child.PID()))
	m.children.Go(func() { m.watch(w) })
	return w, nil
}

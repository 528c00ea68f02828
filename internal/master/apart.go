package master

import (
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// A job that may have killed its process runs again alone in a process of its own:
// those that run nothing else are there beside the slots, as long as their one job
// lasts. docs/decisions/suspects.md says why.

// harmless is how long a suspect runs before the next one no longer waits for its end.
// At most as many run at a time as there are slots, besides those that have lasted so
// long; with these, as many as one process has threads, because that is what one death
// leaves. So long jobs that died together begin within minutes, not one after another.
const harmless = 5 * time.Second

// apart is what a master knows of suspects.
type apart struct {
	// waiting is how many there are in Redis, as far as it was told.
	waiting int
	booting *worker
	// slot stands for all their processes: it delays the next one after a death, or
	// after one that found nothing to take.
	slot slot
}

// suspected takes what w knows of suspects.
func (m *Master) suspected(w *worker, said proc.Message) {
	m.apart.waiting = said.Suspects
	if w.suspect == nil {
		return
	}
	w.suspect.looked = true
	switch {
	case said.On:
		w.suspect.tookAt = w.health.heard
	case said.Suspects > 0:
		m.apart.slot.fail(w.health.heard) // their locks are held
	}
}

// isolate starts the next process for a suspect, one at a time.
func (m *Master) isolate() {
	s := &m.apart.slot
	if m.taking != nil && !m.taking.charged {
		return
	}
	if m.state != signals.Running || m.apart.waiting == 0 || m.apart.booting != nil {
		return
	}
	all, young, looking := 0, 0, 0
	for w := range m.workers {
		if w.suspect == nil {
			continue
		}
		all++
		if w.suspect.tookAt.IsZero() || !m.due(w.suspect.tookAt.Add(harmless)) {
			young++
		}
		if !w.suspect.looked {
			looking++
		}
	}
	if m.apart.waiting <= looking || young >= m.cfg.Slots || all >= max(m.cfg.Slots, m.cfg.Threads) || !m.mayStart(s) {
		return
	}
	s.number = m.cfg.Slots // none of those that are kept filled
	w, err := m.launch(s, m.cfg, m.gen, proc.TitleOf+"worker for a suspect")
	if err != nil {
		return
	}
	w.suspect, m.apart.booting = &suspectRun{}, w
	m.log.Info("running a job alone that may have killed its process", zap.String("proc", w.proc),
		zap.Int("waiting", m.apart.waiting))
}

// booted: w is ready, or gone.
func (m *Master) booted(w *worker) {
	if m.booting == w {
		m.booting = nil
	}
	if m.apart.booting == w {
		m.apart.booting = nil
	}
}

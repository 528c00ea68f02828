package master

import (
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// A job that may have killed its process runs again alone, in a process outside the slots that
// runs nothing else. docs/decisions/suspects.md says why.

// harmless is how long a suspect runs before the next one no longer waits for its end. At most
// as many younger ones run at a time as there are slots; with older ones, at most as many as a
// process has threads, because one death leaves as many. So long jobs that died together begin
// within minutes, not one after another.
const harmless = 5 * time.Second

type apart struct {
	// waiting is the number in Redis, as last reported.
	waiting int
	booting *worker
	// slot is shared by their processes: it delays the next one after a death, or after one that
	// found nothing to take.
	slot slot
}

// suspected takes a report of w about suspects.
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
	s.number = m.cfg.Slots // not one of the kept slots
	w, err := m.launch(s, m.cfg, m.gen, proc.TitleOf+"worker for a suspect")
	if err != nil {
		return
	}
	w.suspect, m.apart.booting = &suspectRun{}, w
	m.log.Info("running a job alone that may have killed its process", zap.String("proc", w.proc),
		zap.Int("waiting", m.apart.waiting))
}

// booted notes that w is ready or gone.
func (m *Master) booted(w *worker) {
	if m.booting == w {
		m.booting = nil
	}
	if m.apart.booting == w {
		m.apart.booting = nil
	}
}

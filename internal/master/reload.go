package master

import (
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
)

// rereading is the reading of a new configuration, which happens beside the loop.
type rereading struct {
	under  bool // it is going on
	again  bool // it was asked for meanwhile; once is enough
	result chan reread
}

type reread struct {
	cfg Config
	err error
}

// roll is a new configuration on its way into the slots.
type roll struct {
	cfg Config
	gen int
	// tried: its first worker process was started; proven: and was ready. Until
	// then the old configuration stays in force.
	tried, proven bool
}

// reload begins a reload, or remembers it while another one or the start is going
// on.
func (m *Master) reload() {
	switch {
	case m.d.Reload == nil:
		m.log.Warn("this master cannot read its configuration again")
	case m.state == signals.Starting, m.reread.under, m.roll != nil:
		m.reread.again = true
	default:
		m.d.Notifier.Reloading()
		m.reread.under = true
		m.helpers.Go(func() {
			cfg, err := m.d.Reload(m.work)
			if err == nil {
				cfg, err = cfg.checked()
			}
			m.reread.result <- reread{cfg, err}
		})
	}
}

// reloaded takes the configuration that was read.
func (m *Master) reloaded(r reread) {
	m.reread.under = false
	switch {
	case m.leaving():
	case r.err != nil:
		m.log.Error("the new configuration cannot be used; the old one stays", zap.Error(r.err))
		m.rolled()
	default:
		m.log.Info("rolling the worker processes to the new configuration", zap.Int("workers", r.cfg.Slots))
		m.gens++
		m.roll = &roll{cfg: r.cfg, gen: m.gens}
	}
}

// onTrial reports whether w is the first worker process of a new configuration and has not
// been ready: if it fails, that says nothing about the old one.
func (m *Master) onTrial(w *worker) bool {
	return m.roll != nil && !m.roll.proven && w.gen == m.roll.gen
}

// proven: w is ready. If it is the first one of a new configuration, that takes
// effect.
func (m *Master) proven(w *worker) {
	if !m.onTrial(w) {
		return
	}
	m.roll.proven = true
	m.cfg, m.gen = m.roll.cfg, m.roll.gen
	// Slots that wait because the old configuration does not work need not.
	for _, s := range m.slots {
		s.forgive()
		s.closed = false
	}
	m.resize()
	if m.cfg.InForce != nil {
		m.cfg.InForce()
	}
	m.d.Notifier.Ready()
}

// resize adapts the number of slots. The worker processes of those that are no
// more finish and leave.
func (m *Master) resize() {
	for n := len(m.slots); n < m.cfg.Slots; n++ {
		m.slots = append(m.slots, &slot{number: n})
	}
	for _, s := range m.slots[m.cfg.Slots:] {
		if w := s.current; w != nil {
			w.surplus = true
			m.retire(w, "fewer worker processes")
		}
	}
	m.slots = m.slots[:m.cfg.Slots]
}

// outdated reports whether w runs an older configuration than the one in force.
func (m *Master) outdated(w *worker) bool { return w.gen < m.gen }

// abortRoll gives up a new configuration, which no process runs.
func (m *Master) abortRoll(why string) {
	m.log.Error("the new configuration does not work; the old one stays", zap.String("because", why))
	m.rolled()
}

// checkRoll ends a reload when every slot runs the new configuration.
func (m *Master) checkRoll() {
	if m.roll == nil || !m.roll.proven {
		return
	}
	for _, s := range m.slots {
		if s.current != nil && m.outdated(s.current) {
			return
		}
	}
	m.log.Info("the new configuration is in force everywhere")
	m.rolled()
}

// rolled ends a reload, well or badly.
func (m *Master) rolled() {
	proven := m.roll != nil && m.roll.proven
	m.roll = nil
	if !proven {
		m.d.Notifier.Ready()
	}
	if m.reread.again {
		m.reread.again = false
		m.reload()
	}
}

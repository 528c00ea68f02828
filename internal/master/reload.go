package master

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/control"
)

// Request is a request to a master. The loop calls Answer once; it must not block. A reply without
// PID is about this process.
type Request struct {
	// Do is control.Status, Upgrade or Reload. Upgrade restarts the program even if its file is
	// unchanged. Reload does that if the file has changed, otherwise the configuration is read
	// again.
	Do     string
	Answer func(control.Reply)
}

// rereading is the reading of a new configuration or the start of a new master, outside the
// loop.
type rereading struct {
	under bool // under way
	again bool // asked for again in between; one repetition suffices
	// asked wait for the current one, next for the one after it.
	asked, next []Request
	result      chan reread
}

type reread struct {
	upgrade bool // a new master was started; else a configuration was read
	cfg     Config
	peer    Peer
	err     error
}

// roll is a new configuration being rolled out to the slots.
type roll struct {
	cfg Config
	gen int
	// tried: its first worker process was started; proven: and was ready. Until then the old
	// configuration stays in force.
	tried, proven bool
}

func (m *Master) requested(r Request) {
	switch {
	case r.Do == control.Status:
		outage, trouble := m.outage(), ""
		if m.d.Trouble != nil {
			trouble = m.d.Trouble()
		}
		r.Answer(control.Reply{Trouble: trouble, OK: true, Text: m.status(outage), Elsewhere: m.given(), State: m.shown(), Ready: m.count().ready, Outage: outage, Takes: m.patience()})
	case m.leaving():
		r.Answer(control.Reply{Text: "the daemon is stopping"})
	case m.given():
		r.Answer(control.Reply{Elsewhere: true, PID: m.handing.peer.PID(), Text: m.elsewhere()})
	case m.d.Reload == nil && r.Do != control.Upgrade:
		r.Answer(control.Reply{Text: "this daemon cannot read its configuration again"})
	default:
		m.reread.next = append(m.reread.next, r)
		m.reload()
	}
}

// reload begins a reload, or an upgrade if the program has changed. During another one, or
// during the start, it only notes that.
func (m *Master) reload() {
	upgrade, trouble := m.upgrades()
	switch {
	case m.given():
		m.log.Warn(m.elsewhere())
	case m.d.Reload == nil && !upgrade:
		m.log.Warn("this master cannot read its configuration again")
	case m.state == signals.Starting, m.reread.under, m.handing != nil, m.takingOver(),
		m.roll != nil && (!m.roll.proven || !upgrade && m.crowded()): // need not wait for processes that finish with the old configuration
		m.reread.again = true
	default:
		if trouble != nil {
			m.log.Warn("the worker processes are replaced by the program that runs", zap.Error(trouble))
		}
		m.d.Notifier.Reloading()
		m.d.Notifier.ExtendTimeout(m.patience() + extension)
		m.reread.under, m.reread.again = true, false
		m.reread.asked, m.reread.next = m.reread.next, nil
		m.helpers.Go(func() { m.reread.result <- m.prepare(upgrade) })
	}
}

// upgrades reports whether the next reload is an upgrade, and why that is unknown.
func (m *Master) upgrades() (bool, error) {
	if slices.ContainsFunc(m.reread.next, func(r Request) bool { return r.Do == control.Upgrade }) {
		return true, nil
	}
	if m.d.Upgrade.Changed == nil {
		return false, nil
	}
	return m.d.Upgrade.Changed()
}

// prepare starts a new master or reads the configuration. It runs outside the loop.
func (m *Master) prepare(upgrade bool) reread {
	if upgrade {
		if m.d.Upgrade.Start == nil {
			return reread{upgrade: true, err: errors.New("this daemon cannot be upgraded while it runs")}
		}
		peer, err := m.d.Upgrade.Start(m.work)
		return reread{upgrade: true, peer: peer, err: err}
	}
	cfg, err := m.d.Reload(m.work)
	if err != nil {
		return reread{err: err}
	}
	checked, err := cfg.checked()
	if err != nil {
		cfg.dropped()
		return reread{err: err}
	}
	return reread{cfg: checked}
}

func (m *Master) reloaded(r reread) {
	m.reread.under = false
	switch {
	case r.upgrade && r.err == nil:
		m.await(r.peer)
	case m.leaving():
		r.cfg.dropped()
		m.answer(control.Reply{Text: "the daemon is stopping"})
	case r.err != nil:
		what := "the new configuration cannot be used; the old one stays"
		if r.upgrade {
			what = refusedVersion
		}
		m.refuse(what, r.err.Error())
	default:
		m.log.Info("rolling the worker processes to the new configuration", zap.Int("workers", r.cfg.Slots))
		m.gens++
		m.roll = &roll{cfg: r.cfg, gen: m.gens}
	}
}

func (m *Master) answer(v control.Reply) {
	for _, r := range m.reread.asked {
		r.Answer(v)
	}
	m.reread.asked = nil
}

func (m *Master) refuse(what, why string) {
	m.log.Error(what, zap.String("because", why))
	m.note(store.EventRefused, "", what+": "+why, 0)
	m.refused = why
	m.told.at = time.Time{} // the status shows it before they hear of it
	m.tell()
	m.answer(control.Reply{Text: why})
	if m.roll != nil && m.roll.proven { // the rollout continues
		m.d.Notifier.Ready()
		m.reloadAgain()
		return
	}
	m.rolled()
}

func (m *Master) refusal() string {
	const most = 300
	text := strings.Join(strings.Fields(m.refused), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// onTrial reports whether w is the first worker process of a new configuration and was not ready
// yet: its failure says nothing about the old one.
func (m *Master) onTrial(w *worker) bool {
	return m.roll != nil && !m.roll.proven && w.gen == m.roll.gen
}

// proven handles that w is ready. If it is the first of a new configuration, that takes effect.
func (m *Master) proven(w *worker) {
	if !m.onTrial(w) {
		return
	}
	m.roll.proven, m.refused = true, ""
	m.cfg, m.gen = m.roll.cfg, m.roll.gen
	// Delays caused by the old configuration are over.
	for _, s := range m.slots {
		s.forgive()
		s.closed = false
	}
	m.resize()
	if m.cfg.InForce != nil {
		m.cfg.InForce()
	}
	m.d.Notifier.Ready()
	m.answer(control.Reply{OK: true, Text: "the new configuration is in force: its first worker process is ready, and the others are replaced one after another"})
}

// resize adapts the number of slots. Worker processes of removed slots finish and leave.
func (m *Master) resize() {
	for n := len(m.slots); n < m.cfg.Slots; n++ {
		m.slots = append(m.slots, &slot{number: n})
	}
	for _, s := range m.slots[m.cfg.Slots:] {
		m.clearOut(s, "fewer worker processes")
	}
	m.slots = m.slots[:m.cfg.Slots]
}

func (m *Master) clearOut(s *slot, why string) {
	for _, w := range []*worker{s.current, s.next} {
		switch {
		case w == nil:
		case w.greeted:
			w.leaves.surplus = true
			m.retire(w, why)
		default:
			w.leaves.surplus = true
			m.kill(w, why) // it has no jobs and does not listen yet
		}
	}
	s.current, s.next = nil, nil
}

func (m *Master) outdated(w *worker) bool { return w.gen < m.gen }

// abortRoll gives up a new configuration before any process runs it.
func (m *Master) abortRoll(why string) {
	m.roll.cfg.dropped()
	m.refuse("the new configuration does not work; the old one stays", why)
}

func (m *Master) checkRoll() {
	if m.roll == nil || !m.roll.proven {
		return
	}
	if m.reread.again && !m.reread.under && m.handing == nil && !m.crowded() {
		m.reloadAgain()
		return
	}
	if slices.ContainsFunc(m.slots, func(s *slot) bool { return s.current != nil && m.outdated(s.current) }) {
		return
	}
	m.log.Info("the new configuration is in force everywhere")
	m.note(store.EventReloaded, "", "the new configuration is in force: "+m.described(), 0)
	m.rolled()
}

// crowded reports whether the next configuration has to wait until a replaced process has left.
// Each configuration starts its first worker process in addition to all others; without this
// limit, long jobs would add one process per reload.
func (m *Master) crowded() bool { return m.extra() > max(1, m.cfg.MaxRetiring) }

func (m *Master) rolled() {
	proven := m.roll != nil && m.roll.proven
	m.roll = nil
	if !proven {
		m.d.Notifier.Ready()
	}
	m.reloadAgain()
}

func (m *Master) reloadAgain() {
	if m.reread.again {
		m.reread.again = false
		m.reload()
	}
}

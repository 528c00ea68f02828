package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/control"
	"github.com/resqued/resqued/internal/sys/proc"
)

// An upgrade starts the program again, next to this master. The new master reads its
// configuration, connects and starts one worker process; until that is ready, nothing changes
// here. Then it takes charge, and the slots go over one by one: for each of its ready worker
// processes, this master retires one. The other processes keep working. This master ends with
// its last worker process; until then the new one passes on the signals that it receives.
// docs/decisions/upgrade.md says why.
//
// This file is the old master's part; takeover.go is the new one's.

const (
	// upgradePatience is how long a new master may take to have a ready worker process. It is
	// less than a service manager waits for a reload. It grows with boot_timeout of runners.
	upgradePatience = 60 * time.Second
	// giveEvery is how long the next slot waits for the process that leaves the previous one: a
	// long job does not hold up the others, and they are not all duplicated at once.
	giveEvery = 10 * time.Second
)

const refusedVersion = "the new version is refused; this one continues"

// Peer is the other one of two masters during an upgrade; *proc.Beside implements it.
type Peer interface {
	PID() int
	Send(m proc.Message) error
	// Recv returns io.EOF when the other master is gone.
	Recv() (proc.Message, error)
	Kill() error
	Close() error
}

// Upgrade is what replacing a master needs. The zero value refuses it.
type Upgrade struct {
	// Changed reports whether the program differs from the running one.
	Changed func() (bool, error)
	// Start starts the program as a master with this one as its Elder. It is called outside the
	// loop.
	Start func(ctx context.Context) (Peer, error)
	// Elder is the master that this one replaces; nil = none.
	Elder Peer
	// InCharge is called when this master takes charge (true) or hands over, for what only one
	// of them may have, such as the pid file. It is not called at the start.
	InCharge func(on bool)
}

type heard struct {
	peer    Peer
	message proc.Message
	err     error
}

// handing is a new master that is replacing this one.
type handing struct {
	peer     Peer
	patience time.Duration
	by       time.Time // when it must be ready: patience after its start
	given    bool      // it is in charge
	reason   string    // why it cannot work, as reported by it
	slots    int       // this master's slots at its start
	filled   int       // the new master's slots that have a worker process
	all      bool      // all its slots have one
	handed   int       // how often it was allowed one more slot
	leaving  *worker   // the process that leaves the next slot; nil = none to wait for
	nextBy   time.Time // when the new master may fill that slot at the latest
}

func (m *Master) given() bool { return m.handing != nil && m.handing.given }

func (m *Master) elsewhere() string {
	return fmt.Sprintf("process %d has taken over; this one only finishes its jobs", m.handing.peer.PID())
}

// patience is how long a new master may take to have a ready worker process.
func (m *Master) patience() time.Duration {
	return max(upgradePatience, upgradePatience/2+m.cfg.BootTimeout)
}

func (m *Master) await(peer Peer) {
	m.handing = &handing{peer: peer, patience: m.patience(), slots: len(m.slots)}
	m.handing.by = time.Now().Add(m.handing.patience)
	m.log.Info("the program has changed: its new version starts next to this one", zap.Int("pid", peer.PID()))
	m.children.Go(func() { m.listen(peer) })
	if m.leaving() {
		m.giveUp("the daemon is stopping")
	}
}

// listen passes on another master's messages until either master ends.
func (m *Master) listen(peer Peer) {
	for {
		message, err := peer.Recv()
		select {
		case m.peers <- heard{peer, message, err}:
		case <-m.work.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (m *Master) onPeer(h heard) {
	switch {
	case m.handing != nil && h.peer == m.handing.peer:
		m.onSuccessor(h)
	case m.taking != nil && h.peer == m.taking.elder:
		m.onElder(h)
	}
}

func (m *Master) onSuccessor(h heard) {
	n := m.handing
	if h.err != nil {
		m.lostSuccessor(h.err)
		return
	}
	switch h.message.Type {
	case proc.Hello:
		if h.message.Protocol != proc.BesideProtocol {
			m.giveUp(fmt.Sprintf("the new program speaks protocol %d for taking over, not %d: restart the daemon", h.message.Protocol, proc.BesideProtocol))
			return
		}
		m.tellPeer(n.peer, proc.Message{Type: proc.Welcome, Protocol: proc.BesideProtocol, State: string(m.handOn())})
	case proc.Failed:
		n.reason = h.message.Reason
	case proc.Up:
		m.give()
	case proc.InCharge:
		m.inCharge(false) // only now, so that one of them always has it
		m.answer(control.Reply{OK: true, PID: n.peer.PID(), Text: fmt.Sprintf(
			"process %d is in charge: its first worker process is ready, and the others follow one after another; process %d finishes its jobs and leaves",
			n.peer.PID(), m.d.Self.PID)})
	case proc.Filled:
		n.filled, n.all = max(n.filled, h.message.Slots), n.all || h.message.On
	case proc.KillJobs:
		if n.given && m.state != signals.Killing {
			m.over = &overrun{h.message.Cause, h.message.Requeue}
			m.enter(signals.Killing, "the drain of the new version took too long")
		}
	case proc.Signal:
		if sig := signals.Named(h.message.Reason); sig != nil && n.given {
			m.onSignal(sig)
		}
	}
}

// handOn is the target state of a new master.
func (m *Master) handOn() signals.State {
	if m.state == signals.Paused {
		return signals.Paused
	}
	return signals.Running
}

func (m *Master) give() {
	n := m.handing
	if n.given || m.leaving() {
		return
	}
	n.given, m.roll, m.refused = true, nil, ""
	m.roundAt = time.Time{} // people see it at once
	m.log.Info("the new version is ready and takes over; this one finishes its jobs", zap.Int("pid", n.peer.PID()))
	// First: until then the service manager ignores the new master.
	m.d.Notifier.HandOver(n.peer.PID())
	m.tellPeer(n.peer, proc.Message{Type: proc.Charge, State: string(m.handOn())})
	if m.reread.again {
		// The configuration may have changed since the new master read it.
		m.reread.again = false
		m.tellPeer(n.peer, proc.Message{Type: proc.Signal, Reason: signals.Name(syscall.SIGHUP)})
	}
	for _, r := range m.reread.next {
		r.Answer(control.Reply{Elsewhere: true, PID: n.peer.PID(), Text: m.elsewhere()})
	}
	m.reread.next = nil
}

func (m *Master) inCharge(on bool) {
	if m.d.Upgrade.InCharge != nil {
		m.d.Upgrade.InCharge(on)
	}
}

// giveSlots hands over slots, one for each ready worker process of the new master.
func (m *Master) giveSlots() {
	n := m.handing
	if n == nil || m.leaving() {
		return
	}
	if !n.given {
		if m.due(n.by) {
			why := fmt.Sprintf("the new version was not ready after %s", n.patience)
			if n.reason != "" {
				why += ": " + n.reason
			}
			m.giveUp(why)
		}
		return
	}
	for n.all && len(m.slots) > 0 {
		m.giveSlot()
	}
	if n.all || n.handed >= n.filled {
		return
	}
	if n.nextBy.IsZero() {
		n.leaving, n.nextBy = m.giveSlot(), m.now.Add(giveEvery)
	}
	if n.leaving == nil || !m.workers[n.leaving] || m.due(n.nextBy) {
		n.leaving, n.nextBy = nil, time.Time{}
		n.handed++
		m.tellPeer(n.peer, proc.Message{Type: proc.Next})
		m.wake = m.now // there may be more
	}
}

// giveSlot gives up the least busy slot, and returns the process that leaves it.
func (m *Master) giveSlot() *worker {
	if len(m.slots) == 0 {
		return nil
	}
	least := m.leastBusy()
	s := m.slots[least]
	m.slots = append(m.slots[:least:least], m.slots[least+1:]...)
	m.cfg.Slots = len(m.slots)
	w := s.current
	m.clearOut(s, "the new version takes over")
	m.passOnAll(false) // processes that waited for another one's slot need not any more
	return w
}

func (m *Master) leastBusy() int {
	least := 0
	for i, s := range m.slots {
		if s.busy() < m.slots[least].busy() {
			least = i
		}
	}
	return least
}

func (s *slot) busy() int {
	if s.current == nil {
		return -1
	}
	return s.current.health.beat.Busy
}

// giveUp ends a new master that is not in charge yet.
func (m *Master) giveUp(why string) {
	n := m.handing
	if err := n.peer.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.log.Warn("the new master cannot be ended", zap.Int("pid", n.peer.PID()), zap.Error(err))
	}
	m.dismiss(why)
}

// dismiss forgets a new master that is not in charge.
func (m *Master) dismiss(why string) {
	_ = m.handing.peer.Close()
	m.handing = nil
	if m.leaving() {
		m.answer(control.Reply{Text: why})
		return
	}
	m.refuse(refusedVersion, why)
}

// lostSuccessor handles the end of the new master. This master then keeps its role.
func (m *Master) lostSuccessor(err error) {
	n := m.handing
	if !n.given {
		why := n.reason
		if why == "" {
			why = "the new version ended before its first worker process was ready; its last lines in the log may say why"
		}
		m.dismiss(why)
		return
	}
	if !errors.Is(err, io.EOF) {
		_ = n.peer.Kill()
	}
	_ = n.peer.Close()
	why := fmt.Sprintf("the new version (process %d) died after it had taken over; this one has all slots again", n.peer.PID())
	m.handing, m.roundAt = nil, time.Time{}
	m.d.Notifier.Speak()
	if m.leaving() {
		return
	}
	m.cfg.Slots = n.slots
	m.resize()
	m.inCharge(true)
	m.refuse("this master takes over again", why)
}

// tellPeer sends a message to another master. If that is gone, listen reports it.
func (m *Master) tellPeer(peer Peer, message proc.Message) {
	if err := peer.Send(message); err != nil {
		m.log.Debug("message to the other master not sent", zap.Int("pid", peer.PID()), zap.Error(err))
	}
}

// tellSuccessor tells a new master that is not in charge yet its target state, or ends it if
// this one leaves.
func (m *Master) tellSuccessor() {
	switch {
	case m.handing == nil || m.handing.given:
	case m.leaving():
		m.giveUp("the daemon is stopping")
	default:
		m.tellPeer(m.handing.peer, proc.Message{Type: proc.SetState, State: string(m.handOn())})
	}
}

// partFromPeers closes the sockets to other masters after the loop has ended.
func (m *Master) partFromPeers() {
	if m.handing != nil {
		_ = m.handing.peer.Close()
	}
	if m.taking != nil {
		if m.err != nil && !m.taking.charged {
			m.tellPeer(m.taking.elder, proc.Message{Type: proc.Failed, Reason: m.err.Error()})
		}
		_ = m.taking.elder.Close()
	}
	for _, r := range append(m.reread.asked, m.reread.next...) {
		r.Answer(control.Reply{Text: "the daemon has ended"})
	}
}

// dropStarted ends a master that was started while this one ended.
func (m *Master) dropStarted() {
	select {
	case r := <-m.reread.result:
		if r.peer != nil {
			_ = r.peer.Kill()
			_ = r.peer.Close()
		}
	default:
	}
}

package workerproc

import (
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

// shared is what the parts of a process have in common. cfg, id, d and log do not change once the
// process is assembled, so any goroutine may read them. The loop owns the rest.
type shared struct {
	cfg Config
	id  identity
	d   Deps
	log *zap.Logger

	life     *life
	link     *link
	troubles *troubles
	alarm    *alarm
	lease    *lease
	beatNow  bell // any goroutine may ring
	jobs     jobs // in hand; only threads adds and removes some
}

func newShared(cfg Config, d Deps) *shared {
	s := &shared{
		cfg: cfg, d: d, log: d.Log, life: newLife(), troubles: newTroubles(d.Log), alarm: newAlarm(),
		lease: newLease(cfg.LockDuration, d.LocksEnd), beatNow: newBell(), jobs: jobs{},
	}
	s.link = newLink(d.Conn, d.Log, s.troubles)
	return s
}

// identity is who this process is, from the master's welcome. It never changes.
type identity struct {
	proc        string // the process id
	master      string // the part of proc that names the master
	slot, slots int
	alone       bool // it runs one suspect
	// lead is how long a successor takes to start; 0 = unknown.
	lead time.Duration
}

func newIdentity(welcome proc.Message) identity {
	return identity{
		proc: welcome.Proc, master: masterOf(welcome.Proc), slot: welcome.Slot, slots: welcome.Slots,
		alone: welcome.Alone, lead: welcome.Lead,
	}
}

// life is the state of the process. The goroutine of Run owns all fields; others may read
// started once Run has begun.
type life struct {
	state   signals.State
	since   time.Time // when state was entered
	started time.Time // constant once Run has begun
	wanted  signals.State
	leaving bool // it has begun to leave and takes part in nothing any more
	// fatal, if not nil, ends the loop.
	fatal error
}

func newLife() *life { return &life{state: signals.Starting, wanted: signals.Running} }

func (l *life) running() bool { return l.state == signals.Running }

// goes reports whether the process drains or kills its jobs; retiring does not count.
func (l *life) goes() bool { return l.state == signals.Draining || l.state == signals.Killing }

func (l *life) welcome(s signals.State) {
	switch s {
	case signals.Waiting, signals.Paused, signals.Draining, signals.Killing:
		l.wanted = s
	default:
		l.wanted = signals.Running
	}
}

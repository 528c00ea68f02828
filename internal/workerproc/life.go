package workerproc

import (
	"time"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
)

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

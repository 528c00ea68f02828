package workerproc

import (
	"time"

	"github.com/resqued/resqued/internal/proc"
)

// A process that has used up its number of jobs would leave its place empty for as long
// as a start takes. So it tells its master a little before, and a successor is ready by
// then; see ahead.go of package master.

// ahead is what a process knows of its end, and of its beginning.
type ahead struct {
	told bool // that the end comes
	// before and since are how many jobs had begun at two moments: the pace is counted
	// from the earlier one, which is some starts of a process ago.
	before, since mark
}

type mark struct {
	at    time.Time
	begun int
}

// foresee tells the master when the jobs that are left will be used up in about the time
// in which a successor starts.
func (p *Process) foresee(now time.Time) {
	a, lead := &p.ahead, p.id.lead
	if a.told || lead <= 0 || p.id.alone {
		return
	}
	if a.before.at.IsZero() {
		a.before = mark{now, p.threads.begun}
		a.since = a.before
		return
	}
	n, took := p.threads.begun-a.before.begun, now.Sub(a.before.at)
	if now.Sub(a.since.at) >= 4*lead {
		a.before, a.since = a.since, mark{now, p.threads.begun}
	}
	if n < p.cfg.Threads && took < lead {
		return // that says little yet
	}
	// Half as long again, because starts differ.
	if float64(took)*float64(p.cfg.Quota-p.threads.begun) > 1.5*float64(lead)*float64(n) {
		return
	}
	a.told = true
	p.link.tell(proc.Message{Type: proc.Ends})
}

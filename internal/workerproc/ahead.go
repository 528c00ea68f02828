package workerproc

import (
	"time"

	"github.com/resqued/resqued/internal/sys/proc"
)

// A process that has used up its jobs would leave its slot empty while another one starts. So it
// tells its master a little earlier, and the successor is ready in time; see ahead.go of package
// master.

// ahead predicts the end of a process. The loop owns all fields.
type ahead struct {
	*shared
	told bool // the master knows
	// before and since are the jobs begun at two moments. The pace is measured from the earlier
	// one, some start times ago.
	before, since mark
}

type mark struct {
	at    time.Time
	begun int
}

// foresee asks for a successor when the remaining jobs last about as long as its start.
func (a *ahead) foresee(begun int, now time.Time) {
	lead := a.id.lead // how long a start takes
	if a.told || lead <= 0 || a.id.alone {
		return
	}
	if a.before.at.IsZero() {
		a.before = mark{now, begun}
		a.since = a.before
		return
	}
	n, took := begun-a.before.begun, now.Sub(a.before.at)
	if now.Sub(a.since.at) >= 4*lead {
		a.before, a.since = a.since, mark{now, begun}
	}
	if n < a.cfg.Threads && took < lead {
		return // too early to judge
	}
	// Half as long again, because start times vary.
	if float64(took)*float64(a.cfg.JobsPerFork-begun) > 1.5*float64(lead)*float64(n) {
		return
	}
	a.told = true
	a.link.tell(proc.Message{Type: proc.Ends})
}

package workerproc

import (
	"time"

	"github.com/resqued/resqued/internal/sys/proc"
)

// A process that has used up its number of jobs would leave its place empty for as long
// as a start takes. So it sends its master a message a little before, and a successor is ready by
// then; see ahead.go of package master.

// ahead foresees the end of a process. The loop owns all fields.
type ahead struct {
	jobsPerFork, threads int
	lead                 time.Duration // how long a start takes
	link                 *link

	told bool // that the end comes
	// before and since are how many jobs had begun at two moments: the pace is counted
	// from the earlier one, which is some starts of a process ago.
	before, since mark
}

func newAhead(cfg Config, id identity, link *link) *ahead {
	a := &ahead{jobsPerFork: cfg.JobsPerFork, threads: cfg.Threads, link: link}
	if !id.alone {
		a.lead = id.lead
	}
	return a
}

type mark struct {
	at    time.Time
	begun int
}

// foresee sends the master a message when the jobs that are left will be used up in about
// the time in which a successor starts.
func (a *ahead) foresee(begun int, now time.Time) {
	lead := a.lead
	if a.told || lead <= 0 {
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
	if n < a.threads && took < lead {
		return // that says little yet
	}
	// Half as long again, because starts differ.
	if float64(took)*float64(a.jobsPerFork-begun) > 1.5*float64(lead)*float64(n) {
		return
	}
	a.told = true
	a.link.tell(proc.Message{Type: proc.Ends})
}

package master

import (
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// deathPolicy says what becomes of the jobs of a dead worker process. registered is the policy
// with which the process has registered; this master's own only counts where that is gone.
type deathPolicy struct {
	maxDeaths  int
	registered store.Policy
	// classes are those that statistics tell apart.
	classes []string
	// failureLists: failures are recorded as Resque's multi-queue failure backend does.
	failureLists bool
}

// deathPolicy returns this master's own.
func (m *Master) deathPolicy() deathPolicy {
	return deathPolicy{maxDeaths: m.cfg.MaxDeaths, registered: m.cfg.Policy, classes: m.cfg.Classes, failureLists: m.cfg.FailureLists}
}

// final returns why a job may not run again after any death, or "".
func (p deathPolicy) final(job store.Reserved) string {
	switch {
	case p.atMostOnce(job):
		return store.OnceOnly
	case p.registered.Fail:
		return store.FailsOnly
	default:
		return ""
	}
}

// resumes reports whether a job is a slice of a long job, which counts its deaths itself.
func (p deathPolicy) resumes(job store.Reserved) bool { return p.listed(p.registered.Resumes, job) }

// back returns how a job goes back for which its process was ended. The lock of a class that is
// kept elsewhere stands until it expires: the job meets its own one, and would be dropped for it
// if its death were not counted.
func (p deathPolicy) back(job store.Reserved) store.Action {
	if p.listed(p.registered.Elsewhere, job) {
		return store.Requeue
	}
	return store.Back
}

// atMostOnce takes a class for what any of its names says: which of them the worker
// process knew is not known here.
func (p deathPolicy) atMostOnce(job store.Reserved) bool {
	return p.listed(p.registered.AtMostOnce, job)
}

func (p deathPolicy) listed(classes []string, job store.Reserved) bool {
	if len(classes) == 0 {
		return false
	}
	envelope, err := wire.Parse(job.Payload, 0)
	if err != nil {
		return false // it has no class, and no code of any runs for it
	}
	return wire.ClassIn(classes, envelope.Names()...)
}

// counted returns the name by which statistics count a job.
func (p deathPolicy) counted(job store.Reserved) string {
	if envelope, err := wire.Parse(job.Payload, 0); err == nil && p.listed(p.classes, job) {
		return envelope.Class
	}
	return "unknown"
}

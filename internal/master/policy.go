package master

import (
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// deathPolicy decides the fate of a dead worker process's jobs. registered is the policy that
// the process has registered, or this master's own if that is missing.
type deathPolicy struct {
	maxDeaths  int
	registered store.Policy
	// classes are the classes that statistics count by name.
	classes []string
	// failureLists: failures are recorded as Resque's multi-queue failure backend does.
	failureLists bool
}

func (m *Master) deathPolicy() deathPolicy {
	return deathPolicy{maxDeaths: m.cfg.MaxDeaths, registered: m.cfg.Policy, classes: m.cfg.Classes, failureLists: m.cfg.FailureLists}
}

// resumes reports whether a job is a slice of a long job, which counts its deaths itself.
func (p deathPolicy) resumes(job store.Reserved) bool { return store.Listed(p.registered.Resumes, job) }

// back returns how a job goes back if its process was ended for it. A class lock kept elsewhere
// lasts until it expires: the job meets its own lock, and would be dropped if its death were not
// counted.
func (p deathPolicy) back(job store.Reserved) store.Action {
	if store.Listed(p.registered.Elsewhere, job) {
		return store.Requeue
	}
	return store.Back
}

// atMostOnce reports whether any of the job's class names runs at most once: which one the
// worker process used is unknown.
func (p deathPolicy) atMostOnce(job store.Reserved) bool {
	return store.Listed(p.registered.AtMostOnce, job)
}

// counted returns the name under which statistics count a job.
func (p deathPolicy) counted(job store.Reserved) string {
	if envelope, err := wire.Parse(job.Payload, 0); err == nil && store.Listed(p.classes, job) {
		return envelope.Class
	}
	return "unknown"
}

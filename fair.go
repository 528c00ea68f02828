package resqued

import (
	"fmt"
	"maps"
)

// Fair has the tenants of a queue take turns; see Handlers.Fair.
type Fair struct {
	// Tenant returns whose a job is: a customer, an account. Of the job it has what Handlers.JobLockKey
	// has. It is called in worker processes before a job is taken, perhaps again and again, and must return
	// the same each time. Jobs for which it returns nothing, or panics, are those of one more tenant.
	Tenant func(job *Job) string
	// Weights are the shares of tenants: one of weight 4 begins four jobs while one of weight 1 begins one.
	// "*" stands for those that are not named; they have weight 1 if it is missing.
	Weights map[string]int
}

// Fair has the tenants of a queue take turns, "*" stands for all queues that are not named: as long as several of
// them have jobs waiting, each begins as many as its share. What the configuration says
// of a queue under the key fair counts more. Fair panics if there is no function.
func (h *Handlers) Fair(queue string, f Fair) {
	if f.Tenant == nil {
		panic(fmt.Sprintf("resqued: Fair of queue %q has no function", queue))
	}
	if h.fair == nil {
		h.fair = map[string]Fair{}
	}
	h.fair[queue] = f
}

// FairQueues returns what Fair was called with, by queue.
func (h *Handlers) FairQueues() map[string]Fair { return maps.Clone(h.fair) }

package resqued

import (
	"fmt"
	"maps"
)

// Fair makes the tenants of a queue take turns; see Handlers.Fair.
type Fair struct {
	// Tenant returns the tenant of a job, such as a customer or an account. It is called in
	// worker processes before a job is taken, possibly several times, and must return the same
	// result each time. Only Class, Queue, Args, Payload and the ID of the payload are set.
	// Jobs for which it returns "" or panics belong to one further tenant.
	Tenant func(job *Job) string
	// Weights are the shares of the tenants: one of weight 4 starts four jobs while one of
	// weight 1 starts one. "*" is the weight of all other tenants; default 1.
	Weights map[string]int
}

// Fair makes the tenants of a queue take turns: while several have jobs waiting, each starts
// its share of them. "*" is every queue that is not named. The configuration key fair of a
// queue takes precedence. Fair panics if f.Tenant is nil.
func (h *Handlers) Fair(queue string, f Fair) {
	if f.Tenant == nil {
		panic(fmt.Sprintf("resqued: Fair of queue %q has no function", queue))
	}
	if h.fair == nil {
		h.fair = map[string]Fair{}
	}
	h.fair[queue] = f
}

// FairQueues returns the arguments of all calls of Fair, by queue.
func (h *Handlers) FairQueues() map[string]Fair { return maps.Clone(h.fair) }

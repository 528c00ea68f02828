package handler

import "github.com/resqued/resqued"

// Copy returns all that is registered in h. edit, if not nil, may change the copy of a class.
func Copy(h *resqued.Handlers, edit func(c *resqued.Class)) *resqued.Handlers {
	copied := resqued.New()
	for _, name := range h.Classes() {
		class, _ := h.Lookup(name)
		c := *class
		if edit != nil {
			edit(&c)
		}
		copied.Register(c)
	}
	copied.Use(h.Middleware()...)
	copied.JobLockKey(h.JobLockKeyFunc())
	for _, hooks := range h.AllHooks() {
		copied.Hook(hooks)
	}
	for queue, fair := range h.FairQueues() {
		copied.Fair(queue, fair)
	}
	for _, limit := range h.Limits() {
		copied.Limit(limit)
	}
	return copied
}

// Package app assembles a daemon: from a configuration and a program's handlers it makes a
// master and the parts around it or, in a worker process, threads, locks and a store. It knows
// no command line; package cli starts it. No other package builds a logger.
package app

import (
	"os"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// Program describes the program that a daemon is started from.
type Program struct {
	// Name is the name by which the program was called.
	Name string
	// Version is shown in logs and in Redis.
	Version  string
	Handlers *resqued.Handlers
	// Demo adds the classes of "resqued dev" to those that can be enqueued.
	Demo bool
}

// Check returns config.Errors if a configuration does not fit the program's handlers. It
// completes the queues of schedules that leave them to their class.
func (p Program) Check(r *config.Resolved) error {
	if err := p.checkHandlers(r); err != nil {
		return err
	}
	return p.checkSchedules(r)
}

// checkHandlers refuses a class with two handlers: a worker process could not choose.
func (p Program) checkHandlers(r *config.Resolved) error {
	var twice config.Errors
	for _, class := range p.Handlers.Classes() {
		if _, ok := r.Handlers[class]; ok {
			key := "handlers." + class
			twice = append(twice, config.Error{
				Key: key, Source: r.Sources[key], Message: "the class is registered in Go too; remove one of them",
			})
		}
	}
	if len(twice) > 0 {
		return twice
	}
	return nil
}

// Warnings returns the warnings that need more than the configuration: missing programs of
// commands, variables that runners lack, low limits of this process, queues that it does not
// work, schedules without a handler, or no handler at all.
func (p Program) Warnings(r *config.Resolved) []config.Warning {
	warnings := append(config.CheckPrograms(r.Config), p.fewTasks(r, procfs.TaskLimits())...)
	warnings = append(warnings, littleMemory(r, procfs.MemoryLimit())...)
	warnings = append(warnings, p.leftOut(r)...)
	warnings = append(warnings, p.unhandled(r)...)
	warnings = append(warnings, unpassed(r.Config, os.Environ())...)
	if len(r.Handlers) == 0 && len(p.Handlers.Classes()) == 0 {
		warnings = append(warnings, config.Warning{
			Key: "handlers", Code: "no_handlers",
			Message: "No class has a handler: every job will be recorded as failed. For the classes of an application in Ruby, Python or Node" +
				" add --runner 'bundle exec resqued-runner config/environment', or runners: to the configuration file; for others handlers:.",
		})
	}
	return warnings
}

// QueueOf returns the queue that the configuration or the program names for a class, "" for
// none.
func (p Program) QueueOf(cfg config.Config, class string) string {
	if h, ok := cfg.Handlers[class]; ok && h.Queue != "" {
		return h.Queue
	}
	if c, ok := p.Classes(cfg).Lookup(class); ok {
		return c.Queue
	}
	return ""
}

// Classes returns all classes with a handler, in Go or in the configuration, for a client that
// needs their queues and locks.
func (p Program) Classes(cfg config.Config) *resqued.Handlers {
	h := handler.Copy(p.Registry(), nil)
	for name, c := range Commands(cfg) {
		if taken, ok := h.Lookup(name); !ok || taken.Name != name { // else a demo class
			h.Register(c)
		}
	}
	return h
}

// Registry returns the program's handlers in Go, with Demo including the demo classes.
func (p Program) Registry() *resqued.Handlers {
	if p.Demo {
		return withDemo(p.Handlers)
	}
	return p.Handlers
}

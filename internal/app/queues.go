package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector"
)

// ClassQueues returns the queues of the program's own classes, for a configuration that names
// none.
func (p Program) ClassQueues() []config.ClassQueues {
	var all []config.ClassQueues
	for _, name := range p.Handlers.Classes() {
		class, _ := p.Handlers.Lookup(name)
		all = append(all, config.ClassQueues{Class: name, Queues: queuesOf(class)})
	}
	return all
}

func queuesOf(c *resqued.Class) []string {
	return slices.Compact(slices.DeleteFunc([]string{c.Queue, c.FurtherQueue}, func(q string) bool { return q == "" }))
}

func (p Program) leftOut(r *config.Resolved) []config.Warning {
	if len(r.Queues.Patterns) == 0 {
		return nil
	}
	classes := p.ClassQueues()
	for _, name := range slices.Sorted(maps.Keys(r.Handlers)) {
		classes = append(classes, config.ClassQueues{Class: name, Queues: r.Handlers[name].QueuesOf()})
	}
	var handlers, schedules []string
	for _, c := range classes {
		for _, q := range c.Queues {
			if !r.Works(q) && r.Home(q) {
				handlers = append(handlers, fmt.Sprintf("%s (%s)", q, c.Class))
			}
		}
	}
	for _, s := range r.Schedules {
		if s.Queue != "" && !r.Works(s.Queue) {
			schedules = append(schedules, fmt.Sprintf("%s (%s)", s.Queue, s.Name))
		}
	}
	var warnings []config.Warning
	warn := func(key, whose string, queues []string) {
		if len(queues) == 0 {
			return
		}
		if more := len(queues) - maxLeftOut; more > 0 {
			queues = append(queues[:maxLeftOut:maxLeftOut], fmt.Sprintf("%d more", more))
		}
		left := fmt.Sprintf("queues (%s) leaves out queues of %s", r.Sources["queues"], whose)
		if r.Sources["queues"].Kind == config.FromHandlers {
			left = "queues is not set, and no handler names queues of " + whose
		}
		warnings = append(warnings, config.Warning{Key: key, Code: "left_out", Message: fmt.Sprintf(
			"%s: %s. Add them, unless other workers take these jobs.", left, strings.Join(queues, ", "))})
	}
	warn("handlers", "handlers", handlers)
	warn("schedule", "schedules", schedules)
	return warnings
}

const maxLeftOut = 10

// FleetClasses are the classes that a running daemon has written to Redis.
type FleetClasses struct {
	// Names are the classes with a handler, and patterns. Whole: it has no others.
	Names  []string
	Whole  bool
	Queues map[string]string
}

// ClassesOf returns a daemon's classes from the settings that its master has written.
func ClassesOf(settings string) FleetClasses {
	var f fleet
	if json.Unmarshal([]byte(settings), &f) != nil {
		return FleetClasses{} // written by another version
	}
	c := FleetClasses{Whole: f.Classes != nil && !f.Some && len(f.Classes) <= maxClasses, Queues: f.ClassQueues}
	c.Names = slices.Sorted(maps.Keys(f.Classes))
	return c
}

// QueueOf returns the queue that the daemon names for a class, "" for none.
func (c FleetClasses) QueueOf(class string) string { return c.Queues[selector.Choose(c.Names, class)] }

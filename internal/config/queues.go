package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/selector"
)

// ClassQueues are the queues of one of the program's own classes.
type ClassQueues struct {
	Class string
	// Queues is empty if jobs are enqueued with an explicit queue.
	Queues []string
}

// QueuesOf returns the queues that a class's handler names, without repetition.
func (h Handler) QueuesOf() []string {
	queues := []string{h.Queue}
	if h.LongJob != nil {
		queues = append(queues, h.LongJob.RequeueQueue)
	}
	return slices.Compact(slices.DeleteFunc(queues, func(q string) bool { return q == "" }))
}

// useHandlerQueues works the handlers' queues, if nothing else names any: those of the file's
// handlers, the program's classes, then schedules whose class has a handler.
func (l *loader) useHandlerQueues() bool {
	var spec selector.Spec
	var homeless []string
	known := map[string]bool{}
	add := func(class string, queues []string) {
		known[class] = true
		if len(queues) == 0 {
			homeless = append(homeless, class)
		}
		for _, q := range queues {
			// Not parsed as an entry: a name may look like one with a cap.
			if p := (selector.Pattern{Text: q, Source: q}); !slices.Contains(spec.Patterns, p) {
				spec.Patterns = append(spec.Patterns, p)
			}
		}
	}
	for _, class := range byLine(l.file.handlers, l.file, "handlers.") {
		add(class, l.file.handlers[class].QueuesOf())
	}
	for _, c := range l.options.Classes {
		add(c.Class, c.Queues)
	}
	for _, name := range byLine(l.file.schedules, l.file, "schedule.") {
		if s := l.file.schedules[name]; selector.Choose(slices.Collect(maps.Keys(known)), s.Class) != "" && s.Queue != "" {
			add(s.Class, []string{s.Queue})
			homeless = slices.DeleteFunc(homeless, func(class string) bool { return class == s.Class })
		}
	}
	if len(spec.Patterns) == 0 {
		return false
	}
	l.result.Queues = spec
	l.result.Sources["queues"] = Source{Kind: FromHandlers}
	if len(homeless) > 0 && l.options.NeedQueues {
		l.warn("queues", "no_queue", fmt.Sprintf(
			"Nothing names a queue for %s: only the queues of the other handlers are worked (%s). Set its queue, or queues: for all.",
			strings.Join(homeless, ", "), spec))
	}
	return true
}

// byLine returns names in the order of the file.
func byLine[T any](all map[string]T, f *file, section string) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.lines[section+a], f.lines[section+b]), strings.Compare(a, b))
	})
}

// Works reports whether this configuration's daemon takes jobs from a queue.
func (c Config) Works(queue string) bool {
	return slices.ContainsFunc(c.Queues.Resolve([]string{queue}), func(chosen selector.Choice) bool { return chosen.Queue == queue })
}

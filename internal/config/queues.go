package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector"
)

// ClassQueues are the queues in which jobs of one of the program's own classes wait.
type ClassQueues struct {
	Class string
	// Queues may be empty: who enqueues names the queue.
	Queues []string
}

// QueuesOf returns the queues that the handler of a class names, without repetition.
func (h Handler) QueuesOf() []string {
	queues := []string{h.Queue}
	if h.LongJob != nil {
		queues = append(queues, h.LongJob.RequeueQueue)
	}
	return slices.Compact(slices.DeleteFunc(queues, func(q string) bool { return q == "" }))
}

// useHandlerQueues has the queues of the handlers worked, as nothing else names any: those of
// the file's handlers in the order of the file, those of the program's classes, and those of
// schedules whose class has a handler. It reports whether there are any.
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
			// A pattern of its own, not the text of an entry: a name may look like one with a cap.
			if p := (selector.Pattern{Text: q, Source: q}); !slices.Contains(spec.Patterns, p) {
				spec.Patterns = append(spec.Patterns, p)
			}
		}
	}
	for _, class := range byLine(l.file.handlers, l.file.classes) {
		add(class, l.file.handlers[class].QueuesOf())
	}
	for _, c := range l.options.Classes {
		add(c.Class, c.Queues)
	}
	for _, name := range byLine(l.file.schedules, l.file.scheduled) {
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

// byLine returns the names of what a file has, in its order.
func byLine[T Handler | schedule.Definition](all map[string]T, lines map[string]int) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(lines[a], lines[b]), strings.Compare(a, b))
	})
}

// Works reports whether the daemon of this configuration takes jobs from a queue.
func (c Config) Works(queue string) bool {
	return slices.ContainsFunc(c.Queues.Resolve([]string{queue}), func(chosen selector.Choice) bool { return chosen.Queue == queue })
}

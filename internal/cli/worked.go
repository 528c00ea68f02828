package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// workedTimeout is how long a verb that has pushed jobs looks for their workers.
	workedTimeout = 2 * time.Second
	// maxUnworked limits the queues, and the classes, in warnings.
	maxUnworked = 5
	// maxClassesOf limits the classes of a queue that are checked: input may name any number.
	maxClassesOf = 1000
)

// pushed are queues to which a verb has pushed jobs, with the known classes of the jobs.
type pushed map[string]map[string]bool

func (p pushed) add(queue, class string) {
	if p[queue] == nil {
		p[queue] = map[string]bool{}
	}
	if class != "" && len(p[queue]) < maxClassesOf {
		p[queue][class] = true
	}
}

// worked is what is known about the workers of pushed jobs.
type worked struct {
	// Worked reports whether workers take jobs from all of the queues; nil = unknown.
	Worked *bool `json:"worked"`
	// Warnings are about probable mistakes, in the order of the queues.
	Warnings []string `json:"warnings"`
}

// workedIn is workedBy for jobs of several stores.
func (a *cli) workedIn(ctx context.Context, r *config.Resolved, jobs pushed) worked {
	if len(r.Stores) == 0 {
		return a.workedBy(ctx, r.Config, jobs)
	}
	sum, all, known := worked{Warnings: []string{}}, true, true
	for _, one := range r.Stores {
		some := pushed{}
		for queue, classes := range jobs {
			if one.Home(queue) {
				some[queue] = classes
			}
		}
		if len(some) == 0 {
			continue
		}
		w := a.workedBy(ctx, one.Config, some)
		for _, text := range w.Warnings {
			sum.Warnings = append(sum.Warnings, "store "+one.Store+": "+text)
		}
		if w.Worked == nil {
			known = false
		} else {
			all = all && *w.Worked
		}
	}
	if known {
		sum.Worked = &all
	}
	return sum
}

// workedBy finds the workers of pushed jobs. As these are already pushed, an outage or a missing
// right is not a failure: then nothing is known.
func (a *cli) workedBy(ctx context.Context, cfg config.Config, jobs pushed) worked {
	w := worked{Warnings: []string{}}
	if len(jobs) == 0 || a.flags.output != outJSON && a.flags.quiet {
		return w
	}
	c, err := coverage(ctx, cfg)
	if err != nil {
		return w
	}
	all := true
	if !c.Any() {
		all = false
		w.Warnings = append(w.Warnings, "no worker runs; what was pushed waits for one: "+a.again()+" work")
	}
	known, whole := a.knownClasses(cfg, c)
	unworked, strange := 0, map[string]bool{}
	for _, queue := range slices.Sorted(maps.Keys(jobs)) {
		if c.Any() && !c.Works(queue) {
			all = false
			if unworked++; unworked <= maxUnworked {
				w.Warnings = append(w.Warnings, fmt.Sprintf("no worker works queue %s%s", wire.Printable(queue, 200), meant(queue, c.Names())))
			}
		}
		if c.WorksForeign(queue) { // which may know other classes
			continue
		}
		for _, class := range slices.Sorted(maps.Keys(jobs[queue])) {
			if wire.ClassIn(known, class) {
				continue
			}
			if guess := meant(class, known); (guess != "" || whole) && !strange[class] {
				if strange[class] = true; len(strange) <= maxUnworked {
					w.Warnings = append(w.Warnings, fmt.Sprintf("no handler is known for class %s%s", wire.Printable(class, 200), guess))
				}
			}
		}
	}
	if more := unworked - maxUnworked; more > 0 {
		w.Warnings = append(w.Warnings, fmt.Sprintf("no worker works %d more queues", more))
	}
	if more := len(strange) - maxUnworked; more > 0 {
		w.Warnings = append(w.Warnings, fmt.Sprintf("no handler is known for %d more classes", more))
	}
	w.Worked = &all
	return w
}

// meant returns a question with the nearest known name, or "".
func meant(name string, known []string) string {
	if guess := nearest(name, known); guess != "" {
		return fmt.Sprintf(" (did you mean %s?)", wire.Printable(guess, 200))
	}
	return ""
}

// warnUnworked prints workedBy's warnings to standard error. A missing worker is only a note,
// since jobs may be pushed before workers start.
func (out *output) warnUnworked(w worked) {
	if out.flags.output == outJSON { // they are part of the result
		return
	}
	for _, text := range w.Warnings {
		if strings.HasPrefix(text, "no worker runs") {
			out.note("%s", text)
			continue
		}
		out.warn("%s", text)
	}
}

// coverage reads from Redis which queues are worked.
func coverage(ctx context.Context, cfg config.Config) (*view.Coverage, error) {
	ctx, cancel := context.WithTimeout(ctx, workedTimeout)
	defer cancel()
	s, err := app.OpenStore(cfg, "resqued-cli")
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return view.Covers(ctx, s)
}

// knownClasses returns the classes with a handler in this program, its configuration or a running
// daemon. whole reports whether other classes probably have none: each daemon has published all
// its classes, or no daemon runs and this configuration has handlers.
func (a *cli) knownClasses(cfg config.Config, c *view.Coverage) (known []string, whole bool) {
	known = a.program().Classes(cfg).Classes()
	whole = len(cfg.Handlers)+len(a.handlers.Classes()) > 0
	all := true // each daemon has published all its classes
	for _, fields := range c.Masters {
		classes := app.ClassesOf(fields["settings"])
		known = append(known, classes.Names...)
		whole, all = whole || len(classes.Names) > 0, all && classes.Whole
	}
	slices.Sort(known) // so that the guess is always the same
	return slices.Compact(known), whole && all
}

// queueOf returns the queue of a class from the configuration or the program, else from a running
// daemon. With --dev any worked queue will do. The error is a problem that says what to do.
func (a *cli) queueOf(ctx context.Context, cfg config.Config, class string) (string, error) {
	names := wire.ClassNames(class)
	for _, name := range names {
		if queue := a.program().QueueOf(cfg, name); queue != "" {
			return queue, nil
		}
	}
	p := noQueueOf(class)
	known := a.program().Classes(cfg).Classes()
	if c, err := coverage(ctx, cfg); err == nil {
		queues := map[string]bool{}
		for _, fields := range c.Masters {
			classes := app.ClassesOf(fields["settings"])
			known = append(known, classes.Names...)
			for _, name := range names {
				if queue := classes.QueueOf(name); queue != "" {
					queues[queue] = true
					break
				}
			}
		}
		switch {
		case len(queues) == 1:
			return slices.Sorted(maps.Keys(queues))[0], nil
		case len(queues) > 1:
			return "", usage("Pass --queue NAME.", "daemons differ about the queue of class %q: %s",
				wire.Printable(class, 200), strings.Join(slices.Sorted(maps.Keys(queues)), ", "))
		}
		if worked := c.Names(); a.dev && !c.Works(devQueue) && len(worked) > 0 {
			return worked[0], nil
		}
	}
	if a.dev {
		return devQueue, nil
	}
	if guess := nearest(class, known); guess != "" && !slices.Contains(known, class) {
		p.hint = fmt.Sprintf("Did you mean %q? Or pass --queue NAME.", wire.Printable(guess, 200))
	}
	return "", p
}

func noQueueOf(class string) *problem {
	return usage("Pass --queue NAME, or set the class's queue in the handlers section of the configuration.",
		"no queue is known for class %q", wire.Printable(class, 200))
}

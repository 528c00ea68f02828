// Package view is what people look at: queues, running jobs, failures, workers, locks,
// schedules, long jobs and what is parked, as structs and the queries that fill them. A view
// joins what several keys in Redis say, names its state, and is filtered and sorted. It knows
// no command line, no page and no table: the command line prints views, and other programs
// may show them in another way. The JSON of a view is part of the command line's output.
package view

import (
	"fmt"
	"time"
)

const (
	// ShortID is how many characters of a digest or a random id are shown; a shorter
	// beginning finds it as well.
	ShortID = 12
	// MaxName is to how many bytes a name is cut in tables. Names that are cut are found
	// as they are shown.
	MaxName = 80
)

// NotFoundError is returned for a name that stands for nothing.
type NotFoundError struct {
	// Kind is what was looked for: "queue".
	Kind string
	Name string
	// Known are names that may have been meant.
	Known []string
}

// Error names what was not found.
func (e *NotFoundError) Error() string { return fmt.Sprintf("no %s %q", e.Kind, e.Name) }

// AmbiguousError is returned for a name that stands for more than one thing.
type AmbiguousError struct {
	// Kind is what was looked for: "failure".
	Kind string
	Name string
	// Matches are the whole names of what it may stand for.
	Matches []string
}

// Error says how many things the name may stand for.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q may be any of %d of kind %s", e.Name, len(e.Matches), e.Kind)
}

// seconds returns a duration in whole seconds, 0 for one that is negative.
func seconds(d time.Duration) int64 { return int64(max(0, d).Seconds()) }

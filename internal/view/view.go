// Package view is what people look at: queues, running jobs, failures, workers, locks, schedules,
// long jobs and parked payloads, as structs and the queries that fill them. A view joins several
// keys of Redis and names a state. It knows nothing of command lines, pages and tables. The JSON
// of views is part of the command line's output.
package view

import (
	"fmt"
	"slices"
	"time"
)

const (
	// ShortID is how many characters of digests and random ids are shown; fewer match too.
	ShortID = 12
	// MaxName limits names in tables, in bytes. Cut names are found as shown.
	MaxName = 80
)

// NotFoundError is returned for a name that matches nothing.
type NotFoundError struct {
	// Kind is what was looked for: "queue".
	Kind string
	Name string
	// Known are names to suggest.
	Known []string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no %s %q", e.Kind, e.Name) }

// AmbiguousError is returned for a name that matches several things.
type AmbiguousError struct {
	// Kind is what was looked for: "failure".
	Kind string
	Name string
	// Matches are their full names.
	Matches []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q may be any of %d of kind %s", e.Name, len(e.Matches), e.Kind)
}

// exactly returns the things with the given names, or a NotFoundError.
func exactly[T any](all []T, names []string, kind string, nameOf func(T) string) ([]T, error) {
	known := make([]string, len(all))
	for i, v := range all {
		known[i] = nameOf(v)
	}
	var picked []T
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, &NotFoundError{Kind: kind, Name: name, Known: known}
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// seconds returns a duration in whole seconds, at least 0.
func seconds(d time.Duration) int64 { return int64(max(0, d).Seconds()) }

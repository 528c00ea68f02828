package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/resqued/resqued/internal/wire"
)

const (
	// leastPart is the minimum length of an abbreviated job name.
	leastPart = 4
	// manyRuns is from how many jobs names are not abbreviated: comparing takes too long.
	manyRuns = 2000
)

// random matches ids whose prefixes are random: the Files.com fork's, and version 4 UUIDs.
// Sequential ids are not abbreviated, so that a listed name never comes to mean a later job.
var random = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{32}$|^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$`)
})

// shorten sets each job's shortest unique name.
func shorten(views []*Job) {
	for _, v := range views {
		names := []string{v.ID}
		if v.Run.Proc != "" {
			names = append(names, v.Run.String())
		}
		if len(views) > manyRuns {
			v.Name = names[len(names)-1]
			v.Short = v.Name
			continue
		}
		for _, name := range names {
			if v.Name = name; is(views, name, v) {
				break
			}
		}
		v.Short = v.Name
		part := ""
		switch {
		case v.Name == v.Run.String():
			// Start at the master's pid, which is unique together with its start time.
			if _, rest, ok := strings.Cut(v.Name, ":"); ok {
				_, part, _ = strings.Cut(rest, ":")
			}
		case random().MatchString(v.Name):
			part = v.Name[:ShortID]
		}
		if part != "" && is(views, part, v) {
			v.Short = part
		}
	}
}

// is reports whether a name matches v alone.
func is(views []*Job, name string, v *Job) bool {
	found := find(views, name)
	return len(found) == 1 && found[0] == v
}

// find returns the jobs that a name matches: the run with that name, else jobs with that id, else
// those whose id or run begins or ends with it.
func find(views []*Job, name string) []*Job {
	var exact, part []*Job
	for _, v := range views {
		run := ""
		if v.Run.Proc != "" {
			run = v.Run.String()
		}
		if run == name {
			return []*Job{v}
		}
		// An unprintable id may be given as shown.
		shown := wire.Printable(v.ID, 0)
		switch {
		case v.ID == name || shown == name || wire.Printable(v.ID, MaxName) == name:
			exact = append(exact, v)
		case len(name) < leastPart:
		case strings.HasPrefix(v.ID, name), strings.HasSuffix(v.ID, name), strings.HasPrefix(shown, name),
			strings.HasPrefix(run, name), strings.HasSuffix(run, name):
			part = append(part, v)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return part
}

// AmbiguousJobError is returned for a name that matches several running jobs.
type AmbiguousJobError struct {
	Name string
	Jobs []*Job
}

func (e *AmbiguousJobError) Error() string {
	return fmt.Sprintf("%q may be any of %d running jobs", e.Name, len(e.Jobs))
}

// FindJobs returns the jobs that names match, each once. The error is a NotFoundError or an
// AmbiguousJobError if a name does not match exactly one.
func FindJobs(views []*Job, names []string) ([]*Job, error) {
	var picked []*Job
	for _, name := range names {
		found := find(views, name)
		switch len(found) {
		case 1:
		case 0:
			known := make([]string, 0, 2*len(views))
			for _, v := range views {
				known = append(known, v.Short, v.Name)
			}
			return nil, &NotFoundError{Kind: "running job", Name: name, Known: known}
		default:
			return nil, &AmbiguousJobError{Name: name, Jobs: found}
		}
		if !slices.Contains(picked, found[0]) {
			picked = append(picked, found[0])
		}
	}
	return picked, nil
}

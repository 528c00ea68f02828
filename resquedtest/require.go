package resquedtest

import (
	"slices"
	"strings"
	"testing"
)

// Require returns the arguments of the first job of a class that waits and for which match
// returns true, in a queue or for its time; a nil match is any job. If there is none, it fails
// the test with a list of the jobs that wait. T is what the handler of the class takes.
//
//	resquedtest.Require(t, q, "Mail", func(m Mail) bool { return m.User == 42 })
func Require[T any](t testing.TB, q *Queues, class string, match func(args T) bool) T {
	t.Helper()
	args, found, unread := find(q, class, match)
	if !found {
		t.Fatalf("resquedtest: no such job of class %q waits.%s %s%s", class, q.unknown(class), q.waiting(), unread)
	}
	return args
}

// RequireNone fails the test if Require would find a job.
func RequireNone[T any](t testing.TB, q *Queues, class string, match func(args T) bool) {
	t.Helper()
	if _, found, _ := find(q, class, match); found {
		t.Fatalf("resquedtest: a job of class %q waits that must not. %s", class, q.waiting())
	}
}

// find returns the arguments of the first job that waits and matches, and what kept others
// from being looked at.
func find[T any](q *Queues, class string, match func(args T) bool) (args T, found bool, unread string) {
	q.tb.Helper()
	for _, job := range slices.Concat(q.Jobs(), q.Delayed()) {
		if job.Class != class {
			continue
		}
		var args T
		if err := job.Args.Decode(&args); err != nil {
			unread += "\nThe arguments of " + job.String() + ": " + err.Error()
			continue
		}
		if match == nil || match(args) {
			return args, true, ""
		}
	}
	return args, false, unread
}

// unknown says so of a class that has no handler: it may be misspelt.
func (q *Queues) unknown(class string) string {
	if _, ok := q.worker.set.Lookup(class); ok {
		return ""
	}
	return " No handler is registered for it; there are: " + strings.Join(q.worker.set.Classes(), ", ") + "."
}

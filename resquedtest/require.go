package resquedtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/selector"
)

// Require returns the arguments of the first waiting or delayed job whose class takes a T and
// for which match returns true; a nil match accepts any job. If there is none, it fails the
// test with a list of the waiting jobs. T is the type of arguments with which resqued.Handle
// registered the class. Require also fails the test if no class or several classes take a T;
// RequireClass names the class instead.
//
//	m := resquedtest.Require(t, q, func(m Mail) bool { return m.User == 42 })
func Require[T any](t testing.TB, q *Queues, match func(args T) bool) T {
	t.Helper()
	return RequireClass(t, q, classOf[T](t, q, "RequireClass"), match)
}

// RequireNone fails the test if Require would find a job. It also fails the test if no class or
// several classes take a T; RequireNoneClass names the class instead.
func RequireNone[T any](t testing.TB, q *Queues, match func(args T) bool) {
	t.Helper()
	RequireNoneClass(t, q, classOf[T](t, q, "RequireNoneClass"), match)
}

// RequireClass is Require for a class by name. It is for a class that has no handler here, is a
// command, or is one of several that take a T. T must be resqued.Args or the type that the
// handler takes; arguments are decoded as by resqued.Args.Decode.
//
//	resquedtest.RequireClass(t, q, "Resize", func(id int) bool { return id == 7 })
func RequireClass[T any](t testing.TB, q *Queues, class string, match func(args T) bool) T {
	t.Helper()
	q.checkType(t, class, reflect.TypeFor[T]())
	args, found, unread := find(q, class, match)
	if !found {
		t.Fatalf("resquedtest: no such job of class %q waits.%s %s%s", class, q.unknown(class), q.waiting(), unread)
	}
	return args
}

// RequireNoneClass fails the test if RequireClass would find a job.
func RequireNoneClass[T any](t testing.TB, q *Queues, class string, match func(args T) bool) {
	t.Helper()
	q.checkType(t, class, reflect.TypeFor[T]())
	if _, found, _ := find(q, class, match); found {
		t.Fatalf("resquedtest: a job of class %q waits that must not. %s", class, q.waiting())
	}
}

// classOf returns the name of the class that takes a T. If there is not exactly one, it fails
// the test and names the function to use instead.
func classOf[T any](t testing.TB, q *Queues, instead string) string {
	t.Helper()
	want := reflect.TypeFor[T]()
	var names []string
	for _, name := range q.handlers.Classes() {
		if class, _ := q.handlers.Lookup(name); jobctx.ArgsOf(class) == want && !selector.IsPattern(name) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		t.Fatalf("resquedtest: no class takes %s: name the class (%s)", want, instead)
	case 1:
	default:
		t.Fatalf("resquedtest: several classes take %s (%s): name one (%s)", want, strings.Join(names, ", "), instead)
	}
	return names[0]
}

// checkType fails the test if the handler of a class takes another type.
func (q *Queues) checkType(t testing.TB, name string, asked reflect.Type) {
	t.Helper()
	class, ok := q.handlers.Lookup(name)
	if !ok || asked == reflect.TypeFor[resqued.Args]() {
		return
	}
	if takes := jobctx.ArgsOf(class); takes != nil && takes != asked {
		t.Fatalf("resquedtest: class %q takes %s, not %s", name, takes, asked)
	}
}

// find returns the arguments of the first waiting job that matches. unread says which arguments
// could not be decoded.
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

// unknown returns a hint if a class has no handler: its name may be misspelled.
func (q *Queues) unknown(class string) string {
	if _, ok := q.worker.set.Lookup(class); ok {
		return ""
	}
	return " No handler is registered for it; there are: " + strings.Join(q.worker.set.Classes(), ", ") + "."
}

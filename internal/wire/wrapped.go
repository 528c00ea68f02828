package wire

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued"
)

const (
	// wrapperSuffix ends the class that an adapter of Active Job puts around each job, such as
	// ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper.
	wrapperSuffix = "::JobWrapper"
	// mailDelivery ends the classes of Active Job that deliver the mail of a method of a mailer.
	mailDelivery = "DeliveryJob"
)

// ActiveJob returns the job that a class wraps whose arguments are a JSON array, whatever the name
// of the class. Without Wrappers, it wraps none.
func ActiveJob(class string, args []byte) Envelope {
	e := Envelope{Class: class}
	if bytes.Contains(args, []byte(`"job_class"`)) && json.Valid(args) {
		e.Args, _ = elements(bytes.TrimSpace(args))
		e.unwrap()
	}
	return e
}

// unwrap replaces the class and the arguments of an Active Job's wrapper by its job's own. A
// payload whose only argument is not such a job keeps its own class.
func (e *Envelope) unwrap() {
	if len(e.Args) != 1 {
		return
	}
	var (
		class, id          string
		args               resqued.Args
		isList             bool
		enqueued, schedule time.Time
	)
	s := scanner{data: e.Args[0]}
	if s.peek() != '{' {
		return
	}
	s.pos++
	for more := !s.emptyObject(); more; {
		key, _ := s.key()
		start := s.pos
		s.value(1)
		raw := s.data[start:s.pos]
		switch string(key) {
		case "job_class":
			class = textOf(raw)
		case "job_id":
			id = textOf(raw)
		case "arguments":
			args, isList = elements(raw)
		case "enqueued_at":
			enqueued = activeJobTime(raw)
		case "scheduled_at":
			schedule = activeJobTime(raw)
		}
		more, _ = s.next('}')
	}
	if class == "" || !isList {
		return
	}
	if e.ID == "" {
		e.ID = id
	}
	if e.EnqueuedAt.IsZero() {
		// A delayed job begins to wait in its queue when it is due.
		if e.EnqueuedAt = enqueued; schedule.After(enqueued) {
			e.EnqueuedAt = schedule
		}
	}
	e.WrapperArgs = e.Args
	e.Class, e.Wrappers = named(class, args, e.Class)
	e.Args = args
}

// Named returns the name and the wrappers of an Active Job as Parse does, by its class and its
// arguments, a JSON array. If that has been cut, mail has the name of its class.
func Named(class string, args []byte, wrapper string) (name string, wrappers []string) {
	if !json.Valid(args) {
		return class, []string{wrapper}
	}
	list, _ := elements(args)
	return named(class, list, wrapper)
}

func named(class string, args resqued.Args, wrapper string) (name string, wrappers []string) {
	if mail := mailOf(class, args); mail != "" {
		return mail, []string{class, wrapper}
	}
	return class, []string{wrapper}
}

// Wrapper returns the class that the payload has; empty if that is Class.
func (e Envelope) Wrapper() string {
	if len(e.Wrappers) == 0 {
		return ""
	}
	return e.Wrappers[len(e.Wrappers)-1]
}

// As returns the class and the arguments of a job for code that is registered under a name. For a
// wrapper's name they are the payload's own.
func (e Envelope) As(registered string) (class string, args resqued.Args) {
	if wrapper := e.Wrapper(); wrapper != "" && registered == wrapper {
		return wrapper, e.WrapperArgs
	}
	return e.Class, e.Args
}

// Is reports whether a job is of a class: its own, or one that wraps it.
func (e Envelope) Is(class string) bool {
	return e.Class == class || slices.Contains(e.Wrappers, class)
}

// Names returns the names of a job's class: its own, then those of its wrappers, inside out.
func (e Envelope) Names() []string { return append([]string{e.Class}, e.Wrappers...) }

// mailOf names the mail that a job delivers as Ruby does, such as UserMailer#welcome.
func mailOf(class string, args resqued.Args) string {
	if !strings.HasPrefix(class, "ActionMailer::") || !strings.HasSuffix(class, mailDelivery) || len(args) < 2 {
		return ""
	}
	mailer, method := textOf(args[0]), textOf(args[1])
	if mailer == "" || method == "" {
		return ""
	}
	return mailer + "#" + method
}

// elements returns the elements of an array that has been scanned; false for another value.
func elements(raw []byte) (resqued.Args, bool) {
	var e Envelope
	s := scanner{data: raw}
	if s.peek() != '[' {
		return nil, false
	}
	e.scanArgs(&s)
	return e.Args, true
}

// activeJobTime reads a time as Active Job writes it: ISO 8601, or seconds since 1970.
func activeJobTime(raw []byte) time.Time {
	text := textOf(raw)
	if text == "" {
		return epoch(raw)
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 {
		return time.Time{}
	}
	return t
}

// record is an argument that is a record of Active Record, as Active Job writes it.
var record = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{"_aj_globalid":"gid://[^/"\\]+/([^"\\]+)"\}`)
})

// ShortArgs returns arguments as people read them: of a record only the model and the id.
func ShortArgs(args string) string { return record().ReplaceAllString(args, "$1") }

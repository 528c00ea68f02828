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
	// wrapperSuffix ends the class that an Active Job adapter wraps around each job, such as
	// ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper.
	wrapperSuffix = "::JobWrapper"
	// mailDelivery ends the Active Job classes that deliver a mailer's mail.
	mailDelivery = "DeliveryJob"
)

// ActiveJob returns the job wrapped by a class with these arguments, a JSON array, whatever the
// class's name. Without Wrappers in the result, there is none.
func ActiveJob(class string, args []byte) Envelope {
	e := Envelope{Class: class}
	if bytes.Contains(args, []byte(`"job_class"`)) && json.Valid(args) {
		e.Args, _ = elements(bytes.TrimSpace(args))
		e.unwrap()
	}
	return e
}

// unwrap replaces the class and arguments of an Active Job's wrapper by the job's own. Without such a
// job as the only argument, it changes nothing.
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
	for more := !s.empty('}'); more; {
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
		// A delayed job starts to wait in its queue when it is due.
		if e.EnqueuedAt = enqueued; schedule.After(enqueued) {
			e.EnqueuedAt = schedule
		}
	}
	e.WrapperArgs = e.Args
	e.Class, e.Wrappers = named(class, args, e.Class)
	e.Args = args
}

// Named returns the name and the wrappers of an Active Job as Parse does, from its class and its
// arguments, a JSON array. If the array was cut, a mail is named by its class.
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

// Wrapper returns the payload's class; empty if that is Class.
func (e Envelope) Wrapper() string {
	if len(e.Wrappers) == 0 {
		return ""
	}
	return e.Wrappers[len(e.Wrappers)-1]
}

// As returns the class and arguments of a job for code registered under a name; for a wrapper's name,
// the payload's own.
func (e Envelope) As(registered string) (class string, args resqued.Args) {
	if wrapper := e.Wrapper(); wrapper != "" && registered == wrapper {
		return wrapper, e.WrapperArgs
	}
	return e.Class, e.Args
}

// Is reports whether class is the job's own or one of its wrappers.
func (e Envelope) Is(class string) bool {
	return e.Class == class || slices.Contains(e.Wrappers, class)
}

// Names returns the job's class, then its wrappers, inside out.
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

// elements returns the elements of a scanned array; false for another value.
func elements(raw []byte) (resqued.Args, bool) {
	var e Envelope
	s := scanner{data: raw}
	if s.peek() != '[' {
		return nil, false
	}
	e.scanArgs(&s)
	return e.Args, true
}

// activeJobTime reads Active Job's times: ISO 8601, or seconds since 1970.
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

// record matches an Active Record argument as Active Job writes it.
var record = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{"_aj_globalid":"gid://[^/"\\]+/([^"\\]+)"\}`)
})

// ShortArgs returns arguments for people: a record is shortened to its model and id.
func ShortArgs(args string) string { return record().ReplaceAllString(args, "$1") }

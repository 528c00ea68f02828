// Package wire holds the data formats that resqued shares with other programs on the same Redis:
// job payloads, failure records, worker ids and Resque's time formats. It reads strictly, because a
// payload that two programs understand differently is a job run wrongly. It writes what Ruby's
// Resque would write.
//
// Payloads are never re-encoded: Parse returns slices of them.
package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued"
)

// excerptLen bounds the part of a bad payload in a message, in bytes.
const excerptLen = 120

// Envelope is the part of a payload that resqued reads. Other keys are ignored, but kept, as a
// payload moves with its bytes unchanged.
//
// An Active Job is the only argument of a wrapper class. Class, Args, ID and EnqueuedAt are then
// the job's own.
type Envelope struct {
	Class string
	// Args are the raw JSON of the arguments, slices of the payload; nil if "args" is missing,
	// null or empty.
	Args resqued.Args
	// Wrappers are the classes around an Active Job, inside out; the last is the payload's. Settings
	// of a wrapper apply if Class has none. Mail is UserMailer#welcome in
	// ActionMailer::MailDeliveryJob in the adapter's class.
	Wrappers []string
	// WrapperArgs are the arguments of the last wrapper.
	WrapperArgs resqued.Args
	// ID is the payload's "id" if it is a string (the Files.com fork), or an Active Job's id.
	ID string
	// Generation counts retries in the Files.com fork; 0 = missing.
	Generation int
	// EnqueuedAt is the payload's "enqueued_at" (epoch seconds) or an Active Job's; for a delayed
	// one, when it was due. It is zero if missing or not a sensible time.
	EnqueuedAt time.Time
}

// InvalidError is why bytes are not a payload. Such a job is failed, never run.
type InvalidError struct {
	// Reason is a clause such as `"args" is an object, not an array`.
	Reason string
	// Excerpt is the start of the payload, bounded and safe to print.
	Excerpt string
}

func (e *InvalidError) Error() string {
	return "invalid payload: " + e.Reason + ": " + e.Excerpt
}

// Exception returns the name under which the failure is recorded.
func (e *InvalidError) Exception() string { return invalidClass }

// The keys that Parse reads, as indexes into keyNames.
const (
	keyClass = iota
	keyArgs
	keyID
	keyGeneration
	keyEnqueuedAt
	keyCount
)

var keyNames = [keyCount]string{"class", "args", "id", "generation", "enqueued_at"}

// Parse reads a payload of at most max bytes (0 = no limit). It rejects anything that another JSON
// reader could understand differently with an *InvalidError: repeated keys, both "CLASS" and
// "class", invalid UTF-8, unpaired surrogates, nesting deeper than 100 (Ruby's limit).
func Parse(payload []byte, max int64) (Envelope, error) {
	var e Envelope
	if max > 0 && int64(len(payload)) > max {
		return e, &InvalidError{
			Reason:  fmt.Sprintf("%d bytes are more than the %d that max_payload allows", len(payload), max),
			Excerpt: excerpt(payload),
		}
	}
	s := scanner{data: payload}
	if !e.scan(&s) {
		return Envelope{}, &InvalidError{Reason: s.reason, Excerpt: excerpt(payload)}
	}
	return e, nil
}

func (e *Envelope) scan(s *scanner) bool {
	s.space()
	if !s.open() {
		return false
	}
	var seen keySet
	for more := !s.empty('}'); more; {
		key, ok := s.key()
		if !ok {
			return false
		}
		known, clash := seen.add(key)
		if clash != "" {
			return s.fail(clash)
		}
		start := s.pos
		if known == keyArgs {
			ok = e.scanArgs(s)
		} else {
			ok = s.value(2)
		}
		if !ok || !e.set(s, known, s.data[start:s.pos]) {
			return false
		}
		if more, ok = s.next('}'); !ok {
			return false
		}
	}
	if s.space(); s.pos < len(s.data) {
		return s.failf("%d bytes follow the object", len(s.data)-s.pos)
	}
	if !seen.has(keyClass) {
		return s.fail(`no "class"`)
	}
	if strings.HasSuffix(e.Class, wrapperSuffix) {
		e.unwrap()
	}
	return true
}

func (e *Envelope) set(s *scanner, known int, raw []byte) bool {
	switch known {
	case keyClass:
		if raw[0] != '"' {
			return s.failf(`"class" is %s, not a string`, kindOf(raw[0]))
		}
		if e.Class = unquote(raw); e.Class == "" {
			return s.fail(`"class" is empty`)
		}
	case keyID:
		if raw[0] == '"' {
			e.ID = unquote(raw)
		}
	case keyGeneration:
		// Zero if it is not an integer: it is only informative.
		if n, err := strconv.Atoi(string(raw)); err == nil {
			e.Generation = n
		}
	case keyEnqueuedAt:
		e.EnqueuedAt = epoch(raw)
	}
	return true
}

func (e *Envelope) scanArgs(s *scanner) bool {
	switch c := s.peek(); c {
	case '[':
	case 'n':
		return s.value(2)
	default:
		if !s.value(2) {
			return false
		}
		return s.failf(`"args" is %s, not an array`, kindOf(c))
	}
	s.pos++
	if s.empty(']') {
		return true
	}
	args := make(resqued.Args, 0, 4)
	for more := true; more; {
		s.space()
		start := s.pos
		if !s.value(3) {
			return false
		}
		args = append(args, json.RawMessage(s.data[start:s.pos:s.pos]))
		var ok bool
		if more, ok = s.next(']'); !ok {
			return false
		}
	}
	e.Args = args
	return true
}

// epoch reads a time in seconds since 1970, up to the year 9999.
func epoch(raw []byte) time.Time {
	if c := raw[0]; c < '0' || c > '9' {
		return time.Time{}
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || seconds <= 0 || seconds >= 253402300800 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

func excerpt(payload []byte) string {
	// Escapes only lengthen the text, so more bytes are never shown.
	if len(payload) > excerptLen+1 {
		payload = payload[:excerptLen+1]
	}
	return Printable(string(payload), excerptLen)
}

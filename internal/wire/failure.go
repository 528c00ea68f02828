package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// The limits of a failure record; a page that lists failures reads dozens at a time.
const (
	maxExceptionText = 1 << 10  // bytes of an exception's name
	maxErrorText     = 64 << 10 // bytes of an error's text
	maxFrameText     = 4 << 10  // bytes of one line of a backtrace
	maxFrames        = 250
	maxFramesText    = 256 << 10 // bytes of all of them, as JSON
)

// Failure is one record of the failed list.
type Failure struct {
	// FailedAt is in UTC, to the second. It is zero if the time or its zone is unknown; see Between.
	FailedAt time.Time
	// Payload is the job's payload. Bytes that are not a payload are written as an object of
	// class Resqued::InvalidPayload with their base64 as argument.
	Payload   []byte
	Exception string
	Error     string
	Backtrace []string
	// Worker is the id of the worker, Queue the name of the queue.
	Worker, Queue string
	// Attempts is how often a job with retries has run; 0 = it had none. Other programs' pages do
	// not know it.
	Attempts int
	// Bare writes FailedAt in its own zone and without the zone's name, as resque-retry does.
	Bare bool
	// RetriedAt is when the job was retried, as written in the record; empty = not retried.
	RetriedAt string

	earliest, latest time.Time
}

// Between returns the times between which the job certainly failed. They are equal unless the zone
// is unknown, and zero if nothing is known.
func (f Failure) Between() (earliest, latest time.Time) {
	if f.latest.IsZero() {
		return f.FailedAt, f.FailedAt
	}
	return f.earliest, f.latest
}

// Encode returns the record as Ruby's Resque writes it. It is always valid JSON: invalid UTF-8 is
// replaced, and long texts are cut.
func (f Failure) Encode() []byte {
	before, after := f.around(len(f.Payload))
	return append(appendPayload(before, f.Payload), after...)
}

// around returns the text before the payload, with that much spare room, and the text after it.
func (f Failure) around(room int) (before, after []byte) {
	b := make([]byte, 0, 64+room+256+min(len(f.Error), maxErrorText))
	b = append(b, `{"failed_at":`...)
	if f.Bare {
		b = AppendString(b, f.FailedAt.Format(layoutBare))
	} else {
		b = AppendString(b, FormatFail(f.FailedAt))
	}
	before = append(b, `,"payload":`...)
	b = append(make([]byte, 0, 256+min(len(f.Error), maxErrorText)), `,"exception":`...)
	b = AppendString(b, cut(f.Exception, maxExceptionText))
	b = append(b, `,"error":`...)
	b = AppendString(b, cut(f.Error, maxErrorText))
	b = append(b, `,"backtrace":[`...)
	frames := len(b)
	for i, frame := range f.Backtrace {
		at := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, cut(frame, maxFrameText))
		if i == maxFrames || len(b)-frames > maxFramesText {
			b = b[:at]
			break
		}
	}
	b = append(b, `],"worker":`...)
	b = AppendString(b, f.Worker)
	b = append(b, `,"queue":`...)
	b = AppendString(b, f.Queue)
	if f.Attempts > 0 {
		b = strconv.AppendInt(append(b, `,"attempts":`...), int64(f.Attempts), 10)
	}
	if f.RetriedAt != "" {
		b = append(b, `,"retried_at":`...)
		b = AppendString(b, f.RetriedAt)
	}
	return before, append(b, '}')
}

// ParseFailure reads a record of resqued, Ruby's Resque, the Files.com fork or node-resque. Fields
// that are missing, null or of another type stay empty; Payload is a slice of record.
func ParseFailure(record []byte) (Failure, error) { return parseFailure(record, true) }

// ParseFailureBrief is ParseFailure without the backtrace, for reading very many records.
func ParseFailureBrief(record []byte) (Failure, error) { return parseFailure(record, false) }

func parseFailure(record []byte, whole bool) (Failure, error) {
	if len(record) == 0 {
		// Ruby empties a record just before it removes it.
		return Failure{}, errors.New("failure record: it is empty, about to be removed")
	}
	fields, err := failureFields(record)
	if err != nil {
		return Failure{}, fmt.Errorf("failure record %s: %w", excerpt(record), err)
	}
	when := parseTime(fields[fieldFailedAt], time.Local)
	f := Failure{
		FailedAt: when.at, earliest: when.earliest, latest: when.latest,
		Payload:   fields[fieldPayload],
		Exception: textOf(fields[fieldException]),
		Error:     textOf(fields[fieldError]),
		Worker:    textOf(fields[fieldWorker]),
		Queue:     textOf(fields[fieldQueue]),
		RetriedAt: textOf(fields[fieldRetriedAt]),
	}
	if n := fields[fieldAttempts]; n != nil {
		_ = json.Unmarshal(n, &f.Attempts) // not a number: it stays 0
	}
	if !whole {
		return f, nil
	}
	var frames []any
	if json.Unmarshal(fields[fieldBacktrace], &frames) == nil {
		for _, frame := range frames {
			if line, ok := frame.(string); ok {
				f.Backtrace = append(f.Backtrace, line)
			}
		}
	}
	return f, nil
}

// The fields of a record, as indexes into fieldNames.
const (
	fieldFailedAt = iota
	fieldPayload
	fieldException
	fieldError
	fieldBacktrace
	fieldWorker
	fieldQueue
	fieldAttempts
	fieldRetriedAt
	fieldCount
)

var fieldNames = [fieldCount]string{"failed_at", "payload", "exception", "error", "backtrace", "worker", "queue", "attempts", "retried_at"}

type failureRaw [fieldCount][]byte

func (r *failureRaw) set(key string, value []byte) {
	if i := slices.Index(fieldNames[:], key); i >= 0 {
		r[i] = value
	}
}

// failureFields returns a record's raw fields; the last of equal keys counts. The scanner is many
// times faster than encoding/json, which reads what the scanner rejects: other programs' records
// are shown even if they contain invalid UTF-8.
func failureFields(record []byte) (fields failureRaw, err error) {
	s := scanner{data: record}
	if fields.scan(&s) {
		return fields, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(record, &all); err != nil {
		return fields, err
	}
	if all == nil {
		return fields, errors.New("it is null, not an object")
	}
	fields = failureRaw{}
	for key, value := range all {
		fields.set(key, value)
	}
	return fields, nil
}

func (r *failureRaw) scan(s *scanner) bool {
	if s.space(); !s.open() {
		return false
	}
	for more := !s.empty('}'); more; {
		key, ok := s.key()
		if !ok {
			return false
		}
		start := s.pos
		if !s.value(2) {
			return false
		}
		r.set(string(key), s.data[start:s.pos:s.pos])
		if more, ok = s.next('}'); !ok {
			return false
		}
	}
	s.space()
	return s.pos == len(s.data)
}

// textOf returns the text of a JSON string, or "" for another value.
func textOf(raw []byte) (text string) {
	switch {
	case len(raw) == 0 || raw[0] != '"':
	case bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw):
		return string(raw[1 : len(raw)-1])
	default:
		_ = json.Unmarshal(raw, &text) // it is known to be valid
	}
	return text
}

// Original returns the bytes that failed: Payload, or the bytes it wraps if they were not a payload.
func (f Failure) Original() []byte { return Unwrap(f.Payload) }

// Pushed returns the bytes to push when the job is retried: Original without "start_at", which a
// Ruby worker with resque-uniqueue appends when it takes a job. With it, the job would differ
// from its enqueued equals.
func (f Failure) Pushed() []byte {
	_, latest := f.Between()
	return cutStartAt(f.Original(), latest)
}

// Unwrap returns the bytes inside a payload of class Resqued::InvalidPayload, and any other payload
// unchanged. Ruby's page pushes such a payload when its record is retried there.
func Unwrap(payload []byte) []byte {
	for bytes.Contains(payload, []byte(invalidClass)) {
		e, err := Parse(payload, 0)
		if err != nil {
			break
		}
		raw, ok := e.Unwrap()
		if !ok {
			break
		}
		payload = raw
	}
	return payload
}

// Unwrap returns the bytes inside a payload of class Resqued::InvalidPayload; ok is false if there
// are none.
func (e Envelope) Unwrap() (raw []byte, ok bool) {
	if e.Class != invalidClass || len(e.Args) != 1 {
		return nil, false
	}
	var encoded string
	if json.Unmarshal(e.Args[0], &encoded) != nil {
		return nil, false
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return raw, err == nil
}

// firstStartAt is older than the gem; smaller numbers are not its times.
const firstStartAt = 1_000_000_000

// startAtSlack is how far the clock behind "start_at" may be ahead of the one behind "failed_at".
const startAtSlack = 24 * time.Hour

// cutStartAt removes exactly the member that resque-uniqueue appends: the last one, without spaces,
// with a time in seconds before the failure, or 0 if the gem knows none.
func cutStartAt(payload []byte, failedAt time.Time) []byte {
	const member = `,"start_at":`
	at := bytes.LastIndex(payload, []byte(member))
	if at < 0 || payload[len(payload)-1] != '}' {
		return payload
	}
	digits := payload[at+len(member) : len(payload)-1]
	seconds, err := strconv.ParseUint(string(digits), 10, 40)
	if err != nil || len(digits) != 1 && digits[0] == '0' || seconds != 0 && seconds < firstStartAt {
		return payload
	}
	if latest := failedAt.Add(startAtSlack); !failedAt.IsZero() && time.Unix(int64(seconds), 0).After(latest) { //nolint:gosec // of 40 bits
		return payload // a future time means something else
	}
	if _, err := Parse(payload, 0); err != nil {
		return payload // not a payload: the match may be anywhere
	}
	return append(payload[:at:at], '}')
}

// cut shortens a text to at most max bytes, between characters.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	const ellipsis = "…"
	end := max - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

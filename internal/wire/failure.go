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

// What a failure record holds at most; a page that lists failures reads dozens
// of them at a time.
const (
	maxExceptionText = 1 << 10  // bytes of an exception's name
	maxErrorText     = 64 << 10 // bytes of an error's text
	maxFrameText     = 4 << 10  // bytes of one line of a backtrace
	maxFrames        = 250
	maxFramesText    = 256 << 10 // bytes of all of them, as JSON
)

// Failure is one record of the failed list.
type Failure struct {
	// FailedAt is written to the second, in UTC. It is zero in a record whose time is not known,
	// or is of a zone that is not known; see Between.
	FailedAt time.Time
	// Payload is the job's payload. Bytes that are not a payload are written as an
	// object of class Resqued::InvalidPayload with the base64 of them as argument.
	Payload   []byte
	Exception string
	Error     string
	Backtrace []string
	// Worker is the id of the worker, Queue the name of the queue.
	Worker, Queue string
	// Attempts is how often a job has run that was allowed to run more than once; 0 = it
	// was not. Pages of others do not know it.
	Attempts int
	// Bare leaves the zone out of FailedAt and writes its own, as resque-retry does.
	Bare bool
	// RetriedAt is when the job was retried, as it stands there; empty if it was not.
	RetriedAt string

	earliest, latest time.Time
}

// Between returns the times between which the job of a record failed for certain. They are equal unless the zone of its time is not known, and zero if nothing is known.
func (f Failure) Between() (earliest, latest time.Time) {
	if f.latest.IsZero() {
		return f.FailedAt, f.FailedAt
	}
	return f.earliest, f.latest
}

// Encode returns the record as Ruby's Resque writes it. It is valid JSON
// whatever the fields hold: invalid UTF-8 is replaced, long texts are cut.
func (f Failure) Encode() []byte {
	before, after := f.around(len(f.Payload))
	return append(appendPayload(before, f.Payload), after...)
}

// around returns what stands before the payload, with room for that, and what behind.
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

// ParseFailure reads a record of resqued, Ruby's Resque, the Files.com fork or
// node-resque. Fields that are missing, null or of another type stay empty;
// Payload is a part of record.
func ParseFailure(record []byte) (Failure, error) { return parseFailure(record, true) }

// ParseFailureBrief is ParseFailure without the backtrace, for those who look at very many
// records.
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
		_ = json.Unmarshal(n, &f.Attempts) // another type is not a number: it stays 0
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

// failureFields returns the fields as they stand in a record; of equal keys the last one
// counts. The scanner does it many times faster than encoding/json, which reads what the
// scanner refuses: a record of others is shown even if it holds invalid UTF-8.
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
	for more := !s.emptyObject(); more; {
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

// textOf returns the text of a JSON string, and "" for any other value.
func textOf(raw []byte) (text string) {
	switch {
	case len(raw) == 0 || raw[0] != '"':
	case bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw):
		return string(raw[1 : len(raw)-1])
	default:
		_ = json.Unmarshal(raw, &text) // it was found to be valid
	}
	return text
}

// Original returns the bytes that failed: those of Payload, or those that it holds for a
// job that was not a payload.
func (f Failure) Original() []byte { return Unwrap(f.Payload) }

// Pushed returns the bytes that go back to the queue when the job is retried: Original,
// without the "start_at" that a Ruby worker with resque-uniqueue has added behind the last
// key when it took the job from its queue. With it the job would be another one than its
// equals that are enqueued.
func (f Failure) Pushed() []byte {
	_, latest := f.Between()
	return cutStartAt(f.Original(), latest)
}

// Unwrap returns the bytes that a payload of class Resqued::InvalidPayload holds, and any
// other payload as it is. Ruby's page pushes such a payload when a record of bytes that
// were not a payload is retried there.
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

// Unwrap returns the bytes that a payload of class Resqued::InvalidPayload holds; ok is
// false for one of another class, and for one that holds none.
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

// firstStartAt is older than the gem, so that smaller numbers are not times of it.
const firstStartAt = 1_000_000_000

// startAtSlack is how far the clock that wrote "start_at" may be ahead of the one that
// wrote "failed_at".
const startAtSlack = 24 * time.Hour

// cutStartAt cuts the member off that resque-uniqueue adds, and no other byte: the last
// one, written without spaces, of a time (seconds) before that at which the job failed, or
// of 0, where the gem knows none.
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
		return payload // a time ahead: it means something else
	}
	if _, err := Parse(payload, 0); err != nil {
		return payload // then these bytes may stand anywhere in it
	}
	return append(payload[:at:at], '}')
}

// cut shortens a text to at most max bytes, between two characters.
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

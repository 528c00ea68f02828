package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
	// FailedAt is written in its own zone, to the second.
	FailedAt time.Time
	// Payload is the job's payload. Bytes that are no payload are written as an
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
	// Bare leaves the zone out of FailedAt, as resque-retry does.
	Bare bool
	// RetriedAt is when somebody retried the job, as it stands there; empty if
	// nobody has.
	RetriedAt string
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
// Payload keeps its bytes.
func ParseFailure(record []byte) (Failure, error) {
	if len(record) == 0 {
		// Ruby empties a record just before it removes it.
		return Failure{}, errors.New("failure record: it is empty, about to be removed")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		return Failure{}, fmt.Errorf("failure record %s: %w", excerpt(record), err)
	}
	if fields == nil {
		return Failure{}, errors.New("failure record: it is null, not an object")
	}
	text := func(name string) (s string) {
		// Another type is no text: s stays empty.
		_ = json.Unmarshal(fields[name], &s)
		return s
	}
	f := Failure{
		FailedAt:  parseTime(text("failed_at")),
		Payload:   fields["payload"],
		Exception: text("exception"),
		Error:     text("error"),
		Worker:    text("worker"),
		Queue:     text("queue"),
		RetriedAt: text("retried_at"),
	}
	_ = json.Unmarshal(fields["attempts"], &f.Attempts) // as above
	var frames []any
	if json.Unmarshal(fields["backtrace"], &frames) == nil {
		for _, frame := range frames {
			if line, ok := frame.(string); ok {
				f.Backtrace = append(f.Backtrace, line)
			}
		}
	}
	return f, nil
}

// Original returns the bytes that were pushed: those of Payload, or those that
// it holds for a job that was no payload.
func (f Failure) Original() []byte {
	e, err := Parse(f.Payload, 0)
	if err != nil || e.Class != invalidClass {
		return f.Payload
	}
	var encoded string
	if e.Args.Decode(&encoded) != nil {
		return f.Payload
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return f.Payload
	}
	return raw
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

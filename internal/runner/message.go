package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cmdslice"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// Protocol is the version of docs/runner-protocol.md.
	Protocol = 1
	// maxAnswer bounds a line of a runner, in bytes.
	maxAnswer = 8 << 20
	// maxText and maxTrace bound what a failure says: bytes of its message, lines of its backtrace.
	maxText  = 64 << 10
	maxTrace = 500
)

// kind says what a line of a runner is.
type kind byte

// The kinds of lines.
const (
	unknown kind = iota
	hello
	done
	failed
	requeue
	discard
	progress
	refreshLock
	logLine
	report
	complaint
)

// ends reports whether a line of the kind ends its job.
func (k kind) ends() bool { return k == done || k == failed || k == requeue || k == discard }

// message is a line of a runner.
type message struct {
	kind kind
	// job is the number of the job; 0 = none.
	job int64
	// Of a failure: exception, text and backtrace. text is also why a job is discarded, the text of a
	// log line and of a complaint.
	exception, text string
	backtrace       []string
	after           time.Duration
	level           string
	// Of progress.
	of, total json.Number
	// line is that of a report; it belongs to the message.
	line []byte
	// hello is set in one.
	hello *greeting
}

// greeting is the first line of a runner, and of a template.
type greeting struct {
	Protocol    int      `json:"protocol"`
	Concurrency int      `json:"concurrency"`
	Language    string   `json:"language"`
	App         string   `json:"app"`
	Classes     []string `json:"classes"`
	Template    bool     `json:"template"`
}

// answer is a line of a runner as JSON has it.
type answer struct {
	Hello       *greeting       `json:"hello"`
	Done        *int64          `json:"done"`
	Failed      *int64          `json:"failed"`
	Requeue     *int64          `json:"requeue"`
	Discard     *int64          `json:"discard"`
	RefreshLock *int64          `json:"refresh_lock"`
	Exception   string          `json:"exception"`
	Message     json.RawMessage `json:"message"`
	Backtrace   []string        `json:"backtrace"`
	After       float64         `json:"after"`
	Why         string          `json:"why"`
	Error       *string         `json:"error"`
	Progress    *struct {
		Job   int64       `json:"job"`
		Done  json.Number `json:"done"`
		Total json.Number `json:"total"`
	} `json:"progress"`
	Log *struct {
		Job     int64  `json:"job"`
		Level   string `json:"level"`
		Message string `json:"message"`
	} `json:"log"`
	Report *struct {
		Job  int64           `json:"job"`
		Line json.RawMessage `json:"line"`
	} `json:"report"`
}

var donePrefix = []byte(`{"done":`)

// parse reads a line of a runner, without its line break.
func parse(line []byte) (message, error) {
	if rest, ok := bytes.CutPrefix(line, donePrefix); ok { // as nearly always
		if n, ok := number(bytes.TrimSuffix(rest, []byte("}"))); ok && len(line) == len(donePrefix)+len(rest) && rest[len(rest)-1] == '}' {
			return message{kind: done, job: n}, nil
		}
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return message{}, err
	}
	kinds := 0
	var m message
	job := func(k kind, n *int64) {
		if n != nil {
			kinds++
			m.kind, m.job = k, *n
		}
	}
	job(done, a.Done)
	job(failed, a.Failed)
	job(requeue, a.Requeue)
	job(discard, a.Discard)
	job(refreshLock, a.RefreshLock)
	if a.Hello != nil {
		kinds++
		m.kind, m.hello = hello, a.Hello
	}
	if p := a.Progress; p != nil {
		kinds++
		m.kind, m.job, m.of, m.total = progress, p.Job, p.Done, p.Total
	}
	if l := a.Log; l != nil {
		kinds++
		m.kind, m.job, m.level, m.text = logLine, l.Job, l.Level, l.Message
	}
	if r := a.Report; r != nil {
		kinds++
		m.kind, m.job, m.line = report, r.Job, r.Line
	}
	if a.Error != nil && kinds == 0 {
		kinds++
		m.kind, m.text = complaint, *a.Error
	}
	if kinds > 1 {
		return message{}, errors.New("it says two things at once")
	}
	switch m.kind {
	case failed:
		m.exception, m.text = cut(a.Exception, 1<<10), cut(textOf(a.Message), maxText)
		if len(a.Backtrace) > maxTrace {
			a.Backtrace = append(a.Backtrace[:maxTrace:maxTrace], fmt.Sprintf("… and %d more", len(a.Backtrace)-maxTrace))
		}
		m.backtrace = a.Backtrace
	case discard:
		m.text = cut(a.Why, maxText)
	case requeue:
		const most = 10 * 365 * 24 * time.Hour
		m.after = time.Duration(min(max(a.After, 0), most.Seconds()) * float64(time.Second))
	}
	return m, nil
}

// textOf returns what a message says; it should be a string.
func textOf(message json.RawMessage) string {
	var text string
	if json.Unmarshal(message, &text) == nil {
		return text
	}
	return string(message)
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// number parses a number of a few digits.
func number(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 15 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// appendJob appends the line by which a runner gets a job. The payload keeps its bytes.
func appendJob(b []byte, number int64, job *resqued.Job, s *cmdslice.Slice) []byte {
	b = strconv.AppendInt(append(b, `{"job":{"number":`...), number, 10)
	b = wire.AppendString(append(b, `,"id":`...), job.ID)
	b = wire.AppendString(append(b, `,"class":`...), job.Class)
	b = wire.AppendString(append(b, `,"queue":`...), job.Queue)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(job.Attempt), 10)
	b = append(b, `,"max_attempts":`...)
	if job.MaxAttempts > 0 {
		b = strconv.AppendInt(b, int64(job.MaxAttempts), 10)
	} else {
		b = append(b, "null"...)
	}
	b = strconv.AppendInt(append(b, `,"deaths":`...), int64(job.Deaths), 10)
	b = wire.AppendTime(append(b, `,"enqueued_at":`...), job.EnqueuedAt)
	b = wire.AppendTime(append(b, `,"deadline":`...), job.Deadline)
	b = wire.AppendString(append(b, `,"worker":`...), job.Worker)
	if job.LockKey != "" {
		b = wire.AppendString(append(b, `,"lock_key":`...), job.LockKey)
		b = strconv.AppendInt(append(b, `,"fence":`...), job.Fence(), 10)
	}
	if s != nil {
		b = appendSlice(b, s)
	}
	return append(appendPayload(b, job.Payload), "}}\n"...)
}

func appendSlice(b []byte, s *cmdslice.Slice) []byte {
	b = append(b, `,"args":[`...)
	for i, arg := range s.Args {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLine(b, arg)
	}
	b = wire.AppendString(append(b, `],"run":`...), s.Run)
	b = strconv.AppendInt(append(b, `,"slice":`...), s.Number, 10)
	b = strconv.AppendInt(append(b, `,"slice_fence":`...), s.Fence, 10)
	b = wire.AppendString(append(b, `,"message":`...), s.Message)
	return appendLine(append(b, `,"state":`...), s.State)
}

// appendPayload appends the payload as an object where it is one for every language, else as
// base64.
func appendPayload(b, payload []byte) []byte {
	if utf8.Valid(payload) && json.Valid(payload) {
		return appendLine(append(b, `,"payload":`...), payload)
	}
	b = append(b, `,"payload_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, payload), '"')
}

// appendLine appends JSON without line breaks. They stand only between its tokens.
func appendLine(b, text []byte) []byte {
	from := len(b)
	b = append(b, text...)
	if bytes.ContainsAny(text, "\n\r") {
		for i, c := range b[from:] {
			if c == '\n' || c == '\r' {
				b[from+i] = ' '
			}
		}
	}
	return b
}

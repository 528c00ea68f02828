package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// death is how a job's process has died; how is empty if none has. final: no plugin may run the
// job again.
type death struct {
	how   string
	final bool
}

// appendJob appends the line that hands out a job or, with died, only tells its failure hooks.
// For an Active Job, it uses the first class name that the process performs.
func appendJob(b []byte, number int64, job *resqued.Job, s *cmdslice.Slice, died death, classes ...string) []byte {
	if died.how == "" {
		b = append(b, `{"job":{"number":`...)
	} else {
		b = wire.AppendString(append(b, `{"died":{"how":`...), died.how)
		b = append(appendFinal(b, died.final), `,"number":`...)
	}
	class, wrappers := job.Class, jobctx.RunOf(job).Wrappers
	if i := slices.IndexFunc(wrappers, func(name string) bool { return slices.Contains(classes, name) }); i >= 0 && !slices.Contains(classes, class) {
		class, wrappers = wrappers[i], wrappers[i+1:]
	}
	b = strconv.AppendInt(b, number, 10)
	b = wire.AppendString(append(b, `,"id":`...), job.ID)
	b = wire.AppendString(append(b, `,"class":`...), class)
	b = wire.AppendString(append(b, `,"queue":`...), job.Queue)
	b = program.AppendAttempt(b, job)
	b = strconv.AppendInt(append(b, `,"deaths":`...), int64(job.Deaths), 10)
	b = wire.AppendString(append(b, `,"worker":`...), job.Worker)
	if job.LockKey != "" {
		b = wire.AppendString(append(b, `,"lock_key":`...), job.LockKey)
	}
	switch {
	case s != nil:
		b = appendFlat(append(b, `,"args":`...), []byte(resqued.Args(s.Args).String()))
		b = appendFlat(append(program.AppendSlice(b, s), `,"state":`...), s.State)
	case job.LockKey != "":
		b = strconv.AppendInt(append(b, `,"fence":`...), job.Fence(), 10)
	}
	if s == nil && len(wrappers) > 0 { // args in the payload are the wrapper's
		b = appendFlat(append(b, `,"args":`...), []byte(job.Args.String()))
	}
	b = appendPayload(b, job.Payload)
	return append(b, "}}\n"...)
}

// appendPayload appends the payload's own bytes as part of the line, or base64 if the line would
// not be JSON in UTF-8.
func appendPayload(b, payload []byte) []byte {
	if !utf8.Valid(payload) || !isObject(payload) {
		b = append(b, `,"payload_base64":"`...)
		return append(base64.StdEncoding.AppendEncode(b, payload), '"')
	}
	return appendFlat(append(b, `,"payload":`...), payload)
}

// appendFlat appends JSON with each line break replaced by a space: in strict JSON they only
// occur between tokens.
func appendFlat(b, text []byte) []byte {
	from := len(b)
	b = append(b, text...)
	for rest := b[from:]; ; {
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			return b
		}
		rest[i], rest = ' ', rest[i+1:]
	}
}

func isObject(payload []byte) bool {
	text := bytes.TrimLeft(payload, " \t\r\n")
	return len(text) > 0 && text[0] == '{' && json.Valid(payload)
}

// Other lines to a runner.
var (
	leaveLine  = []byte(`{"leave":true}` + "\n")
	pauseLine  = []byte(`{"pause":true}` + "\n")
	resumeLine = []byte(`{"resume":true}` + "\n")
)

func cancelLine(number int64, why string, final bool) []byte {
	b := append(strconv.AppendInt([]byte(`{"cancel":`), number, 10), `,"why":"`+why+`"`...)
	return append(appendFinal(b, final), "}\n"...)
}

func appendFinal(b []byte, final bool) []byte {
	if final {
		b = append(b, `,"final":true`...)
	}
	return b
}

func leavingLine(number int64) []byte {
	return append(strconv.AppendInt([]byte(`{"leaving":`), number, 10), "}\n"...)
}

func sliceOverLine(number int64) []byte {
	return append(strconv.AppendInt([]byte(`{"slice_over":`), number, 10), "}\n"...)
}

func replyLine(number int64, reply []byte) []byte {
	b := strconv.AppendInt([]byte(`{"reply":{"job":`), number, 10)
	return append(append(append(b, `,"line":`...), reply...), "}}\n"...)
}

func errorLine(text string) []byte {
	return append(wire.AppendString([]byte(`{"error":`), text), "}\n"...)
}

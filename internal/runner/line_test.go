package runner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
)

func TestParse(t *testing.T) {
	t.Parallel()
	good := map[string]answer{
		`{"done":17}`:                             {kind: kindDone, job: 17},
		` { "done" : 17 } `:                       {kind: kindDone, job: 17},
		`{"done":17,"colour":"blue"}`:             {kind: kindDone, job: 17},
		`{"done":17,"interrupted":true}`:          {kind: kindDone, job: 17, interrupted: true},
		`{"done":17,"interrupted":1}`:             {kind: kindDone, job: 17},
		`{"failed":1}`:                            {kind: kindFailed, job: 1},
		`{"failed":1,"exception":5,"message":[]}`: {kind: kindFailed, job: 1, exception: "5", message: "[]"},
		`{"failed":1,"exception":"A","message":"b","backtrace":["c",1]}`: {kind: kindFailed, job: 1, exception: "A", message: "b", backtrace: []string{"c", "1"}},
		`{"failed":1,"backtrace":"a"}`:                                   {kind: kindFailed, job: 1},
		`{"requeue":2}`:                                                  {kind: kindRequeue, job: 2},
		`{"requeue":2,"after":2.5}`:                                      {kind: kindRequeue, job: 2, after: 2500 * time.Millisecond},
		`{"limit_hit":2,"limit":"stripe","after":2.5}`:                   {kind: kindLimitHit, job: 2, text: "stripe", after: 2500 * time.Millisecond},
		`{"requeue":2,"after":-1}`:                                       {kind: kindRequeue, job: 2},
		`{"requeue":2,"after":1e300}`:                                    {kind: kindRequeue, job: 2, after: 100 * 365 * 24 * time.Hour},
		`{"discard":3,"why":"no"}`:                                       {kind: kindDiscard, job: 3, text: "no"},
		`{"progress":{"job":4,"done":3,"total":"9"}}`:                    {kind: kindProgress, job: 4, done: "3"},
		`{"refresh_lock":5}`:                                             {kind: kindRefresh, job: 5},
		`{"log":{"message":"m"}}`:                                        {kind: kindLog, text: "m"},
		`{"log":{"job":6,"level":"warn","message":"m"}}`:                 {kind: kindLog, job: 6, level: "warn", text: "m"},
		`{"log":{"job":null,"message":"m"}}`:                             {kind: kindLog, text: "m"},
		`{"report":{"job":7,"line":{"a":1}}}`:                            {kind: kindReport, job: 7, line: json.RawMessage(`{"a":1}`)},
		`{"error":"what?"}`:                                              {kind: kindError, text: "what?"},
		`{}`:                                                             {},
		`{"colour":1}`:                                                   {text: "colour"},
		`{"hello":{"protocol":1,"concurrency":4,"classes":["A"]}}`:       {kind: kindHello, hello: hello{Protocol: 1, Concurrency: 4, Classes: []string{"A"}}},
	}
	for line, want := range good {
		got, err := parse([]byte(line))
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
	for _, line := range []string{
		``, ` `, `null`, `5`, `"done"`, `[]`, `{`, `{"done":1`, `{"done":1}}`, `{"done":1} {"done":2}`, "{\"a\":\"\xff\"}", `not json`,
		`{"done":0}`, `{"done":-1}`, `{"done":1.5}`, `{"done":"1"}`, `{"done":null}`, `{"done":{}}`, `{"done":[1]}`, `{"done":99999999999999999999}`,
		`{"done":01}`, `{"done":1e2000}`, `{"failed":{}}`, `{"failed":null}`, `{"requeue":1,"after":"x"}`, `{"requeue":1,"after":{}}`, `{"limit_hit":1,"after":"x"}`, `{"discard":true}`,
		`{"done":1,"failed":1}`, `{"progress":5}`, `{"progress":{}}`, `{"progress":null}`, `{"log":"m"}`, `{"log":{"job":"x"}}`, `{"report":{"line":{}}}`,
		`{"report":[]}`, `{"refresh_lock":true}`, `{"hello":1}`, `{"hello":{"protocol":"1"}}`, `{"hello":{"concurrency":1e99}}`,
		`{"done":` + strings.Repeat("[", 20000) + `}`,
	} {
		_, err := parse([]byte(line))
		require.Error(t, err, "%.100s", line)
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{`{"done":17}`, `{"failed":1,"exception":"A","backtrace":["c"]}`, `{"requeue":2,"after":2.5}`, `{"log":{"job":6}}`, `{"hello":{}}`, `{"report":{"job":7,"line":{}}}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := parse(line)
		if err != nil {
			return
		}
		if !utf8.Valid(line) || !json.Valid(line) {
			t.Fatalf("%q is taken", line)
		}
		if a.kind.ends() && a.job < 1 {
			t.Fatalf("%q ends no job", line)
		}
		if a.kind == kindFailed {
			e := newJobError(&a)
			if len(e.message) > maxMessage || len(e.exception) > shownName || len(e.backtrace) > maxFrames {
				t.Fatalf("%q is too long", line)
			}
		}
	})
}

func FuzzJobLine(f *testing.F) {
	for _, payload := range []string{`{"class":"A","args":[]}`, "{\n\"class\":\r\n\"A\"}", "\xff", `[1]`, ``, `{"a":"\n"}`, "{\"a\":\"\xed\xa0\x80\"}"} {
		f.Add([]byte(payload), "A")
	}
	f.Fuzz(func(t *testing.T, payload []byte, class string) {
		line := appendJob(nil, 3, &resqued.Job{Class: class, ID: class, Payload: payload}, nil, death{})
		if n := bytes.IndexByte(line, '\n'); n != len(line)-1 {
			t.Fatalf("%q is more than a line", line)
		}
		if !utf8.Valid(line) {
			t.Fatalf("%q is not UTF-8", line)
		}
		var m struct {
			Job struct {
				Number  int
				Payload json.RawMessage
				Base64  []byte `json:"payload_base64"`
			}
		}
		if err := json.Unmarshal(line, &m); err != nil || m.Job.Number != 3 {
			t.Fatalf("%q: %v", line, err)
		}
		want := bytes.TrimSpace(payload)
		if m.Job.Payload == nil {
			if !bytes.Equal(m.Job.Base64, payload) {
				t.Fatalf("%q has another payload than %q", line, payload)
			}
			return
		}
		for i := range want {
			if got := m.Job.Payload[i]; got != want[i] && (got != ' ' || want[i] != '\n' && want[i] != '\r') {
				t.Fatalf("%q has another payload than %q", line, payload)
			}
		}
	})
}

func TestJobLine(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 1, 2, 3, 0, time.FixedZone("", 3600))
	j := &resqued.Job{
		ID: "x\ny", Class: "Mail", Queue: "q", Attempt: 2, MaxAttempts: 5, EnqueuedAt: at, Deadline: at, Deaths: 1,
		Worker: "h:1-1:q", LockKey: "lock:1", Payload: []byte("{\"class\":\"Mail\",\n\"args\":[1.0,\"\\n\"]}"),
	}
	jobctx.RunOf(j).Fence = 42
	require.Equal(t, `{"job":{"number":17,"id":"x\ny","class":"Mail","queue":"q","attempt":2,"max_attempts":5,"enqueued_at":"2026-11-24T00:02:03Z",`+
		`"deadline":"2026-11-24T00:02:03Z","deaths":1,"worker":"h:1-1:q","lock_key":"lock:1","fence":42,"payload":{"class":"Mail", "args":[1.0,"\n"]}}}`+"\n",
		string(appendJob(nil, 17, j, nil, death{})))
	before := string(j.Payload)
	require.Contains(t, before, "\n", "the payload of the job is left alone")
	s := &cmdslice.Slice{Args: []json.RawMessage{[]byte("1")}, Run: "r", Number: 2, Fence: 7, Units: 5, State: []byte(`{"a":1.0}`), Message: "m"}
	require.Contains(t, string(appendJob(nil, 17, j, s, death{})), `"args":[1],"run":"r","slice":2,"fence":7,"units":5,"message":"m","state":{"a":1.0},"payload":`)
	s.Args, s.State = []json.RawMessage{[]byte("[1,\r\n2]")}, []byte("{\"a\":\n1}")
	require.Contains(t, string(appendJob(nil, 17, j, s, death{})), `"args":[[1,  2]],"run":"r","slice":2,"fence":7,"units":5,"message":"m","state":{"a": 1},"payload":`)
	j.Payload = []byte("{\"class\":\"\xff\"}")
	require.Contains(t, string(appendJob(nil, 17, j, nil, death{how: "was \"killed\""})), `{"died":{"how":"was \"killed\"","number":17,"id":`)
	require.Contains(t, string(appendJob(nil, 17, j, nil, death{"x", true})), `{"died":{"how":"x","final":true,"number":17,"id":`)
	require.Equal(t, `{"cancel":17,"why":"killed","final":true}`+"\n", string(cancelLine(17, "killed", true)))
	require.Equal(t, `{"cancel":17,"why":"timeout"}`+"\n", string(cancelLine(17, "timeout", false)))
	require.Contains(t, string(appendJob(nil, 17, j, nil, death{})), `"payload_base64":"`+base64.StdEncoding.EncodeToString(j.Payload)+`"`)
}

// The line of an Active Job has its first class name that the runner has code for.
func TestJobLineOfActiveJob(t *testing.T) {
	t.Parallel()
	j := &resqued.Job{Class: "UserMailer#welcome", Args: resqued.Args{[]byte("1")}, Payload: []byte("{}")}
	jobctx.RunOf(j).Wrappers = []string{"ActionMailer::MailDeliveryJob", "JobWrapper"}
	for class, classes := range map[string][]string{
		"UserMailer#welcome": {"JobWrapper", "UserMailer#welcome"}, "ActionMailer::MailDeliveryJob": {"ActionMailer::MailDeliveryJob", "JobWrapper"}, "JobWrapper": {"JobWrapper"},
	} {
		line := string(appendJob(nil, 17, j, nil, death{}, classes...))
		require.Contains(t, line, `"class":"`+class+`"`)
		require.Equal(t, class != "JobWrapper", strings.Contains(line, `"args":[1]`), "the payload has those of the wrapper")
	}
	require.Contains(t, string(appendJob(nil, 17, j, nil, death{})), `"class":"UserMailer#welcome"`)
}

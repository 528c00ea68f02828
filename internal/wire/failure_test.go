package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestEncodeFailure(t *testing.T) {
	t.Parallel()
	f := Failure{
		FailedAt:  example,
		Payload:   []byte(`{"class":"Mail","args":[ 12345678901234567,  {"b":1,"a":[]}, {}, "<b>&  ` + "\u2028" + `/"],"extra":1}`),
		Exception: "*fs.PathError",
		Error:     "open \"/x\\y\":\n\t\x1b[31mno such file & <none>",
		Backtrace: []string{"mail.go:12:in 'main.send'", "mail.go:4:in 'main.main'"},
		Worker:    WorkerID("p", "web-1", 0, 3, 9120, []string{"critical", "mail"}),
		Queue:     "mail",
	}
	require.Equal(t, string(golden(t, "failure.json")), string(f.Encode()))

	t.Run("the attempts stand behind what Resque knows", func(t *testing.T) {
		t.Parallel()
		f := Failure{
			FailedAt: example, Payload: []byte(`{"class":"A","args":[1]}`), Exception: "E", Error: "bad", Backtrace: []string{"a:1"},
			Worker: "w", Queue: "q", Attempts: 3, RetriedAt: "2026/11/20 10:00:00 EST",
		}
		record := f.Encode()
		require.Equal(t, `{"failed_at":"2026/11/20 14:56:21 UTC","payload":{"class":"A","args":[1]},"exception":"E","error":"bad","backtrace":["a:1"],`+
			`"worker":"w","queue":"q","attempts":3,"retried_at":"2026/11/20 10:00:00 EST"}`, string(record))
		back, err := ParseFailure(record)
		require.NoError(t, err)
		require.Equal(t, record, back.Encode())
		f.Bare = true
		require.Contains(t, string(f.Encode()), `{"failed_at":"2026/11/20 09:56:21",`, "as resque-retry writes it")
		odd, err := ParseFailure([]byte(`{"attempts":"three"}`))
		require.NoError(t, err)
		require.Zero(t, odd.Attempts)
	})

	t.Run("what is not a payload is kept as base64", func(t *testing.T) {
		t.Parallel()
		f := Failure{
			FailedAt: example, Payload: []byte("not json\xff"), Exception: "Resqued::InvalidPayload",
			Worker: WorkerID("p", "web-1", 0, 0, 9120, nil), Queue: "mail", RetriedAt: "2026/11/20 10:00:00 EST",
		}
		record := f.Encode()
		require.Equal(t, string(golden(t, "failure-invalid.json")), string(record))
		back, err := ParseFailure(record)
		require.NoError(t, err)
		require.Equal(t, f.Payload, back.Original())
		require.Equal(t, record, back.Encode(), "a record that is read and written stays the same")
	})

	t.Run("what is too long is cut between characters", func(t *testing.T) {
		t.Parallel()
		f := Failure{Error: strings.Repeat("é", maxErrorText), Backtrace: make([]string, 10*maxFrames)}
		back, err := ParseFailure(f.Encode())
		require.NoError(t, err)
		require.LessOrEqual(t, len(back.Error), maxErrorText)
		require.True(t, strings.HasSuffix(back.Error, "é…"))
		require.Len(t, back.Backtrace, maxFrames)
	})

	t.Run("invalid UTF-8 is replaced", func(t *testing.T) {
		t.Parallel()
		record := Failure{Error: "a\xffb", Queue: "\xc3", Backtrace: []string{"\xed\xa0\x80"}}.Encode()
		require.True(t, utf8.Valid(record))
		back, err := ParseFailure(record)
		require.NoError(t, err)
		require.Equal(t, "a\ufffdb", back.Error)
	})
}

func TestParseFailure(t *testing.T) {
	t.Parallel()
	t.Run("a record of Ruby's", func(t *testing.T) {
		t.Parallel()
		f, err := ParseFailure(golden(t, "failed-ruby.json"))
		require.NoError(t, err)
		require.True(t, f.FailedAt.Equal(example))
		require.Equal(t, `{"class":"A","args":[1]}`, string(f.Payload))
		require.Equal(t, "ArgumentError", f.Exception)
		require.Equal(t, "bad", f.Error)
		require.Equal(t, []string{"a.rb:2:in `perform'"}, f.Backtrace)
		require.Equal(t, "web1:4242:high,low*", f.Worker)
		require.Equal(t, "high", f.Queue)
		require.Equal(t, "2026/11/20 10:00:00 EST", f.RetriedAt)
		require.Equal(t, string(f.Payload), string(f.Original()))
	})
	t.Run("a record of the Files.com fork", func(t *testing.T) {
		t.Parallel()
		f, err := ParseFailure(golden(t, "failed-fork.json"))
		require.NoError(t, err)
		require.Equal(t, "Job was killed", f.Error)
		require.Contains(t, string(f.Payload), `"generation":1`)
		require.Empty(t, f.Backtrace)
		require.False(t, f.FailedAt.IsZero())
	})
	t.Run("a record of node-resque keeps the payload's bytes", func(t *testing.T) {
		t.Parallel()
		f, err := ParseFailure(golden(t, "failed-node.json"))
		require.NoError(t, err)
		require.True(t, f.FailedAt.Equal(example))
		require.Equal(t, `{"class":"jobThatFails","queue":"q","args":[ {} ]}`, string(f.Payload))
	})
	t.Run("null and strange fields stay empty", func(t *testing.T) {
		t.Parallel()
		f, err := ParseFailure([]byte(`{"failed_at":5,"payload":null,"exception":[],"error":null,"backtrace":["a",1,null],"worker":{}}`))
		require.NoError(t, err)
		require.Equal(t, Failure{Payload: []byte("null"), Backtrace: []string{"a"}}, f)
	})
	for name, record := range map[string]string{
		"an emptied record is refused": "", "null is refused": "null", "an array is refused": "[]", "text is refused": "\x1bx",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseFailure([]byte(record))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "\x1b")
		})
	}
}

func FuzzFailure(f *testing.F) {
	f.Add([]byte(`{"class":"A"}`), "Error", "text\xff", "frame", "w", "q", "")
	f.Add([]byte("\xff"), "", "\u2028<>&\x00\x1b", "a\nb", "", "", "2026/11/20 10:00:00 EST")
	f.Fuzz(func(t *testing.T, payload []byte, exception, text, frame, worker, queue, retried string) {
		in := Failure{
			FailedAt: example, Payload: payload, Exception: exception, Error: text,
			Backtrace: []string{frame}, Worker: worker, Queue: queue, RetriedAt: retried,
		}
		record := in.Encode()
		require.True(t, json.Valid(record))
		require.True(t, utf8.Valid(record))
		out, err := ParseFailure(record)
		require.NoError(t, err)
		require.True(t, out.FailedAt.Equal(example))
		require.Equal(t, strings.ToValidUTF8(queue, ""), strings.ReplaceAll(out.Queue, "\ufffd", ""), "only invalid bytes are replaced")
		if _, err := Parse(payload, 0); err == nil {
			require.Equal(t, strings.Trim(string(payload), " \t\r\n"), string(out.Payload))
		} else {
			require.Equal(t, string(payload), string(out.Original()))
		}
	})
}

func TestPushed(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 56, 21, 0, time.UTC) // 1795168581
	for name, c := range map[string]struct{ payload, pushed string }{
		"as it was":                         {`{"class":"A","args":[1.0,"\/"]}`, ""},
		"what resque-uniqueue has added":    {`{"class":"A","args":[1.0,"\/"],"start_at":1795168500}`, `{"class":"A","args":[1.0,"\/"]}`},
		"to a payload of the fork":          {`{"class":"A","args":[],"id":"4f","start_at":1795168500}`, `{"class":"A","args":[],"id":"4f"}`},
		"a time that the gem did not know":  {`{"class":"A","args":[],"start_at":0}`, `{"class":"A","args":[]}`},
		"only the one that was added":       {`{"class":"A","args":[],"start_at":1795168400,"start_at":1795168500}`, ""},
		"the program's own: in the middle":  {`{"class":"A","start_at":1795168500,"args":[]}`, ""},
		"the program's own: ahead":          {`{"class":"A","args":[],"start_at":1795968500}`, ""},
		"the program's own: no time":        {`{"class":"A","args":[],"start_at":7}`, ""},
		"the program's own: with spaces":    {`{"class":"A","args":[],"start_at": 1795168500}`, ""},
		"the program's own: a text":         {`{"class":"A","args":[],"start_at":"1795168500"}`, ""},
		"the program's own: a fraction":     {`{"class":"A","args":[],"start_at":1795168500.5}`, ""},
		"one inside of an argument":         {`{"class":"A","args":[{"a":1,"start_at":1795168500}]}`, ""},
		"a text that looks like it":         {`{"class":"A","args":[],"x":"\",\"start_at\":1795168500}"}`, ""},
		"bytes that were not a payload":     {`{"class":"Resqued::InvalidPayload","args":["bm90IGpzb24="]}`, "not json"},
		"those that Ruby has pushed again":  {`{"class":"Resqued::InvalidPayload","args":["bm90IGpzb24="],"id":"4f","start_at":1795168500}`, "not json"},
		"wrapped twice":                     {`{"class":"Resqued::InvalidPayload","args":["eyJjbGFzcyI6IlJlc3F1ZWQ6OkludmFsaWRQYXlsb2FkIiwiYXJncyI6WyJibTkwSUdwemIyND0iXX0="]}`, "not json"},
		"a job of that class that has none": {`{"class":"Resqued::InvalidPayload","args":["?"]}`, ""},
	} {
		if c.pushed == "" {
			c.pushed = c.payload
		}
		f := Failure{FailedAt: at, Payload: []byte(c.payload)}
		require.Equal(t, c.pushed, string(f.Pushed()), name)
		require.Equal(t, c.payload, string(f.Payload), name)
	}
}

// The scanner and encoding/json, which reads what the scanner refuses, see the same.
func TestParseFailureBothWays(t *testing.T) {
	t.Parallel()
	record := `{"failed_at":"2026/11/20 09:56:21 EST","payload":{"class":"A","args":[1]},"exception":"E\u0041","error":"b\/d","backtrace":["a",1,"b"],` +
		`"worker":"w","queue":"x","queue":"q","att\u0065mpts":3,"retried_at":null}`
	fast, err := ParseFailure([]byte(record))
	require.NoError(t, err)
	slow, err := ParseFailure([]byte(strings.Replace(record, "}", ",\"x\":\"\xff\"}", 1)))
	require.NoError(t, err)
	require.Equal(t, `{"class":"A","args":[1],"x":"`+"\xff"+`"}`, string(slow.Payload))
	slow.Payload = fast.Payload
	require.Equal(t, fast, slow)
	require.Equal(t, "q", fast.Queue)
	require.Equal(t, "EA", fast.Exception)
	require.Equal(t, 3, fast.Attempts)
	require.Equal(t, []string{"a", "b"}, fast.Backtrace)
	brief, err := ParseFailureBrief([]byte(record))
	require.NoError(t, err)
	fast.Backtrace = nil
	require.Equal(t, fast, brief)
}

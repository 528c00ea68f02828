package redact_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
)

func rules(t testing.TB, text string) *redact.Rules {
	t.Helper()
	r, err := redact.Parse(text)
	require.NoError(t, err, text)
	return r
}

func TestArgs(t *testing.T) {
	t.Parallel()
	const args = `[ 12345678901234567890, {"token":"s\"}]", "a":[{"token":1e400},{"b":0.10}]} ,"x"]`
	for text, want := range map[string]string{
		"":                     args,
		"Other=args":           args,
		"Mail=args":            `["[redacted]"]`,
		"Mail=args.7":          args,
		"Mail=args.token":      args,
		"Mail=args.0":          strings.Replace(args, "12345678901234567890", `"[redacted]"`, 1),
		"M*=args.1.token":      strings.Replace(args, `"s\"}]"`, `"[redacted]"`, 1),
		"*=args.1.a":           strings.Replace(args, `[{"token":1e400},{"b":0.10}]`, `"[redacted]"`, 1),
		"*=args.1.a.1.b":       strings.Replace(args, `0.10`, `"[redacted]"`, 1),
		"*=args.**.token":      strings.NewReplacer(`"s\"}]"`, `"[redacted]"`, `1e400`, `"[redacted]"`).Replace(args),
		"*=args.*.a.*.b":       strings.Replace(args, `0.10`, `"[redacted]"`, 1),
		"*=args.2;Mail=args.0": strings.NewReplacer("12345678901234567890", `"[redacted]"`, `"x"`, `"[redacted]"`).Replace(args),
		"*=args.**":            `["[redacted]"]`,
		"*=args.1.**":          strings.Replace(args, `{"token":"s\"}]", "a":[{"token":1e400},{"b":0.10}]}`, `"[redacted]"`, 1),
	} {
		require.Equal(t, want, string(rules(t, text).Args("Mail", json.RawMessage(args))), text)
	}
	require.Equal(t, "null", string(redact.All().Args("Mail", json.RawMessage("null"))))
	require.Equal(t, `["[redacted]"]`, string(rules(t, "*=args.0").Args("Mail", json.RawMessage("[NaN]"))), "what cannot be read is not shown")
	// A name that is written with escapes is the same name.
	require.Equal(t, `[{"\u0074oken":"[redacted]"}]`, string(rules(t, "*=args.0.token").Args("Mail", json.RawMessage(`[{"\u0074oken":1}]`))))
}

// Rules of a class of Active Job are those of its own arguments.
func TestActiveJob(t *testing.T) {
	t.Parallel()
	const class, args = "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper", `[{"job_class":"Mail","job_id":"x","arguments":["to",{"token":"s"}]}]`
	require.Equal(t, strings.Replace(args, `"s"`, `"[redacted]"`, 1), string(rules(t, "Mail=args.1.token").Args(class, json.RawMessage(args))))
	require.Equal(t, strings.Replace(args, `["to",{"token":"s"}]`, `"[redacted]"`, 1), string(rules(t, "Mail=args").Args(class, json.RawMessage(args))))
	require.Equal(t, args, string(rules(t, "Other=args").Args(class, json.RawMessage(args))))
	require.Equal(t, `["[redacted]"]`, string(rules(t, "ActiveJob*=args").Args(class, json.RawMessage(args))))
	require.Equal(t, strings.Replace(args, `"s"`, `"[redacted]"`, 1),
		string(rules(t, "Mail=args.1.token").Args("ActiveScheduler::ResqueWrapper", json.RawMessage(args))), "a wrapper of another name")
	// The same of the job's own arguments.
	const own = `["to",{"token":"s"}]`
	for text, want := range map[string]string{
		"Mail=args.1.token": strings.Replace(own, `"s"`, `"[redacted]"`, 1), "ActiveJob*=args.0.arguments.1.token": strings.Replace(own, `"s"`, `"[redacted]"`, 1),
		"ActiveJob*=args.**.token": strings.Replace(own, `"s"`, `"[redacted]"`, 1), "ActiveJob*=args.*.*.0": strings.Replace(own, `"to"`, `"[redacted]"`, 1),
		"ActiveJob*=args.0": `["[redacted]"]`, "ActiveJob*=args.0.**": `["[redacted]"]`, "ActiveJob*=args.0.job_id": own, "ActiveJob*=args.1": own,
	} {
		require.Equal(t, want, string(rules(t, text).Args("Mail", json.RawMessage(own), class)), text)
	}
	payload := `{"class":"` + class + `","args":` + args + `}`
	require.Equal(t, strings.Replace(payload, `"s"`, `"[redacted]"`, 1), rules(t, "Mail=args.1.token").Payload([]byte(payload)))
}

func TestPayload(t *testing.T) {
	t.Parallel()
	r := rules(t, "Mail=args.0")
	const payload = ` {"args" : [ "s", 1.0 ],"class":"Mail","queue":{"args":["x"]}, "id":"7"}`
	require.Equal(t, strings.Replace(payload, `"s"`, `"[redacted]"`, 1), r.Payload([]byte(payload)))
	require.JSONEq(t, `{"class":"Other","args":["s"]}`, r.Payload([]byte(`{"class":"Other","args":["s"]}`)))
	for _, hostile := range []string{"secret", `{"class":"Mail","args":["s"]`, `{"class":"Mail","args":["s"],"args":[1]}`, `["s"]`, `{"class":"Mail","Args":["s"],"args":[1]} x`, `{"args":["s"]}`} {
		require.Equal(t, redact.Shown, r.Payload([]byte(hostile)), hostile)
	}
	var none *redact.Rules
	require.Equal(t, "secret", none.Payload([]byte("secret")))
}

func TestKey(t *testing.T) {
	t.Parallel()
	r := rules(t, "Mail=args.0")
	const key = `locket:job_locks:Mail["s",1]`
	shown := r.Key("locket", "Mail", []byte(`["s",1]`), key)
	require.Regexp(t, `^locket:Mail\[redacted\][0-9a-f]{16}$`, shown)
	require.NotContains(t, shown, `"s"`)
	require.Equal(t, key, r.Key("locket", "Mail", []byte(`[]`), key), "nothing is kept back")
	require.Equal(t, key, r.Key("locket", "Other", []byte(`["s",1]`), key))
	require.Equal(t, key, r.Key("locket", "Other", nil, key))
	require.NotContains(t, r.Key("locket", "Mail", nil, key), `"s"`)
	require.NotContains(t, r.Key("locket", "", nil, key), `"s"`)
	// An Active Job whose arguments are not known may be a mail that hides some, and so may its wrapper.
	const wrapper = "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper"
	require.NotContains(t, rules(t, "ActiveJob*=args").Key("locket", "Mail", nil, key, wrapper), `"s"`)
	require.NotContains(t, rules(t, "UserMailer#welcome=args").Key("locket", "ActionMailer::MailDeliveryJob", nil, key, wrapper), `"s"`)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Mail":            "has no path",
		"=args":           "not a class",
		"Mail=":           "does not begin with args",
		"Mail=0":          "does not begin with args",
		"Mail=arguments":  "does not begin with args",
		"Mail=args.":      "use args.0.name",
		"Mail=args..x":    "use args.0.name",
		"Mail=args.a b":   "use args.0.name",
		"Mail=args.0,,":   "does not begin with args",
		"[a=args":         "never closed",
		"Mail=args=args":  "does not begin with args",
		"Mail=args.0=1":   "use args.0.name",
		"Mail=args;*":     "has no path",
		"Mail=args args.": "does not begin with args",
	} {
		_, err := redact.Parse(text)
		require.ErrorContains(t, err, want, text)
	}
	require.Equal(t, "A::B=args.0,args.**.x;*=args", rules(t, " A::B = args.0 , args.**.**.x ;; *=args ;").String())
}

// FuzzParse: rules that are accepted stay the same when they are written and read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "*=args", "A::B=args.0,args.**.x;*=args.1.**", "A=args.**.**", "[a-z]*=args.*.*"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := redact.Parse(text)
		if err != nil {
			return
		}
		again, err := redact.Parse(r.String())
		require.NoError(t, err, r.String())
		require.Equal(t, r.String(), again.String())
	})
}

// FuzzArgs compares the rewriting with the same done to decoded values: the result is valid,
// nothing that is hidden remains, and the rest is the same to the byte.
func FuzzArgs(f *testing.F) {
	for _, one := range [][2]string{
		{`[1,{"a":{"b":[0.10,"x"]}},null]`, "*=args.1.a.b.0"},
		{`[ {"a":1,"a":{"a":2}} ]`, "*=args.**.a"},
		{`{"0":[true],"":{}}`, "*=args.0.*"},
		{`"text"`, "*=args.0"},
		{`[[[[]],{}]]`, "*=args.*.*.*,args.0"},
		{`["\u0000\\\"",-1e-9]`, "*=args.0"},
	} {
		f.Add(one[0], one[1])
	}
	f.Fuzz(func(t *testing.T, args, text string) {
		r, err := redact.Parse(text)
		if err != nil || !json.Valid([]byte(args)) || strings.Contains(args, redact.Shown) || strings.Contains(args, "job_class") {
			return
		}
		got := r.Args("Mail", json.RawMessage(args))
		require.True(t, json.Valid(got), "%s", got)
		if bytes.Equal(got, []byte(args)) {
			return
		}
		// Without the marks, the pieces of the original are left, in order.
		rest := args
		for i, piece := range strings.Split(string(got), `"`+redact.Shown+`"`) {
			if string(got) == `["[redacted]"]` {
				break
			}
			at := strings.Index(rest, piece)
			require.GreaterOrEqual(t, at, 0, "%s -> %s", args, got)
			if i == 0 {
				require.Zero(t, at)
			}
			rest = rest[at+len(piece):]
		}
		// The same twice changes nothing more.
		require.Equal(t, string(got), string(r.Args("Mail", got)))
		payload := `{"class":"Mail","args":` + args + `,"x":[1.0]}`
		if shown := r.Payload([]byte(payload)); shown != redact.Shown {
			require.True(t, json.Valid([]byte(shown)))
			require.Equal(t, `{"class":"Mail","args":`+string(got)+`,"x":[1.0]}`, shown)
		}
	})
}

// Property: a marked value is never shown, wherever it is and whatever surrounds it.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	secrets := []string{`"SECRET"`, `{"SECRET":["SECRET"]}`, `["SECRET",{"a":"SECRET"}]`, `"\"SECRET\\"`, `"SECRET\u00e9"`}
	shapes := map[string]string{
		`[%]`: "args.0", `[1,%]`: "args.1", `[{"k":%}]`: "args.0.k", `[ {"a":1 , "k" : % } , 2 ]`: "args.0.k", `[[[%]]]`: "args.0.0.0",
		`[{"a":{"b":{"k":%}}}]`: "args.**.k", `[{"a":[{"k":%},{"k":%}]}]`: "args.0.a.*.k", `[{"":%}]`: "args.0.*", `[{"k":%,"k":%}]`: "args.0.k",
	}
	for shape, path := range shapes {
		for _, secret := range secrets {
			args := strings.ReplaceAll(shape, "%", secret)
			got := rules(t, "*="+path).Args("Mail", json.RawMessage(args))
			require.NotContains(t, string(got), "SECRET", "%s by %s", args, path)
			require.Equal(t, strings.ReplaceAll(shape, "%", `"[redacted]"`), string(got))
		}
	}
}

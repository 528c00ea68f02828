package filter_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/wire"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.FixedZone("here", 3600))

func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

func matcher(t *testing.T, kind filter.Kind, pairs ...string) *filter.Matcher {
	t.Helper()
	f, err := filter.Parse(values(pairs...), kind, noon)
	require.NoError(t, err)
	m, err := f.Matcher(t.Context(), kind)
	require.NoError(t, err)
	return m
}

func fits(m *filter.Matcher, queue, payload string) bool {
	_, _, ok := m.Job(filter.Job{Queue: queue, Payload: []byte(payload), At: noon})
	return ok
}

// TestJob: each condition selects and leaves out, however a producer writes the same payload.
func TestJob(t *testing.T) {
	t.Parallel()
	const (
		plain  = `{"class":"Mail::Welcome","args":[42,{"customer":"7","tags":["a/b","é"]}],"enqueued_at":1795856399}`
		spaced = `{ "args": [ 42.0, { "tags": [ "a\/b", "\u00e9" ], "customer": "7" } ], "class": "Mail::Welcome" }`
		rails  = `{"class":"ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper","args":[{"job_class":"Ship","arguments":[{"_aj_globalid":"gid://shop/User/42"}]}]}`
	)
	for _, c := range []struct {
		pairs []string
		want  [3]bool // of plain, spaced and rails
	}{
		{nil, [3]bool{true, true, true}},
		{[]string{"class", "Mail::*"}, [3]bool{true, true, false}},
		{[]string{"class", "*,!Mail::*"}, [3]bool{false, false, true}},
		{[]string{"class", "Ship"}, [3]bool{false, false, true}},
		{[]string{"class", "*JobWrapper"}, [3]bool{false, false, true}},
		{[]string{"class", "mail::welcome"}, [3]bool{}},
		{[]string{"class", "Ship", "class", "Mail::Welcome"}, [3]bool{true, true, true}},
		{[]string{"queue", `a\,b,c`}, [3]bool{true, true, true}},
		{[]string{"queue", "a,b"}, [3]bool{}},
		{[]string{"arg", "0=42"}, [3]bool{true, true, false}},
		{[]string{"arg", "args.1.customer=7"}, [3]bool{true, true, false}},
		{[]string{"arg", `1.customer="7"`}, [3]bool{true, true, false}},
		{[]string{"arg", "**.customer=7"}, [3]bool{true, true, false}},
		{[]string{"arg", "*.customer=7"}, [3]bool{true, true, false}},
		{[]string{"arg", "1.tags.*=é"}, [3]bool{true, true, false}},
		{[]string{"arg", `1.tags=["a/b","é"]`}, [3]bool{true, true, false}},
		{[]string{"arg", `0="42"`}, [3]bool{}},
		{[]string{"arg", "0=4"}, [3]bool{}},
		{[]string{"arg", "2=null"}, [3]bool{}},
		{[]string{"arg", "0=42", "arg", "1.customer=8"}, [3]bool{}},
		{[]string{"arg", "0=User/42"}, [3]bool{false, false, true}},
		{[]string{"args", `[42,{"customer":"7","tags":["a/b","é"]}]`}, [3]bool{true, true, false}},
		{[]string{"args", "[42]"}, [3]bool{}},
		{[]string{"match", `"a/b","é"`}, [3]bool{true, true, false}},
		{[]string{"match", `"customer":"7"`}, [3]bool{true, true, false}},
		{[]string{"since", "2026-11-28 12:00"}, [3]bool{true, true, true}},
		{[]string{"since", "2026-11-28 12:00:01"}, [3]bool{}},
		{[]string{"until", "2026-11-28 12:00"}, [3]bool{}},
		{[]string{"worker", ""}, [3]bool{true, true, true}},
	} {
		m := matcher(t, filter.Running, c.pairs...)
		require.Equal(t, c.want, [3]bool{fits(m, "a,b", plain), fits(m, "a,b", spaced), fits(m, "a,b", rails)}, "%q", c.pairs)
	}
	waiting := matcher(t, filter.Waiting, "until", "2h")
	require.True(t, fits(waiting, "q", plain), "the payload's own time counts")
	require.False(t, fits(waiting, "q", spaced), "it has none")
	id := matcher(t, filter.Waiting, "id", filter.Digest([]byte(plain))[:8])
	require.Equal(t, []bool{true, false}, []bool{fits(id, "q", plain), fits(id, "q", spaced)})
	require.False(t, fits(matcher(t, filter.Running, "class", "*"), "q", "rubbish"))
	require.True(t, fits(matcher(t, filter.Running, "queue", "q"), "q", "rubbish"))
	on := func(worker string) bool {
		_, _, ok := matcher(t, filter.Running, "worker", "web1").Job(filter.Job{Worker: worker, Payload: []byte(plain)})
		return ok
	}
	require.Equal(t, []bool{true, true, false}, []bool{on("web1"), on("web1:4.2.0:q"), on("web10:4:q")})
}

// TestHidden: a search does not tell what is hidden, neither does a tenant made of it.
func TestHidden(t *testing.T) {
	t.Parallel()
	const payload = `{"class":"Pay","args":["secret",42]}`
	rules, err := redact.Parse("Pay=args.0")
	require.NoError(t, err)
	tenant := func(string, []byte) string { return "secret" }
	ctx := filter.WithTenants(redact.Into(t.Context(), rules), tenant)
	for pair, want := range map[[2]string]bool{
		{"match", "secret"}: false, {"arg", "0=secret"}: false, {"args", `["secret",42]`}: false, {"tenant", "secret"}: false,
		{"arg", "1=42"}: true, {"match", "redacted"}: true, {"tenant", redact.Digest("tenant", "", "secret")}: true,
	} {
		f, err := filter.Parse(values(pair[:]...), filter.Waiting, noon)
		require.NoError(t, err)
		m, err := f.Matcher(ctx, filter.Waiting)
		require.NoError(t, err)
		require.Equal(t, want, fits(m, "q", payload), "%q", pair)
	}
	f, err := filter.Parse(values("tenant", "secret"), filter.Waiting, noon)
	require.NoError(t, err)
	_, err = f.Matcher(t.Context(), filter.Waiting)
	require.ErrorContains(t, err, "does not know")
	m, err := f.Matcher(filter.WithTenants(t.Context(), tenant), filter.Waiting)
	require.NoError(t, err)
	require.True(t, fits(m, "q", payload))
}

func TestFailure(t *testing.T) {
	t.Parallel()
	record := string(wire.Failure{
		FailedAt: noon, Payload: []byte(`{"class":"Mail","args":[42]}`), Exception: "Net::Timeout", Error: "no answer from 10.0.0.1", Worker: "web1:4:mail", Queue: "mail",
	}.Encode())
	escaped := `{"failed_at":"2026/11/28 11:00:00 UTC","payload":{"class":"\u004dail","args":[42]},"exception":"Net::Timeout","error":"no answer from 10.0.0.2","worker":"web1:4:mail","queue":"mail","retried_at":"2026/11/28 12:00:00"}`
	group := filter.GroupID("Mail", "Net::Timeout", "mail", filter.Mask("no answer from 10.0.0.9"))
	for _, c := range []struct {
		pairs []string
		want  [3]bool // of record, escaped and rubbish
	}{
		{nil, [3]bool{true, true, true}},
		{[]string{"class", "Mail"}, [3]bool{true, true, false}},
		{[]string{"class", "Post"}, [3]bool{}},
		{[]string{"error", "Timeout"}, [3]bool{true, true, false}},
		{[]string{"error", "0.1"}, [3]bool{true, false, false}},
		{[]string{"error", "/0.[12]$/"}, [3]bool{true, true, false}},
		{[]string{"error", "/"}, [3]bool{}},
		{[]string{"group", group[:8]}, [3]bool{true, true, false}},
		{[]string{"group", "00000000"}, [3]bool{}},
		{[]string{"worker", "web1"}, [3]bool{true, true, false}},
		{[]string{"retried", "yes"}, [3]bool{false, true, false}},
		{[]string{"retried", "no"}, [3]bool{true, false, true}},
		{[]string{"retried", "any", "arg", "0=42"}, [3]bool{true, true, false}},
		{[]string{"since", "today", "until", "12:00"}, [3]bool{}},
		{[]string{"since", "today", "until", "2026-11-28T12:00:01+01:00"}, [3]bool{true, true, false}},
	} {
		m := matcher(t, filter.Failures, c.pairs...)
		got := [3]bool{}
		for i, one := range []string{record, escaped, "rubbish"} {
			_, got[i] = m.Failure([]byte(one))
		}
		require.Equal(t, c.want, got, "%q", c.pairs)
	}
}

// TestTimes: times of day are past, but those to come for delayed jobs; ages count back, or with + forward.
func TestTimes(t *testing.T) {
	t.Parallel()
	at := func(day, hour, minute int) time.Time {
		return time.Date(2026, 11, day, hour, minute, 0, 0, noon.Location())
	}
	for text, want := range map[string][2]time.Time{ // of running and of delayed jobs
		"10:00": {at(28, 10, 0), at(29, 10, 0)}, "15:30": {at(27, 15, 30), at(28, 15, 30)}, "12:00": {noon, noon},
		"2h": {at(28, 10, 0), at(28, 14, 0)}, "-2h": {at(28, 10, 0), at(28, 10, 0)}, "+1d2h": {at(29, 14, 0), at(29, 14, 0)}, "1w": {at(21, 12, 0), at(35, 12, 0)},
		"yesterday": {at(27, 0, 0), at(27, 0, 0)}, "today": {at(28, 0, 0), at(28, 0, 0)}, "tomorrow": {at(29, 0, 0), at(29, 0, 0)},
		"2026-11-01": {at(1, 0, 0), at(1, 0, 0)}, "2026-11-28T11:00:00Z": {noon, noon}, "1795863600": {noon, noon},
	} {
		for i, kind := range []filter.Kind{filter.Running, filter.Delayed} {
			f, err := filter.Parse(values("since", text), kind, noon)
			require.NoError(t, err, text)
			require.True(t, want[i].Equal(f.Since), "%s of kind %d: %s", text, kind, f.Since)
		}
	}
	for _, text := range []string{"2", "h", "2x", "+-2h", "25:00", "2026-13-01", "soon", "-", "9999999w", "1.5.5h", "2h ", "0001-01-01T00:00:00Z", "7000w7000w7000w7000w7000w"} {
		_, err := filter.Parse(values("since", text), filter.Running, noon)
		require.Error(t, err, text)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind  filter.Kind
		pairs []string
		want  string
	}{
		{filter.Waiting, []string{"class", "[a"}, `class "[a": "[" is never closed`},
		{filter.Waiting, []string{"class", "!A"}, "only exclusions match nothing"},
		{filter.Waiting, []string{"queue", "a,,b"}, "a name is empty"},
		{filter.Waiting, []string{"arg", "42"}, "write a path and a value"},
		{filter.Waiting, []string{"arg", "0..a=1"}, "write a path and a value"},
		{filter.Waiting, []string{"args", "42"}, "not a JSON array"},
		{filter.Waiting, []string{"match", "("}, "missing closing )"},
		{filter.Waiting, []string{"match", "a", "match", "b"}, "given twice"},
		{filter.Waiting, []string{"id", "abc"}, "write 8 characters"},
		{filter.Failures, []string{"retried", "maybe"}, "write yes, no or any"},
		{filter.Failures, []string{"group", "abc"}, "write 8 characters"},
		{filter.Failures, []string{"error", "/(/"}, "missing closing )"},
	} {
		f, err := filter.Parse(values(c.pairs...), c.kind, noon)
		if err == nil {
			_, err = f.Matcher(t.Context(), c.kind)
		}
		require.ErrorContains(t, err, c.want, "%q", c.pairs)
	}
	_, err := filter.Filter{Error: "x"}.Matcher(t.Context(), filter.Waiting)
	require.Error(t, err, "waiting jobs have no error")
}

// TestLiteral: a name's literal selects that name alone.
func TestLiteral(t *testing.T) {
	t.Parallel()
	names := []string{"mail", "a,b", "a", "b", "*", "!low", "low", "[x]", "x", `a\*`, "a*", `\`, "mail[8]", "mail8", `a\,b`, "!", "!a*", " lead"}
	for _, name := range names {
		m := matcher(t, filter.Delayed, "queue", filter.Literal(name))
		for _, other := range names {
			require.Equal(t, name == other, fits(m, other, `{"class":"A"}`), "%q for %q: %q", name, other, filter.Literal(name))
		}
	}
}

// TestWorkers: a worker of resqued is found by its host, its process and as lists name it.
func TestWorkers(t *testing.T) {
	t.Parallel()
	id := wire.WorkerID("web-1:boot:9120-1:0.1", "web-1", 0, 3, 9120, []string{"mail"})
	for worker, want := range map[string]bool{
		"web-1": true, "web-1:9120": true, "web-1:9120.0": true, "web-1:9120.0.3": true, id: true, "web": false, "web-1:912": false, "web-1:9120.0.30": false,
	} {
		_, _, ok := matcher(t, filter.Running, "worker", worker).Job(filter.Job{Worker: id, Payload: []byte(`{"class":"A"}`)})
		require.Equal(t, want, ok, worker)
	}
}

// TestCost: neither a path nor a payload makes a search take long.
func TestCost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ arg, payload string }{
		"any depth, many times": {strings.Repeat("**.*.", 20) + "x=1", `{"class":"A","args":` + strings.Repeat("[", 80) + "0" + strings.Repeat("]", 80) + "}"},
		"long numbers":          {"**=1" + strings.Repeat("0", 4000), `{"class":"A","args":[` + strings.Repeat("7", 4<<20) + "]}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := matcher(t, filter.Running, "arg", c.arg)
			done := make(chan bool, 1)
			go func() { done <- fits(m, "q", c.payload) }()
			select {
			case fit := <-done:
				require.False(t, fit)
			case <-time.After(3 * time.Second):
				t.Fatal("it takes too long")
			}
		})
	}
}

// TestPaths: a path leads where a plain reading of it leads.
func TestPaths(t *testing.T) {
	t.Parallel()
	const payload = `{"class":"A","args":[[[1,{"a":[2,{"b":-0}]}]],{"a":{"a":3}},[],4]}`
	for arg, want := range map[string]bool{
		"**=1": true, "**.**=1": true, "0.**.0=1": true, "0.0.**.0=1": true, "**.0.**=1": true, "*.*.*=1": true, "*.*=1": false, "**.a.*=2": true, "**.a.**.b=0": true, "**.b.**=0": true,
		"**.a.a=3": true, "**.a.**.a=3": true, "1.**.a=3": true, "1.**.a.a.a=3": false, "3.**=4": true, "3.**.*=4": false, "**.**.3=4": true, "**.3.**=1": false, "2=[]": true, "2.**=5": false, "2.0=1": false, "03=4": false,
	} {
		require.Equal(t, want, fits(matcher(t, filter.Running, "arg", arg), "q", payload), arg)
	}
}

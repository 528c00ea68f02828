package jobkey

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued"
)

// keyer returns a Keyer for a registry, as the daemon makes it.
func keyer(t testing.TB, style string, h *resqued.Handlers) *Keyer {
	t.Helper()
	k, err := New(Config{Style: style, Classes: h.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return h.Lookup(name) }, All: h.JobLockKeyFunc()})
	require.NoError(t, err)
	return k
}

func register(h *resqued.Handlers, class string, opts ...resqued.Option) {
	h.Command(class, []string{"true"}, opts...)
}

func TestKey(t *testing.T) {
	t.Parallel()
	const payload = `{"class":"My::Job", "args":[7, "x", {"a": null}], "id":"0af3"}`
	byClass := func(fn func(*resqued.Job) string) *resqued.Handlers {
		h := resqued.New()
		register(h, "My::Job", resqued.JobLockKey(fn))
		register(h, "Other")
		return h
	}
	byAll := func(fn func(*resqued.Job) string) *resqued.Handlers {
		h := resqued.New()
		h.JobLockKey(fn)
		return h
	}
	constant := func(key string) func(*resqued.Job) string { return func(*resqued.Job) string { return key } }
	argument := func(job *resqued.Job) string { return string(job.Args[0]) } // panics without one
	long := strings.Repeat("x", 600)
	for _, tc := range []struct {
		name     string
		style    string
		handlers *resqued.Handlers
		payload  string
		want     string
		fallback bool
	}{
		{name: "class and arguments", style: "class-args", want: `My::Job[7,"x",{"a":null}]`},
		{name: "the payload", style: "payload", want: payload},
		{name: "an Active Job", style: "class-args", payload: activeJob(`"arguments":[1, "é\/"],"executions":2`), want: `A::B[1,"é/"]`},
		{
			name: "an Active Job, by a template", style: "{{class}}:{{args.0}}:{{args.0.job_id}}:{{args.0.arguments.0}}", payload: activeJob(`"arguments":[5]`),
			want: `A::B:5:7:5`,
		},
		{name: "old Ruby", style: "ruby", want: `{"class"=>"My::Job", "args"=>[7, "x", {"a"=>nil}], "id"=>"0af3"}`},
		{name: "new Ruby", style: "ruby34", want: `{"class" => "My::Job", "args" => [7, "x", {"a" => nil}], "id" => "0af3"}`},
		{name: "a template", style: "{{queue}} {{class}}:{{args.0}}", want: "mail My::Job:7"},
		{
			name: "Ruby's key has any length", style: "ruby", payload: `{"class":"A","args":["` + long + `"]}`,
			want: `{"class"=>"A", "args"=>["` + long + `"]}`,
		},
		{
			name: "that of a template has not", style: "{{args.0}}", payload: `{"class":"A","args":["` + long + `"]}`,
			want: long[:200] + ":" + checksum([]byte(long)),
		},
		{name: "a function of the class goes first", style: "{{class}}", handlers: byClass(constant("mine\x00\xff")), want: "mine\x00\xff"},
		{name: "and is cut too", style: "ruby", handlers: byClass(constant(long)), want: long[:200] + ":" + checksum([]byte(long))},
		{name: "it is not asked about other classes", style: "{{class}}", handlers: byClass(constant("mine")), payload: `{"class":"Other"}`, want: "Other"},
		{name: "where it says nothing the style counts", style: "{{class}}", handlers: byClass(constant("")), want: "My::Job"},
		{name: "a function for all", style: "payload", handlers: byAll(argument), want: "7"},
		{
			name: "one that panics leaves it to the style", style: "class-args", handlers: byAll(argument), payload: `{"class":"A","args":[ ]}`,
			want: "A[]", fallback: true,
		},
		{
			name: "one that panics leaves it to the template", style: "{{class}}!", handlers: byAll(argument), payload: `{"class":"A","args":[]}`,
			want: "A!", fallback: true,
		},
		{name: "a template that comes to nothing", style: "{{args.5}}", want: `My::Job[7,"x",{"a":null}]`, fallback: true},
		{name: "what is not JSON, for Ruby", style: "ruby", payload: "nonsense", want: "nonsense", fallback: true},
		{name: "what is not a job, for a template", style: "{{class}}", payload: `{"a":1}`, want: `{"a":1}`, fallback: true},
		{
			name: "what is not a job and long, for a function", style: "class-args", handlers: byAll(argument), payload: long,
			want: ":" + checksum([]byte(long)), fallback: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := tc.handlers
			if h == nil {
				h = resqued.New()
			}
			if tc.payload == "" {
				tc.payload = payload
			}
			k := keyer(t, tc.style, h)
			for range 2 { // computed, and remembered
				got, ok := k.Key("mail", []byte(tc.payload))
				require.Equal(t, tc.want, got)
				require.Equal(t, !tc.fallback, ok)
				require.Equal(t, tc.want, k.Name("mail", []byte(tc.payload)))
			}
		})
	}

	t.Run("a function sees the job", func(t *testing.T) {
		t.Parallel()
		var seen *resqued.Job
		k := keyer(t, "class-args", byAll(func(job *resqued.Job) string {
			seen = job
			return "key"
		}))
		k.Name("mail", []byte(payload))
		require.Equal(t, "0af3 My::Job mail", seen.ID+" "+seen.Class+" "+seen.Queue)
		require.Equal(t, payload, string(seen.Payload))
		require.Len(t, seen.Args, 3)
	})

	t.Run("a panic is logged once for each function", func(t *testing.T) {
		t.Parallel()
		h := byClass(argument)
		h.JobLockKey(argument)
		core, logs := observer.New(zap.InfoLevel)
		k, err := New(Config{
			Style: "class-args", Classes: h.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return h.Lookup(name) }, All: h.JobLockKeyFunc(), Log: zap.New(core),
		})
		require.NoError(t, err)
		for _, class := range []string{"My::Job", "A", "My::Job", "B"} {
			k.Name("q"+class, fmt.Appendf(nil, `{"class":%q}`, class))
		}
		require.Equal(t, 2, logs.Len())
		require.Contains(t, logs.All()[0].ContextMap()["panic"], "index out of range")
	})

	t.Run("which keys have to be computed here", func(t *testing.T) {
		t.Parallel()
		for _, style := range Styles {
			require.Equal(t, style == "ruby" || style == "ruby34", keyer(t, style, resqued.New()).NeedsGo(), style)
		}
		require.True(t, keyer(t, "{{class}}", resqued.New()).NeedsGo())
		require.True(t, keyer(t, "payload", byAll(argument)).NeedsGo())
		k := keyer(t, "payload", byClass(argument))
		require.False(t, k.NeedsGo())
		require.Equal(t, []string{"My::Job"}, k.ByClass())
	})

	t.Run("a wrong style is refused", func(t *testing.T) {
		t.Parallel()
		_, err := New(Config{Style: "{{klass}}"})
		require.ErrorContains(t, err, `job_lock_key "{{klass}}": at character 1: {{klass}} is unknown`)
		_, err = New(Config{Style: "md5"})
		require.EqualError(t, err, `job_lock_key "md5" is not known`)
	})
}

func TestCache(t *testing.T) {
	t.Parallel()
	counting := func(calls *int) *Keyer {
		h := resqued.New()
		h.JobLockKey(func(job *resqued.Job) string {
			*calls++
			return job.Queue + string(job.Payload)
		})
		return keyer(t, "class-args", h)
	}
	payload := func(i int) []byte { return fmt.Appendf(nil, `{"class":"A","args":[%d]}`, i) }

	t.Run("a payload that comes again is not computed again", func(t *testing.T) {
		t.Parallel()
		calls := 0
		k := counting(&calls)
		for range 3 {
			require.Equal(t, `q{"class":"A","args":[1]}`, k.Name("q", payload(1)))
		}
		require.Equal(t, 1, calls)
	})
	t.Run("queue and payload count, and not only what they are together", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, identify("ab", []byte("c")), identify("a", []byte("bc")))
		calls := 0
		k := counting(&calls)
		require.NotEqual(t, k.Name("a", payload(1)), k.Name("b", payload(1)))
		require.Equal(t, 2, calls)
	})
	t.Run("what is used stays while others come and go", func(t *testing.T) {
		t.Parallel()
		calls := 0
		k := counting(&calls)
		for i := range 5 * cacheEntries {
			k.Name("q", payload(0))
			k.Name("q", payload(i+1))
		}
		require.Equal(t, 5*cacheEntries+1, calls)
		require.LessOrEqual(t, len(k.cache.young), cacheEntries)
		require.LessOrEqual(t, len(k.cache.old), cacheEntries)
	})
	t.Run("long keys fill it by their length", func(t *testing.T) {
		t.Parallel()
		k := keyer(t, "ruby", resqued.New())
		text := bytes.Repeat([]byte("x"), cacheBytes/4)
		for i := range 20 {
			k.Name("q", fmt.Appendf(nil, `{"class":"A","args":[%d,"%s"]}`, i, text))
			require.LessOrEqual(t, k.cache.bytes, cacheBytes)
		}
		held := 0
		for _, generation := range []map[identity]entry{k.cache.young, k.cache.old} {
			for _, e := range generation {
				held += len(e.key)
			}
		}
		require.Positive(t, held)
		require.LessOrEqual(t, held, 2*cacheBytes)
	})
	t.Run("one that is too long is not kept", func(t *testing.T) {
		t.Parallel()
		k := keyer(t, "ruby", resqued.New())
		k.Name("q", fmt.Appendf(nil, `{"class":"A","args":["%s"]}`, bytes.Repeat([]byte("x"), cacheBytes+1)))
		require.Empty(t, k.cache.young)
	})
	t.Run("several may ask at a time", func(t *testing.T) {
		t.Parallel()
		k := keyer(t, "ruby34", resqued.New())
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				for i := range 500 {
					k.Name("q", payload(i%50))
				}
			})
		}
		wait.Wait()
		require.Len(t, k.cache.young, 50)
	})
}

// Programs of several languages push equal jobs, each with the escapes of its own encoder.
func TestSpellings(t *testing.T) {
	t.Parallel()
	for _, style := range []string{ClassArgs, Ruby, "{{args}}"} {
		want, _ := keyer(t, style, resqued.New()).Key("q", []byte(`{"class":"J","args":["a/ü😀<",["\n"]]}`))
		for _, args := range []string{
			`["a\/\u00fc\ud83d\ude00<",["\n"]]`, `["a/ü😀\u003c",["\n"]]`, `["a/\u00FC\uD83D\uDE00\u003C",["\u000a"]]`, `[ "\u0061/ü😀<", ["\n"] ]`,
		} {
			got, ok := keyer(t, style, resqued.New()).Key("q", []byte(`{"class":"J","args":`+args+`}`))
			require.True(t, ok)
			require.Equal(t, want, got, "%s %s", style, args)
		}
	}
}

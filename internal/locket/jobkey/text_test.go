package jobkey

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

// scripted computes keys by the function of the scripts in internal/store.
type scripted struct {
	client *redis.Client
	script *redis.Script
}

func newScripted(t testing.TB, server *redistest.Server) scripted {
	t.Helper()
	source := ""
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "payload.lua" {
			return err
		}
		text, err := os.ReadFile(path)
		source += string(text)
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, source)
	// With the fast path of exchange, which must not make a difference.
	return scripted{client: server.Client(t), script: redis.NewScript(`local find, byte, sub, match = string.find, string.byte, string.sub, string.match
		` + source + `
		local stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname)
		local names = {}
		for i = 2, #ARGV do
			local name = lockname(ARGV[i], ARGV[1])
			local quick = ARGV[1] ~= 'payload' and quickname('', ARGV[i], not spaced(ARGV[i]))
			names[i - 1] = quick and quick ~= name and quick .. ' is not ' .. name or name
		end
		return names`)}
}

// compare fails the test if Go and the script compute different texts for a payload.
func (s scripted) compare(ctx context.Context, t require.TestingT, payloads ...string) {
	for _, style := range []string{ClassArgs, Payload} {
		k, err := New(Config{Style: style})
		require.NoError(t, err)
		args := []any{style}
		for _, payload := range payloads {
			args = append(args, payload)
		}
		want, err := s.script.Run(ctx, s.client, nil, args...).StringSlice()
		require.NoError(t, err)
		for i, payload := range payloads {
			require.Equal(t, want[i], k.Name("q", []byte(payload)), "%s: %q", style, payload)
		}
	}
}

// oddPayloads are payloads of Resque, payloads of other programs, and texts that are no
// payloads.
func oddPayloads() []string {
	long := strings.Repeat("y", 300)
	return []string{
		`{"class":"A","args":[1]}`, `{"class":"A","args":[]}`, `{"class":"A"}`, `{"class":"A","args":null}`, `{"args":[1],"class":"A"}`,
		`{"class":"A","args":[ 1 , "a b" , {"k" : [ ] } ],"id":"x"}`, `{"class":"A","args":["` + long + `"]}`, long, "",
		"{", "{}", "[]", `{"class":""}`, `{"class":"","args":[1]}`, `{"class":1}`, `{"class":"A","args":}`, `{"class":"A","args":[1]`,
		`{"class":"A","args":[1],"class":"B"}`, `{"class":"A\u0042","args":[1]}`, `{"class":"A\"","args":[1]}`, `{"cl\u0061ss":"A"}`,
		` { "class" : "A" , "args" : [ 1 ] } trailing`, `{"class":"A","args":{"a":1}}`, `{"class":"A","args":"x y"}`, `{"class":"A","args":1.50}`,
		`{"x":{"class":"B"},"class":"A","args":["]","\"]",[[]]]}`, "{\"class\":\"A\",\v\f\r\n\t\"args\":[1]}", "{\"class\":\"A\x00\",\"args\":[\"\x00 \xff\"]}",
		`{"class":"A","args":["\\"],"b":1}`, `{"class":"A","args":["\`, `{"class":"A","x":tru e}`, `{"class":"A","args":[1}}`, `{"class":"A",}`,
		`{"class":"é","args":["é ü"]}`, `{"class":"A","args":[1]]}`, `{"class":"A" "args":[1]}`,
		`{"class":"A","args":["a b",1]}`, `{"class":"A","args":["a, b"]}`, `{"class":"A","args":["a ]",1]}`, `{"class":"A","args":["a" ,1]}`,
		`{"class":"A","args":[ ]}`, `{"class":"A","args":["a^b","|"]}`, `{"class":"A","args":["a]}`, "{\"class\":\"A\",\"args\":[1,\t2]}",
		"{\"class\":\"A\",\"args\":[1,\r2]}", "{\"class\":\"A\",\"args\":[1,\n2]}", "{\"class\":\"A\",\"args\":[1,\v2]}",
		`{"class":"` + long + long[:100] + `","args":["a]}`,
		`{"class":"A","args":["` + long[:50] + ` ` + long[:145] + `"]}`, `{"class":"A","args":["` + long[:50] + ` ` + long[:146] + `"]}`,
		`{"class":"A","args":["a\u00e9\/","\u0022\u005c\u000a\u0001\u007f\u20AC"]}`, `{"class":"A\/\u00e9","args":["\\u0041","\ud83d\ude00","\ud83dx","\ude00"]}`,
		activeJob(`"executions":0,"arguments":["a", [1]]`), activeJob(`"arguments":["\/"],"arguments":[2]`), activeJob(`"arguments":{}`), activeJob(`"arguments":[1]} , {"a":1`),
		`{"class":"ActiveJob::JobWrapper","args":[ { "job_class" : "A" , "arguments" : [ ] } ] }`, `{"class":"ActiveJob::JobWrapper","args":[{"job_class":"","arguments":[]}]}`,
		`{"args":[{"arguments":[],"job_class":"A"}],"class":"ActiveJob::JobWrapper"}`, `{"class":"JobWrapper","args":[{"job_class":"A","arguments":[]}]}`,
		`{"class":"","args":[1]x`, long[:200], long[:201], `{"class":"A","args":["` + long[:196] + `"]}`, `{"class":"A","args":["` + long[:197] + `"]}`,
	}
}

// activeJob returns the payload of a job with these members.
func activeJob(members string) string {
	return `{"class":"ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper","args":[{"job_class":"A::B","job_id":"7",` + members + `}]}`
}

// pieces generates texts from parts of payloads, most of which are not JSON.
func pieces() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{
		`{`, `}`, `[`, `]`, `,`, `:`, ` `, "\n", "\x00", `"`, `\`, `\"`, `"class"`, `"args"`, `"class":"A"`, `"args":[`, `{"class":"A","args":[`,
		`null`, `1`, `"x y"`, `"\u0041"`, `\u00e9`, `\ud83d`, `\ude00`, `\/`, `{"class":"X::JobWrapper","args":[`, `{"job_class":"A","arguments":[`, `"arguments":[1]`, `}]}`, `é`, "\xff", `"id":"1"`, strings.Repeat("z ", 60),
		`"` + strings.Repeat("long ", 210) + `"`, strings.Repeat("12,", 400), // the script reads long ones another way
	})
	return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "") })
}

// valid generates payloads that are JSON, or nearly: with escapes, all of Unicode, floats, large
// integers, nested and repeated keys, white space wherever it may stand, and invalid UTF-8.
func valid() *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", "", "", "", " ", "\r\n", "\n", "\t ", "  ", "\r"})
	scalar := rapid.OneOf(
		rapid.SampledFrom([]string{
			`null`, `true`, `false`, `0`, `-0`, `1.0`, `1.50`, `1e3`, `1E-7`, `-0.0`, `12345678901234567890`, `9007199254740993`, `1e400`,
			`""`, `"a b"`, `"a, b"`, `"[1, 2]"`, `"]"`, `"}"`, `"\""`, `"\\"`, `"\\\""`, `"\u0041"`, `"\ud83d\ude00"`, `"\u0000"`, `"\/"`, `"\n\t"`,
			`"é"`, `"日本語"`, `"😀"`, "\"\u2028\"", "\"\xff\"", "\"\xc3\"", "\"\x00\"", `"class"`, `"args"`, `"` + strings.Repeat("x", 190) + `"`,
			`"` + strings.Repeat(`\" [`, 100) + `"`, `"` + strings.Repeat("long ", 300) + `"`,
		}),
		rapid.Map(rapid.Float64(), func(f float64) string { return fmt.Sprint(f) }),
		rapid.Map(rapid.String(), func(s string) string { return fmt.Sprintf("%q", s) }),
	)
	list := func(t *rapid.T, open, close string, item func() string) string {
		var b strings.Builder
		b.WriteString(open + space.Draw(t, "space"))
		for i := range rapid.IntRange(0, 4).Draw(t, "items") {
			if i > 0 {
				b.WriteString(space.Draw(t, "space") + "," + space.Draw(t, "space"))
			}
			b.WriteString(item())
		}
		return b.String() + space.Draw(t, "space") + close
	}
	name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"a"`, `"class"`, `"args"`, `"é"`, `"\u0061"`, `""`})
	var value func(t *rapid.T, depth int) string
	value = func(t *rapid.T, depth int) string {
		switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case depth > 0 && kind == 0:
			return list(t, "[", "]", func() string { return value(t, depth-1) })
		case depth > 0 && kind == 1 && rapid.Bool().Draw(t, "job"):
			return list(t, "{", "}", func() string {
				if rapid.Bool().Draw(t, "class") {
					return `"job_class":` + rapid.SampledFrom([]string{`"B"`, `"B\/\u0043"`, `1`}).Draw(t, "job")
				}
				return `"arguments":` + value(t, depth-1)
			})
		case depth > 0 && kind == 1:
			return list(t, "{", "}", func() string {
				return name.Draw(t, "name") + space.Draw(t, "space") + ":" + space.Draw(t, "space") + value(t, depth-1)
			})
		}
		return scalar.Draw(t, "scalar")
	}
	class := rapid.SampledFrom([]string{`"A"`, `"X::JobWrapper"`, `"My::Job"`, `"é"`, `"A\u0042"`, `"A\"B"`, `""`, `7`, `null`})
	return rapid.Custom(func(t *rapid.T) string {
		args := func() string { return list(t, "[", "]", func() string { return value(t, 3) }) }
		fields := []string{`"class":` + class.Draw(t, "class"), `"args":` + args()}
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			fields = append(fields, rapid.SampledFrom([]string{
				`"id":"0af3"`, `"queue":"q"`, `"class" : "B"`, `"args":` + space.Draw(t, "space") + args(), `"args":null`, `"at":1.5`, `"o":` + value(t, 2),
			}).Draw(t, "field"))
		}
		if rapid.Bool().Draw(t, "shuffled") {
			fields = rapid.Permutation(fields).Draw(t, "fields")
		}
		before, after := space.Draw(t, "space"), space.Draw(t, "space")
		return space.Draw(t, "space") + "{" + before + strings.Join(fields, after+","+before) + after + "}" + space.Draw(t, "space")
	})
}

// This property must hold so that a job has one lock: Go and the scripts compute the same key
// for any payload.
func TestGoAndScriptsComputeTheSame(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		s, ctx := newScripted(t, server), t.Context()
		for _, payload := range oddPayloads() {
			t.Run(payload, func(t *testing.T) { s.compare(ctx, t, payload) })
		}
		t.Run("always the same ones", func(t *testing.T) {
			const seeds = 300
			var payloads []string
			for seed := range seeds {
				payloads = append(payloads, pieces().Example(seed), valid().Example(seed))
			}
			s.compare(ctx, t, payloads...)
		})
		t.Run("others each time", func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { s.compare(ctx, t, pieces().Draw(t, "pieces"), valid().Draw(t, "valid")) })
		})
	})
}

// FuzzText looks for a payload whose text differs between Go and the scripts.
func FuzzText(f *testing.F) {
	for _, payload := range oddPayloads() {
		f.Add(payload)
	}
	for seed := range 20 {
		f.Add(valid().Example(seed))
	}
	s := newScripted(f, redistest.Shared(f))
	f.Fuzz(func(t *testing.T, payload string) { s.compare(t.Context(), t, payload) })
}

func FuzzKey(f *testing.F) {
	for _, seed := range []string{`{"class":"A","args":[1]}`, `{"class":"A","args":["\\"]`, `{"class":"A" , "args" : [{"a":"]"}]}`, "", "{", `"`} {
		f.Add([]byte(seed))
	}
	var keyers []*Keyer
	for _, style := range []string{"class-args", "payload", "ruby", "ruby34", "{{class}}{{args}}{{args.0.a}}"} {
		k, err := New(Config{Style: style})
		require.NoError(f, err)
		keyers = append(keyers, k)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, k := range keyers {
			before := string(payload)
			key, ok := k.compute("q", payload)
			again, okAgain := k.compute("q", payload)
			require.Equal(t, key, again)
			require.Equal(t, ok, okAgain)
			require.Equal(t, before, string(payload))
		}
	})
}

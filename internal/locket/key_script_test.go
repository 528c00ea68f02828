package locket

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/redistest"
)

// TestClassArgsIsWhatTheScriptSays compares with the script's own function, on
// payloads that Resque writes, that somebody else writes, and that are none.
func TestClassArgsIsWhatTheScriptSays(t *testing.T) {
	t.Parallel()
	source := ""
	for _, name := range []string{"base", "payload"} {
		text, err := os.ReadFile("../store/lua/lib/" + name + ".lua")
		require.NoError(t, err)
		source += string(text) + "\n"
	}
	script := redis.NewScript(source + `local stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname)
		local name = lockname(ARGV[1], ARGV[2])
		local quick = ARGV[2] ~= 'payload' and quickname('', ARGV[1], not spaced(ARGV[1]))
		return quick and quick ~= name and quick .. ' is not ' .. name or name`)
	client, ctx := redistest.Shared(t).Client(t), t.Context()
	compare := func(t require.TestingT, payload string) {
		for style, got := range map[string]string{"class-args": ClassArgs([]byte(payload)), "payload": wholePayload([]byte(payload))} {
			want, err := script.Run(ctx, client, nil, payload, style).Text()
			require.NoError(t, err)
			require.Equal(t, want, got, "%s: %q", style, payload)
		}
	}
	long := strings.Repeat("y", 300)
	for _, payload := range []string{
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
		`{"class":"A","args":["` + long[:50] + ` ` + long[:145] + `"]}`, `{"class":"A","args":["` + long[:50] + ` ` + long[:146] + `"]}`,
		`{"class":"","args":[1]x`, long[:200], long[:201], `{"class":"A","args":["` + long[:196] + `"]}`, `{"class":"A","args":["` + long[:197] + `"]}`,
	} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			compare(t, payload)
		})
	}
	piece := rapid.SampledFrom([]string{
		`{`, `}`, `[`, `]`, `,`, `:`, ` `, "\n", "\x00", `"`, `\`, `\"`, `"class"`, `"args"`, `"class":"A"`, `"args":[`, `{"class":"A","args":[`,
		`null`, `1`, `"x y"`, `"\u0041"`, `é`, "\xff", `"id":"1"`, strings.Repeat("z ", 60),
		`"` + strings.Repeat("long ", 210) + `"`, strings.Repeat("12,", 400), // the script reads long ones another way
	})
	rapid.Check(t, func(t *rapid.T) {
		compare(t, strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), ""))
	})
}

func FuzzKey(f *testing.F) {
	for _, seed := range []string{`{"class":"A","args":[1]}`, `{"class":"A","args":["\\"]`, `{"class":"A" , "args" : [{"a":"]"}]}`, "", "{", `"`} {
		f.Add([]byte(seed))
	}
	var keyers []*Keyer
	for _, style := range []string{"class-args", "payload", "ruby", "ruby34", "{{class}}{{args}}{{args.0.a}}"} {
		k, err := NewKeyer(KeyerConfig{Style: style})
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

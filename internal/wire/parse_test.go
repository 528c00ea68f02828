package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func TestParse(t *testing.T) {
	t.Parallel()
	raw := func(args ...string) resqued.Args {
		var a resqued.Args
		for _, arg := range args {
			a = append(a, json.RawMessage(arg))
		}
		return a
	}
	tests := []struct {
		name, in string
		want     Envelope
	}{
		{"a payload of Ruby's", `{"class":"A","args":[1]}`, Envelope{Class: "A", Args: raw("1")}},
		{
			"a payload of the Files.com fork", `{"class":"A","args":[1],"id":"0af","generation":2}`,
			Envelope{Class: "A", Args: raw("1"), ID: "0af", Generation: 2},
		},
		{"a payload of node-resque", `{"class":"A","queue":"q","args":[1]}`, Envelope{Class: "A", Args: raw("1")}},
		{"missing args are none", `{"class":"A"}`, Envelope{Class: "A"}},
		{"null args are none", `{"args":null,"class":"A"}`, Envelope{Class: "A"}},
		{"empty args are none", `{"class":"A","args":[ ]}`, Envelope{Class: "A"}},
		{
			"the bytes of arguments stay", `{"class":"A","args":[ 12345678901234567890 , {"b":1,  "a":[]},{},[],"<>&` + "\u2028" + `",1e400,"\u003c" ]}`,
			Envelope{Class: "A", Args: raw(`12345678901234567890`, `{"b":1,  "a":[]}`, `{}`, `[]`, `"<>&`+"\u2028"+`"`, `1e400`, `"\u003c"`)},
		},
		{"space around it is allowed", " \t\r\n{ \"class\" : \"A\" , \"args\" : [ ] } \n", Envelope{Class: "A"}},
		{"escapes in a class are decoded", `{"cl\u0061ss":"Foo\u003a:B\u00e4r\ud83d\ude00"}`, Envelope{Class: "Foo::Bär😀"}},
		{"a hostile class is a class", `{"class":"../\u0000\r\n<script>"}`, Envelope{Class: "../\x00\r\n<script>"}},
		{"an id that is not text is left alone", `{"class":"A","id":7,"generation":"x"}`, Envelope{Class: "A"}},
		{"a generation that is not an integer is left alone", `{"class":"A","generation":1.5}`, Envelope{Class: "A"}},
		{
			"a time in whole seconds", `{"class":"A","enqueued_at":1795186581}`,
			Envelope{Class: "A", EnqueuedAt: time.Unix(1795186581, 0)},
		},
		{
			"a time with a fraction", `{"class":"A","enqueued_at":1795186581.25}`,
			Envelope{Class: "A", EnqueuedAt: time.Unix(1795186581, 250e6)},
		},
		{"a time beyond all calendars is none", `{"class":"A","enqueued_at":1e300}`, Envelope{Class: "A"}},
		{"a time before 1970 is none", `{"class":"A","enqueued_at":-5}`, Envelope{Class: "A"}},
		{"unknown keys may differ by case", `{"class":"A","foo":1,"Foo":2}`, Envelope{Class: "A"}},
		{"nesting of 100 is allowed", `{"class":"A","args":` + nested(99) + `}`, Envelope{Class: "A", Args: raw(nested(98))}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse([]byte(tt.in), 0)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	many := `{"class":"A"`
	for i := range 20 {
		many += fmt.Sprintf(`,"k%d":%d`, i, i)
	}
	tests := []struct{ name, in, reason string }{
		{"nothing", ``, "empty"},
		{"white space", " \n", "ends where an object should stand"},
		{"a byte order mark", "\ufeff" + `{"class":"A"}`, "byte order mark"},
		{"text that is not JSON", `hello`, "not JSON"},
		{"text that begins like null", `not json`, `not JSON: byte 1 is 'o' where "null" should stand`},
		{"text that begins like a boolean", `true story`, "not JSON: 5 bytes follow what begins like a boolean"},
		{"text that begins like a number", `-`, "not JSON: it ends where a value should stand"},
		{"an address", `10.0.0.1`, "not JSON: 4 bytes follow what begins like a number"},
		{"text that begins like a string", `"hello`, "not JSON: it ends where a closing quote should stand"},
		{"text that begins like an array", `[INFO] started`, "not JSON: byte 1 is 'I' where a value should stand"},
		{"null and white space", " null\n", "it is null, not an object"},
		{"a word that begins like true", `{"class":"A","args":[tru]}`, `not JSON: byte 24 is ']' where "true" should stand`},
		{"a truncated payload", `{"class":"A"`, "ends where a comma"},
		{"a trailing comma", `{"class":"A",}`, "a key should stand"},
		{"trailing bytes", `{"class":"A"} x`, "1 bytes follow"},
		{"a trailing NUL", "{\"class\":\"A\"}\x00", "1 bytes follow"},
		{"a second object", `{"class":"A"}{"class":"B"}`, "13 bytes follow"},
		{"null", `null`, "it is null"},
		{"an array", `[1,2]`, "it is an array"},
		{"a number", `42`, "it is a number"},
		{"a string", `"A"`, "it is a string"},
		{"a boolean", `true`, "it is a boolean"},
		{"a repeated class", `{"class":"A","class":"B"}`, `"class" is there twice`},
		{"a class repeated by escapes", `{"class":"A","cl\u0061ss":"B"}`, `"class" is there twice`},
		{"a second spelling of class", `{"class":"A","CLASS":"B"}`, `"class" is there in two spellings`},
		{"a second spelling that comes first", `{"Args":[2],"class":"A","args":[1]}`, `"args" is there in two spellings`},
		{"a spelling that only Unicode folds", `{"class":"A","cla` + "\u017f" + `s":"B"}`, "two spellings"},
		{"a repeated unknown key", `{"class":"A","x":1,"x":2}`, `"x" is there twice`},
		{"a repeated key among many", many + `,"k3":1}`, `"k3" is there twice`},
		{"a repeated late key among many", many + `,"k19":1}`, `"k19" is there twice`},
		{"a missing class", `{"args":[1]}`, `no "class"`},
		{"an object without keys", `{}`, `no "class"`},
		{"a class in another spelling alone", `{"CLASS":"A"}`, `no "class"`},
		{"an empty class", `{"class":""}`, `"class" is empty`},
		{"a class that is null", `{"class":null}`, `"class" is null, not a string`},
		{"a class that is a number", `{"class":1}`, `"class" is a number, not a string`},
		{"args that are an object", `{"class":"A","args":{}}`, `"args" is an object, not an array`},
		{"args that are a text", `{"class":"A","args":"x"}`, `"args" is a string, not an array`},
		{"invalid UTF-8", "{\"class\":\"A\",\"args\":[\"\xff\"]}", "invalid UTF-8 at byte 22"},
		{"a surrogate in UTF-8", "{\"class\":\"\xed\xa0\x80\"}", "invalid UTF-8"},
		{"half a surrogate pair", `{"class":"A","args":["\ud800"]}`, "half a surrogate pair at byte 22"},
		{"the lower half alone", `{"class":"A","args":["\udc00x"]}`, "half a surrogate pair"},
		{"two upper halves", `{"class":"A","args":["\ud800\ud800"]}`, "half a surrogate pair"},
		{"nesting beyond 100", `{"class":"A","args":` + nested(100) + `}`, "deeper than 100"},
		{"nesting beyond 100 elsewhere", `{"class":"A","x":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat("}", 100) + `}`, "deeper than 100"},
		{"a control character in a text", "{\"class\":\"a\nb\"}", "control character"},
		{"a leading zero", `{"class":"A","args":[01]}`, "not JSON"},
		{"NaN", `{"class":"A","args":[NaN]}`, "a value should stand"},
		{"a bare point", `{"class":"A","args":[1.]}`, "a digit should stand"},
		{"a bare exponent", `{"class":"A","args":[1e]}`, "a digit should stand"},
		{"an unknown escape", `{"class":"\x41"}`, "an escape should stand"},
		{"single quotes", `{'class':'A'}`, "a key should stand"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.in), 0)
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Contains(t, invalid.Reason, tt.reason)
		})
	}
}

// Eight bytes of a text are looked at together, so each byte has to be tried at each place.
func TestParseLooksAtEachByte(t *testing.T) {
	t.Parallel()
	for length := range 18 {
		for at := range length {
			for c := range 256 {
				text := []byte(strings.Repeat("~", length))
				text[at] = byte(c)
				in := []byte(`{"class":"A","args":["` + string(text) + `"]}`)
				_, err := Parse(in, 0)
				if want := json.Valid(in) && utf8.Valid(in); want != (err == nil) {
					t.Fatalf("%q: %v", in, err)
				}
			}
		}
	}
}

func TestParseLimit(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"class":"A","args":["` + strings.Repeat("x", 1000) + "\x1b\"]}")
	_, err := Parse(payload, 100)
	require.EqualError(t, err, fmt.Sprintf("invalid payload: %d bytes are more than the 100 that max_payload allows: ", len(payload))+
		`{"class":"A","args":["`+strings.Repeat("x", 95)+"…")
	payload = []byte(`{"class":"A","args":[]}`)
	_, err = Parse(payload, int64(len(payload)))
	require.NoError(t, err)
}

func TestInvalidErrorIsPrintable(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("\x1b]0;owned\a\xff\u202e"), 0)
	require.EqualError(t, err, `invalid payload: not JSON: byte 0 is '\x1b' where an object should stand: \x1b]0;owned\a\xff\u202e`)
}

func TestParseAllocatesLittle(t *testing.T) {
	payload := []byte(`{"class":"Mail","args":[42,"hello"],"id":"0af","generation":1}`)
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := Parse(payload, 1<<20); err != nil {
			t.Error(err)
		}
	})
	require.LessOrEqual(t, allocs, 3.0, "class, args and id")
}

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func BenchmarkParse(b *testing.B) {
	for name, payload := range map[string]string{
		"small": `{"class":"Mail","args":[42,"hello"]}`,
		"64KiB": `{"class":"Mail","args":[42,"` + strings.Repeat("héllo wörld ", 5000) + `"]}`,
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(payload)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(raw, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"class":"A","args":[1,"x",{"a":null},[]],"id":"0af","generation":1,"enqueued_at":1.5}`,
		`{"class":"A","CLASS":"B"}`, `{"class":"\ud83d\ude00","args":null}`, `[1]`, "\ufeff{}",
		`{"class":"A","args":` + nested(99) + `}`, "{\"class\":\"\xff\"}", `{"cla` + "\u017f" + `s":"A"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		before := bytes.Clone(payload)
		e, err := Parse(payload, 0)
		require.Equal(t, before, payload, "the payload was changed")
		if err != nil {
			var invalid *InvalidError
			require.True(t, errors.As(err, &invalid))
			require.True(t, utf8.ValidString(err.Error()))
			require.LessOrEqual(t, len(invalid.Excerpt), excerptLen)
			return
		}
		var std struct {
			Class string `json:"class"`
		}
		require.NoError(t, json.Unmarshal(payload, &std))
		require.Equal(t, std.Class, e.Class)
		// By exact key, since "ARGS" alone is a key that is not read.
		var exact map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(payload, &exact))
		var args []json.RawMessage
		if raw, ok := exact["args"]; ok {
			require.NoError(t, json.Unmarshal(raw, &args))
		}
		require.Len(t, e.Args, len(args))
		rest := payload
		for i, arg := range e.Args {
			require.Equal(t, string(args[i]), string(arg))
			at := bytes.Index(rest, arg)
			require.GreaterOrEqual(t, at, 0, "the arguments stand in the payload, in order")
			rest = rest[at+len(arg):]
		}
	})
}

package wire

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/internal/wire/jsontext"
)

// inspectCases are the JSON, the text of old Ruby and that of new Ruby.
func inspectCases(t testing.TB) [][3]string {
	t.Helper()
	text, err := os.ReadFile("testdata/inspect.txt")
	require.NoError(t, err)
	var cases [][3]string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		if strings.HasPrefix(block, "#") {
			continue
		}
		lines := strings.Split(block, "\n")
		require.Len(t, lines, 3, block)
		cases = append(cases, [3]string(lines))
	}
	require.NotEmpty(t, cases)
	return cases
}

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, c := range inspectCases(t) {
		t.Run(c[0], func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c[1], inspect(t, c[0], RubyUpTo33))
			require.Equal(t, c[2], inspect(t, c[0], Ruby34))
		})
	}

	t.Run("formatting marks and private characters count as printable", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"\u00ad", "\u200b", "\u200e", "\ufeff", "\ue000", "\U000f0000", "\U0010fffd", "\U000e0001"} {
			require.Equal(t, `"`+text+`"`, inspect(t, `"`+text+`"`, RubyUpTo33))
		}
	})
	t.Run("controls, separators of lines and what is not assigned are escaped", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			"\u0080": `\u0080`, "\u0085": `\u0085`, "\u009f": `\u009F`, "\u2028": `\u2028`, "\u0378": `\u0378`, "\ufdd0": `\uFDD0`,
			"\ufffe": `\uFFFE`, "\U0001fffe": `\u{1FFFE}`, "\U0010ffff": `\u{10FFFF}`,
		} {
			require.Equal(t, `"`+want+`"`, inspect(t, `"`+text+`"`, Ruby34))
		}
	})
	t.Run("what is not JSON is refused with the reason", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			"":               "invalid payload: not JSON: it ends where a value should stand: ",
			"{} x":           "invalid payload: 1 bytes follow the value: {} x",
			`{"a":"\ud83d"}`: `invalid payload: half a surrogate pair at byte 6: {"a":"\ud83d"}`,
			"[1,]":           `invalid payload: not JSON: byte 3 is ']' where a value should stand: [1,]`,
			"NaN":            `invalid payload: not JSON: byte 0 is 'N' where a value should stand: NaN`,
		} {
			_, err := Inspect([]byte(text), Ruby34)
			require.EqualError(t, err, want)
		}
	})
	t.Run("nesting ends where Ruby ends it", func(t *testing.T) {
		t.Parallel()
		deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
		require.Equal(t, deep, inspect(t, deep, Ruby34))
		_, err := Inspect([]byte("["+deep+"]"), Ruby34)
		require.ErrorContains(t, err, "nested deeper than 100")
	})
}

func TestRubyJoin(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, want string }{
		{`[]`, ""},
		{`[1]`, "1"},
		{`[null]`, ""},
		{`[1,null,"x"]`, "1--x"},
		{`[1,[2,[3]],4]`, "1-2-3-4"},
		{`[1,[],2]`, "1--2"},
		{`[[]]`, ""},
		{`["a-b",""," c\n","\"#{x}"]`, "a-b-- c\n-\"#{x}"},
		{`[true,false,-0,-0.0,1e3,1e15,12345678901234567890]`, "true-false-0--0.0-1000.0-1.0e+15-12345678901234567890"},
		{`[{"a":[1,null,"x"]},{}]`, `{"a"=>[1, nil, "x"]}-{}`},
		{`[[1,{"a":1}]]`, `1-{"a"=>1}`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			got, err := RubyJoin(args(t, tc.args), RubyUpTo33)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	t.Run("hashes follow the version of Ruby", func(t *testing.T) {
		t.Parallel()
		got, err := RubyJoin(args(t, `[1,{"a":{"b":2}}]`), Ruby34)
		require.NoError(t, err)
		require.Equal(t, `1-{"a" => {"b" => 2}}`, got)
	})
	t.Run("an argument that is not JSON is named", func(t *testing.T) {
		t.Parallel()
		_, err := RubyJoin(resqued.Args{json.RawMessage("1"), json.RawMessage("x")}, Ruby34)
		require.EqualError(t, err, `argument 1: invalid payload: not JSON: byte 0 is 'x' where a value should stand: x`)
	})
}

func TestInspectProperties(t *testing.T) {
	t.Parallel()
	t.Run("a float is the shortest text that means it", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			f := rapid.Float64().Draw(t, "float")
			if math.IsInf(f, 0) || math.IsNaN(f) {
				t.Skip("no JSON")
			}
			text := string(jsontext.AppendRubyFloat(nil, f))
			back, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			require.Equal(t, math.Float64bits(f), math.Float64bits(back))
			require.Regexp(t, `^-?(\d+\.\d+|\d\.\d+e[-+]\d\d+)$`, text)
		})
	})
	t.Run("white space between values changes nothing", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := jsonText().Draw(t, "json")
			require.Equal(t, inspect(t, text, RubyUpTo33), inspect(t, spread(text), RubyUpTo33))
		})
	})
	t.Run("the style changes arrows alone", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := jsonText().Filter(func(s string) bool { return !strings.Contains(s, "=>") }).Draw(t, "json")
			require.Equal(t, strings.ReplaceAll(inspect(t, text, RubyUpTo33), "=>", " => "), inspect(t, text, Ruby34))
		})
	})
}

// TestInspectAgainstRuby asks the Ruby of this machine, if there is one.
func TestInspectAgainstRuby(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		t.Skip("no ruby on the PATH to compare with; testdata/inspect.txt was recorded with one")
	}
	const program = `require "json"; STDOUT.sync = true; puts RUBY_VERSION
		STDIN.each_line { |l| v = JSON.parse(l.unpack1("m").force_encoding("UTF-8"), max_nesting: 100)
			puts [v.inspect].pack("m0"), [v.join("-")].pack("m0") }`
	cmd := exec.CommandContext(t.Context(), ruby, "-W0", "-e", program)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}()
	answers := bufio.NewReader(out)
	line := func(t require.TestingT) string {
		text, err := answers.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(text)
	}
	var major, minor int
	_, err = fmt.Sscanf(line(t), "%d.%d", &major, &minor)
	require.NoError(t, err)
	style := RubyUpTo33
	if major > 3 || major == 3 && minor >= 4 {
		style = Ruby34
	}
	compare := func(t require.TestingT, text string) {
		_, err := io.WriteString(in, base64.StdEncoding.EncodeToString([]byte(text))+"\n")
		require.NoError(t, err)
		inspected, err := base64.StdEncoding.DecodeString(line(t))
		require.NoError(t, err)
		joined, err := base64.StdEncoding.DecodeString(line(t))
		require.NoError(t, err)
		require.Equal(t, string(inspected), inspect(t, text, style), text)
		got, err := RubyJoin(args(t, text), style)
		require.NoError(t, err)
		require.Equal(t, string(joined), got, text)
	}
	for _, c := range inspectCases(t) {
		compare(t, "["+c[0]+"]")
	}
	rapid.Check(t, func(t *rapid.T) {
		compare(t, "["+jsonText().Draw(t, "json")+"]")
	})
}

func FuzzInspect(f *testing.F) {
	for _, c := range inspectCases(f) {
		f.Add([]byte(c[0]))
	}
	for _, seed := range []string{"", "{", `{"a":1}x`, `"\ud83d"`, "[1,]", "\xff", `{"a":{"a":1,"b":2,"a":3},"b":4,"a":5}`, "01", "-", "\ufeff{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := Inspect(data, RubyUpTo33)
		again, _ := Inspect(data, RubyUpTo33)
		require.Equal(t, text, again)
		if _, parseErr := Parse(data, 0); parseErr == nil {
			require.NoError(t, err)
		}
		if _, parseErr := Parse(slices.Concat([]byte(`{"class":"A","x":`), data, []byte("}")), 0); err == nil && parseErr != nil {
			require.ErrorContains(t, parseErr, "nested deeper")
		}
		_, joinErr := RubyJoin(resqued.Args{data}, Ruby34)
		require.Equal(t, err == nil, joinErr == nil)
	})
}

func inspect(t require.TestingT, text string, style RubyStyle) string {
	got, err := Inspect([]byte(text), style)
	require.NoError(t, err, text)
	return got
}

func args(t require.TestingT, list string) resqued.Args {
	e, err := Parse([]byte(`{"class":"A","args":`+list+`}`), 0)
	require.NoError(t, err)
	return e.Args
}

// jsonText generates JSON values of all kinds as texts, with few enough keys that
// some come twice. Of characters it takes those of which all versions of Ruby
// think the same.
func jsonText() *rapid.Generator[string] {
	char := rapid.OneOf(
		rapid.RuneFrom([]rune(" \"\\#{$@}/'abc\a\b\t\n\v\f\r\x1b\x00\x01\x7f\u00a0é日😀\u2028\u200b\ufeff\uffff\U0010ffff")),
		rapid.Custom(func(t *rapid.T) rune {
			return rune(rapid.IntRange(0, 0x17f).Filter(func(n int) bool { return n != 0x85 }).Draw(t, "rune"))
		}),
	)
	text := rapid.Custom(func(t *rapid.T) string {
		encoded := string(AppendString(nil, rapid.StringOfN(char, 0, 6, -1).Draw(t, "text")))
		if rapid.Bool().Draw(t, "ascii") {
			return asciiOnly(encoded)
		}
		return encoded
	})
	number := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?`),
		rapid.Custom(func(t *rapid.T) string {
			return strconv.FormatFloat(rapid.Float64Range(-1e18, 1e18).Draw(t, "float"), 'e', -1, 64)
		}),
		rapid.Custom(func(t *rapid.T) string {
			return strconv.FormatFloat(math.Round(rapid.Float64Range(-1e18, 1e18).Draw(t, "float")), 'f', 1, 64)
		}),
	)
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		plain := []*rapid.Generator[string]{text, number, rapid.SampledFrom([]string{"null", "true", "false"})}
		if depth == 0 {
			return rapid.OneOf(plain...)
		}
		array := rapid.Custom(func(t *rapid.T) string {
			return "[" + strings.Join(rapid.SliceOfN(value(depth-1), 0, 4).Draw(t, "elements"), ",") + "]"
		})
		key := rapid.OneOf(rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `""`}), text)
		object := rapid.Custom(func(t *rapid.T) string {
			var members []string
			for range rapid.IntRange(0, 4).Draw(t, "members") {
				members = append(members, key.Draw(t, "key")+":"+value(depth-1).Draw(t, "value"))
			}
			return "{" + strings.Join(members, ",") + "}"
		})
		return rapid.OneOf(append(plain, array, object, array, object)...)
	}
	return value(3)
}

// asciiOnly writes all other characters as JSON escapes.
func asciiOnly(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// spread puts white space around all values of a JSON text.
func spread(text string) string {
	var b strings.Builder
	inside, escaped := false, false
	for _, r := range text {
		switch {
		case inside:
			inside = escaped || r != '"'
			escaped = !escaped && r == '\\'
		case r == '"':
			inside = true
		case strings.ContainsRune("{}[],:", r):
			b.WriteString(" \n" + string(r) + "\t\r")
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

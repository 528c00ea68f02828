package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func TestEncodePayload(t *testing.T) {
	t.Parallel()
	text := "<b>&/ \"q\" \\ \b\f\n\r\t\x1b\x7f \u2028 \u2029 é 😀"
	got, err := EncodePayload("Mail", []any{42, text, map[string]any{"a": nil}, []int{}})
	require.NoError(t, err)
	require.Equal(t, string(golden(t, "payload.json")), string(got))

	tests := []struct {
		name  string
		class string
		args  any
		want  string
	}{
		{"no arguments", "A", nil, `{"class":"A","args":[]}`},
		{"a nil slice", "A", []string(nil), `{"class":"A","args":[]}`},
		{"raw arguments keep their bytes", "A", resqued.Args{json.RawMessage(`{"b" : 1}`), json.RawMessage(`"\u003c"`)}, `{"class":"A","args":[{"b" : 1},"\u003c"]}`},
		{"raw messages do, too", "A", []json.RawMessage{json.RawMessage(`1.0`)}, `{"class":"A","args":[1.0]}`},
		{"a backslash before u2028", "A", []string{`\u2028`}, `{"class":"A","args":["\\u2028"]}`},
		{"a class with quotes", `a"b\`, nil, `{"class":"a\"b\\","args":[]}`},
		{"one that is escaped in JSON of its own", "A", []any{json.RawMessage(`"\ufffd"`), "ä", map[string]any{"a": json.RawMessage(`["\u2028\ufffd"]`)}}, `{"class":"A","args":["\ufffd","ä",{"a":["` + "\u2028" + `\ufffd"]}]}`},
		{"in a field", "A", []any{struct{ A *json.RawMessage }{new(json.RawMessage(`"\ufffd"`))}}, `{"class":"A","args":[{"A":"\ufffd"}]}`},
		{"a replacement character", "A", []string{"\ufffd"}, `{"class":"A","args":["` + "\ufffd" + `"]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := EncodePayload(tt.class, tt.args)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
		})
	}

	refused := []struct {
		name  string
		class string
		args  any
		want  string
	}{
		{"an empty class is refused", "", nil, `"class" is empty`},
		{"an invalid class is refused", "\xff", nil, "not valid UTF-8"},
		{"an invalid text is refused", "A", []string{"\xff"}, "not valid UTF-8"},
		{"an invalid text beside a replacement character is refused", "A", []any{json.RawMessage(`"\ufffd"`), "\xff"}, "not valid UTF-8"},
		{"an invalid key is refused", "A", []any{map[string]int{"\xff": 1}}, "not valid UTF-8"},
		{"an invalid field is refused", "A", []any{&struct{ A []any }{[]any{"a", "\xff"}}}, "not valid UTF-8"},
		{"an object is refused", "A", map[string]int{"a": 1}, "must be a list"},
		{"a text is refused", "A", "x", "must be a list"},
		{"a broken raw argument is refused", "A", resqued.Args{json.RawMessage(`{`)}, "invalid payload"},
		{"a raw argument that smuggles a key is refused", "A", resqued.Args{json.RawMessage(`1],"class":"B","x":[`)}, "is there twice"},
		{"deep nesting is refused", "A", []json.RawMessage{json.RawMessage(nested(99))}, "deeper than 100"},
		{"a function is refused", "A", []any{strings.ToUpper}, "unsupported type"},
	}
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := EncodePayload(tt.class, tt.args)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestRunning(t *testing.T) {
	t.Parallel()
	require.Equal(t, string(golden(t, "running.json")), string(Running("mail", example, "Mail", []byte(`{"class":"Mail","args":[1, "<>"]}`))))
	require.JSONEq(t, `{"queue":"q","run_at":"2026-11-20T14:56:21Z","payload":{"class":"Resqued::InvalidPayload","args":["eA=="]}}`,
		string(Running("q", example, "", []byte("x"))))
	require.Equal(t, `{"queue":"q","run_at":"`+FormatISOUTC(example)+`","payload":{"class":"A","args":["200025 bytes"]}}`,
		string(Running("q", example, "A", []byte(`{"class":"A","args":["`+strings.Repeat("x", 200_000)+`"]}`))))
}

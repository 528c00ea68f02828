package resqued_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type (
	name   string
	small  int8
	upper  string
	hidden int
)

func (u *upper) UnmarshalText(text []byte) error {
	*u = upper(strings.ToUpper(string(text)))
	return nil
}

func (h *hidden) UnmarshalJSON([]byte) error {
	*h = -1
	return nil
}

// store stores exactly what encoding/json would have stored.
func TestPlainArguments(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`0`, `-0`, `7`, `-7`, `127`, `128`, `-128`, `-129`, `01`, `-`, ``, ` 7`, `7 `, `+7`, `1e2`, `1.0`, `0x1`,
		`999999999999999999`, `1000000000000000000`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`,
		`""`, `"a"`, `" a "`, `"é\u00e9"`, `"é"`, "\"\xff\"", "\"a\tb\"", `"a`, `a"`, `"`, `"a"b"`, `"a\"b"`, `"a\"`, "\"\u2028\"", "\"\x7f\"",
		`null`, `true`, `[]`, `{}`, `"12"`,
	} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			same(t, raw, 5)
			same(t, raw, int64(5))
			same(t, raw, small(5))
			same(t, raw, uint(5))
			same(t, raw, "old")
			same(t, raw, name("old"))
			same(t, raw, upper("old"))
			same(t, raw, hidden(5))
			same(t, raw, json.Number("5"))
		})
	}
}

// Eight bytes are checked at once, so each byte is tried at each place.
func TestPlainTexts(t *testing.T) {
	t.Parallel()
	for length := range 18 {
		for at := range length {
			for c := range 256 {
				text := []byte(strings.Repeat("~", length))
				text[at] = byte(c)
				raw := `"` + string(text) + `"`
				var want, got string
				wantErr, err := json.Unmarshal([]byte(raw), &want), args(raw).Get(0, &got)
				if want != got || (wantErr == nil) != (err == nil) {
					t.Fatalf("%q: %q, %v", raw, got, err)
				}
			}
		}
	}
}

// same decodes an argument into a T that holds old, everywhere an argument can be.
func same[T any](t *testing.T, raw string, old T) {
	t.Helper()
	want := old
	wantErr := json.Unmarshal([]byte(raw), &want)
	var row struct{ V T }
	row.V = old
	one, got := old, old
	a := args(raw)
	for place, err := range map[string]error{"row": a.Decode(&row), "alone": a.Decode(&one), "get": a.Get(0, &got)} {
		require.Equal(t, wantErr == nil, err == nil, fmt.Sprintf("%s %T: %v", place, old, err))
	}
	require.Equal(t, []T{want, want, want}, []T{row.V, one, got}, "%T", old)
}

func BenchmarkDecode(b *testing.B) {
	a := args(`1234567`, `"a subject of some length"`)
	b.ReportAllocs()
	for b.Loop() {
		var dst struct {
			N    int64
			Text string
		}
		if err := a.Decode(&dst); err != nil {
			b.Fatal(err)
		}
	}
}

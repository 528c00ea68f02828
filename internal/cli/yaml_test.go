package cli

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestYAML(t *testing.T) {
	t.Parallel()
	got, err := encodeYAML(struct {
		Z     string          `json:"z"`
		A     []any           `json:"a"`
		Empty []string        `json:"empty"`
		None  *int            `json:"none"`
		Args  json.RawMessage `json:"args"`
		Text  string          `json:"text"`
	}{
		Z: "no", A: []any{1, true, nil, "7", "2026-01-02", map[string]any{"k": "v: w"}}, Empty: []string{},
		Args: json.RawMessage(`[12345678901234567890, 1.50, 1e400]`), Text: "a\nb",
	})
	require.NoError(t, err)
	require.Equal(t, `z: "no"
a:
  - 1
  - true
  - null
  - "7"
  - "2026-01-02"
  - k: 'v: w'
empty: []
none: null
args:
  - 12345678901234567890
  - 1.50
  - 1e400
text: |-
  a
  b
`, string(got))
}

func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"", "a: b", "~", "null", "- x", "a\nb\n", "\n a", " \n", "\x1b[2J\u202e\u009b", "\U000e0001", "\u2028", "\ufeff", "|", "a #b", "é\t", "1_000", "0x10", "<<", "=", "\r\n", "…", "---", "a\n---\nb", "%TAG"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain, err := json.Marshal(text) // invalid UTF-8 becomes U+FFFD there
		require.NoError(t, err)
		var want string
		require.NoError(t, json.Unmarshal(plain, &want))
		out, err := encodeYAML(map[string]any{"k": text, want + "key": []string{text}})
		require.NoError(t, err)
		for _, r := range string(out) {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%q", out)
		}
		var back map[string]any
		require.NoError(t, yaml.Unmarshal(out, &back), "%q", out)
		require.Equal(t, want, back["k"])
		require.Equal(t, []any{want}, back[want+"key"])
	})
}

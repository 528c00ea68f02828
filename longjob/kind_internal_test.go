//go:build unix

package longjob

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	kind := func(text string) string {
		var args resqued.Args
		require.NoError(t, json.Unmarshal([]byte(text), &args), text)
		return kindOf("C", args)
	}
	for a, b := range map[string]string{
		`["Köln"]`: `["K\u00f6ln"]`, `[1,{"a":2}]`: `[1, { "a" : 2 }]`, `[{"a":1,"b":[2]}]`: `[{"b":[2],"a":1}]`, `["<&>"]`: `["\u003c\u0026\u003e"]`, `["a/b"]`: `["a\/b"]`,
		`["😀"]`: `["\ud83d\ude00"]`,
	} {
		require.Equal(t, kind(a), kind(b), "%s %s", a, b)
	}
	for a, b := range map[string]string{
		`[1]`: `[1.0]`, `["1"]`: `[1]`, `[]`: `[null]`, `["\ud800"]`: `["\ud801"]`, `[12345678901234567890]`: `[12345678901234567891]`, `["a"]`: `["b"]`, `[["a"]]`: `["a"]`,
	} {
		require.NotEqual(t, kind(a), kind(b), "%s %s", a, b)
	}
	// Runs of an earlier version are of the same kind if their arguments had that form.
	sum := sha256.Sum256([]byte("C\x00" + `["north",1.0,{"a":"ö"}]`))
	require.Equal(t, hex.EncodeToString(sum[:16]), kind(`["north",1.0,{"a":"ö"}]`))
}

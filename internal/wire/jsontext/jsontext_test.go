package jsontext_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/wire/jsontext"
)

func TestPlainPrefix(t *testing.T) {
	t.Parallel()
	for at := range 20 {
		for c := range 256 {
			text := bytes.Repeat([]byte("~"), 20)
			text[at] = byte(c)
			want := 16
			if c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
				want = min(at/8*8, 16)
			}
			require.Equal(t, want, jsontext.PlainPrefix(text), "%q", text)
		}
	}
}

package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "3d": 72 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0, "65535d": 65535 * 24 * time.Hour,
	} {
		d, err := parseIn(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
	}
	for text, want := range map[string]string{
		"": "no duration", "-5m": "no duration", "9999999h": "no duration", "65536d": "no duration", "1e9s": "no duration", "NaNs": "no duration",
		"65535d2000000h": "is too long",
	} {
		d, err := parseIn(text)
		require.ErrorContains(t, err, want, "%s: %s", text, d)
	}
}

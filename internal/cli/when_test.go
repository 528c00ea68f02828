package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestParseIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "3d": 72 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0, "65535d": 65535 * 24 * time.Hour, "1w": 7 * 24 * time.Hour, "0": 0,
	} {
		d, err := parseIn(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
	}
	for text, want := range map[string]string{
		"": "with units", "-5m": "negative", "9999999h": "too large", "106752d": "too large", "1e9s": "with units", "NaNs": "with units",
		"65535d2000000h": "too large", "90": "with units", "1.5": "with units", "5.": "with units",
	} {
		d, err := parseIn(text)
		require.ErrorContains(t, err, want, "%s: %s", text, d)
	}
}

func TestDurationFlag(t *testing.T) {
	t.Parallel()
	flags, got := pflag.NewFlagSet("x", pflag.ContinueOnError), time.Duration(0)
	(&flagSet{FlagSet: flags}).span(&got, "force-after", time.Hour, "how old")
	require.Equal(t, time.Hour, got)
	require.NoError(t, flags.Parse([]string{"--force-after", "3d"}))
	require.Equal(t, 72*time.Hour, got)
	require.ErrorContains(t, flags.Parse([]string{"--force-after", "-1h"}), "must not be negative")
	require.Contains(t, flags.FlagUsages(), "--force-after time   how old (default 1h)")
}

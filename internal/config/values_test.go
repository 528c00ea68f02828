package config

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "30": 30 * time.Second, "1.5": 1500 * time.Millisecond, ".5": 500 * time.Millisecond, "+2": 2 * time.Second,
		" 30s ": 30 * time.Second, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "100ms": 100 * time.Millisecond,
		"1.5h": 90 * time.Minute, "1d": 24 * time.Hour, "2w": 14 * 24 * time.Hour, "1.5d": 36 * time.Hour, "1w2d3h": 219 * time.Hour, "0.1d": 8640 * time.Second,
		"1m0.000000001s": time.Minute + 1, "106751d": 106751 * 24 * time.Hour, "-0": 0, "9223372036": 9223372036 * time.Second,
	} {
		t.Run(fmt.Sprintf("%q is %s", text, want), func(t *testing.T) {
			t.Parallel()
			d, err := ParseDuration(text)
			require.NoError(t, err)
			require.Equal(t, want, d)
		})
	}
	for text, want := range map[string]error{
		"-1": errNegative, "-1ns": errNegative, "-99999999999h": errNegative,
		"9223372037": errTooLarge, "106752d": errTooLarge, "-1d": errNegative, "99999999999h": errTooLarge,
		"": ErrNoDuration, "x": ErrNoDuration, "1y": ErrNoDuration, "d": ErrNoDuration, "1D": ErrNoDuration, "1e3": ErrNoDuration, "0x10": ErrNoDuration, "1_000": ErrNoDuration,
		"NaN": ErrNoDuration, ".nan": ErrNoDuration, "Inf": ErrNoDuration, "-.inf": ErrNoDuration, "1 s": ErrNoDuration, ".": ErrNoDuration, "5S": ErrNoDuration,
	} {
		t.Run(fmt.Sprintf("%q is refused: %s", text, want), func(t *testing.T) {
			t.Parallel()
			_, err := ParseDuration(text)
			require.ErrorIs(t, err, want)
		})
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1B": 1, "512MB": 512e6, "1GiB": 1 << 30, "1G": 1 << 30, "1gib": 1 << 30, "1 GB": 1e9, "1.5GiB": 3 << 29,
		"0.1KB": 100, "2k": 2048, "1TiB": 1 << 40, "9223372036854775807": math.MaxInt64, "-0": 0, "1.0": 1,
	} {
		t.Run(fmt.Sprintf("%q is %d bytes", text, want), func(t *testing.T) {
			t.Parallel()
			n, err := ParseSize(text)
			require.NoError(t, err)
			require.Equal(t, want, n)
		})
	}
	for text, want := range map[string]error{
		"-1": errNegative, "-1GiB": errNegative, "9223372036854775808": errTooLarge, "8388608TiB": errTooLarge,
		"": errNoSize, "x": errNoSize, "1PB": errNoSize, "1e3": errNoSize, "0x10": errNoSize, "NaN": errNoSize, ".inf": errNoSize, "GiB": errNoSize,
		"1.5": errPartialByte, "0.5B": errPartialByte,
	} {
		t.Run(fmt.Sprintf("%q is refused: %s", text, want), func(t *testing.T) {
			t.Parallel()
			_, err := ParseSize(text)
			require.ErrorIs(t, err, want)
		})
	}
}

func TestFormatting(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 50 * time.Second: "50s", 2 * time.Minute: "2m", 90 * time.Minute: "1h30m", time.Hour: "1h", 100 * time.Millisecond: "100ms",
		10 * time.Minute: "10m", time.Hour + 10*time.Second: "1h0m10s", 20 * time.Hour: "20h",
	} {
		require.Equal(t, want, FormatDuration(d))
	}
	for n, want := range map[int64]string{0: "0", 1: "1", 1000: "1KB", 1024: "1KiB", 1 << 30: "1GiB", 512e6: "512MB", 1<<30 + 1: "1073741825"} {
		require.Equal(t, want, FormatSize(n))
	}
	t.Run("what is formatted reads back the same", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "duration"))
			back, err := ParseDuration(FormatDuration(d))
			require.NoError(t, err)
			require.Equal(t, d, back)
			n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "size")
			size, err := ParseSize(FormatSize(n))
			require.NoError(t, err)
			require.Equal(t, n, size)
		})
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for wrong, want := range map[string]string{
		"worker_cuont": "worker_count", "WORKER_COUNT": "worker_count", "worker-count": "worker_count", "workercount": "worker_count",
		"queue": "queues", "heartbeat": "heartbeat_frequency", "statsd-prefix": "statsd_key", "locket_queues": "locketed_queues",
		"locket_job_lock_key": "job_lock_key", "handlerss": "handlers", "zzz": "", "x": "", "": "", "completely_else": "",
	} {
		require.Equal(t, want, suggest(wrong), wrong)
	}
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"30", "1.5s", "-1", "1h2m3s", "NaN", "1e400", "9223372037", "µ", "00.00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, d, time.Duration(0))
		back, err := ParseDuration(FormatDuration(d))
		require.NoError(t, err)
		require.Equal(t, d, back)
	})
}

func FuzzSize(f *testing.F) {
	for _, seed := range []string{"30", "1.5GiB", "-1", "1 KB", "NaN", "1e400", "9223372036854775808", "0.0000001T"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, n, int64(0))
		back, err := ParseSize(FormatSize(n))
		require.NoError(t, err)
		require.Equal(t, n, back)
	})
}

package wire

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// example is 2026-11-20 09:56:21 in New York, the time of all golden files.
var example = time.Date(2026, 11, 20, 9, 56, 21, 0, time.FixedZone("EST", -5*60*60))

// golden reads a file of testdata. They are bytes that other programs read or
// wrote: no test rewrites them.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return b
}

func TestFormats(t *testing.T) {
	t.Parallel()
	require.Equal(t, "2026-11-20 09:56:21 -0500", FormatStart(example))
	require.Equal(t, "2026/11/20 14:56:21 UTC", FormatFail(example))
	require.Equal(t, "2026-11-20T14:56:21Z", FormatISOUTC(example))
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"2026/11/20 09:56:21 EST",
		"2026/11/20 14:56:21 UTC",
		"2026/11/20 15:56:21 CET",
		"2026/11/20 09:56:21 -05",
		"2026/11/20 20:26:21 +0530",
		"2026-11-20T14:56:21Z",
		"2026-11-20T14:56:21.000Z",
		"2026-11-20 09:56:21 -0500",
		"Fri Nov 20 2026 09:56:21 GMT-0500 (Eastern Standard Time)",
		"Fri Nov 20 2026 14:56:21 GMT+0000 (Coordinated Universal Time)",
		"2026-11-20 14:56:21 UTC",
		"2026/11/20 16:56:21 SAST",
		"2026/11/21 00:56:21 ChST",
		"2026/11/20 20:41:21 +0545",
		"Fri Nov 20 09:56:21 EST 2026",
		"Fri Nov 20 14:56:21 UTC 2026",
		"1795186581",
		"1795186581000",
	} {
		got := parseTime([]byte(`"`+text+`"`), time.UTC)
		require.True(t, got.at.Equal(example), "%s gives %s", text, got.at)
		require.Zero(t, got.latest, text)
	}
	require.True(t, parseTime([]byte("1795186581.25"), time.UTC).at.Truncate(time.Second).Equal(example), "a number")
	require.True(t, parseTime([]byte(`"2026/11/20 09:56:21"`), example.Location()).at.Equal(example), "no zone")
	for _, raw := range []string{`"yesterday"`, `""`, "null", "", "0", "-5", "1e300", `"NaN"`, "true", `"2026/13/20 09:56:21 UTC"`} {
		require.Zero(t, parseTime([]byte(raw), time.UTC), raw)
	}

	// The same letters, in the zone that has them and in others.
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 20, hour, minute, 0, 0, time.UTC) }
	israel, err := time.LoadLocation("Asia/Jerusalem")
	require.NoError(t, err)
	require.True(t, parseTime([]byte(`"2026/11/20 12:00:00 IST"`), israel).at.Equal(at(10, 0)))
	require.Equal(t, moment{earliest: at(6, 30), latest: at(11, 0)}, parseTime([]byte(`"2026/11/20 12:00:00 IST"`), time.UTC))
	require.Equal(t, moment{earliest: at(-2, 0), latest: at(24, 0)}, parseTime([]byte(`"Fri Nov 20 12:00:00 XYZT 2026"`), time.UTC))
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		max      int
		want     string
	}{
		{"plain text stays", "Mail naïve 😀 <b>", 0, "Mail naïve 😀 <b>"},
		{"controls are escaped", "a\r\n\x1b[31m\x00\x7f", 0, `a\r\n\x1b[31m\x00\x7f`},
		{"marks that turn text around are escaped", "a\u202eb\u2028", 0, `a\u202eb\u2028`},
		{"invalid bytes are escaped", "a\xffb", 0, `a\xffb`},
		{"a long text ends in an ellipsis", "abcdefghij", 8, "abcde…"},
		{"a text that just fits is whole", "abcdefgh", 8, "abcdefgh"},
		{"no character is cut in two", "éééééé", 8, "éé…"},
		{"no escape is cut in two", "aaaa\x00b", 8, "aaaa…"},
		{"a replacement character stays", "\ufffd", 0, "\ufffd"},
		{"a very small bound leaves out the ellipsis", "abc", 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, Printable(tt.in, tt.max))
		})
	}
}

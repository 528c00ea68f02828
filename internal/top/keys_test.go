package top

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]Key{
		"jK?":                 {"j", "K", "?"},
		"\x1b[A\x1bOB\x1b[5~": {KeyUp, KeyDown, KeyPageUp},
		"\x1b[1;5A":           {keyUnknown},
		"\x1b":                {KeyEscape},
		"\x1bq":               {KeyEscape, "q"},
		"ü日\x7f\r\t":          {"ü", "日", KeyBackspace, KeyEnter, KeyTab},
		"\x03\x1a\x0c\x00":    {KeyInterrupt, KeySuspend, KeyRedraw, keyUnknown},
		"\xff":                {keyUnknown},
	} {
		got, rest := ParseKeys([]byte(in))
		require.Equal(t, want, got, "%q", in)
		require.Empty(t, rest, "%q", in)
	}
	for _, part := range []string{"\x1b[5", "\x1b[", "\xe6\x97"} {
		got, rest := ParseKeys([]byte("j" + part))
		require.Equal(t, []Key{"j"}, got)
		require.Equal(t, part, string(rest), "the end is still to come")
	}
	require.Equal(t, "日", Key("日").text())
	require.Empty(t, KeyUp.text())
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte("\x1b[5~j\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, rest := ParseKeys(in)
		require.LessOrEqual(t, len(rest), 64)
	})
}

func TestPace(t *testing.T) {
	t.Parallel()
	p := pace{every: time.Second}
	require.Equal(t, time.Second, p.next(time.Millisecond))
	require.Equal(t, time.Second, p.next(time.Second), "one that was late does not count")
	require.Equal(t, time.Second, p.next(time.Second))
	require.Equal(t, 50*time.Second, p.next(time.Second), "all of them are: 2 %% of the time")
	require.Equal(t, 5*time.Second, p.next(100*time.Millisecond))
}

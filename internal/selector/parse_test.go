package selector

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	t.Run("each kind of entry is told apart", func(t *testing.T) {
		t.Parallel()
		s, warnings, err := Parse([]string{" critical", "mail:8", "reports:25% ", "!low", "img_*:2", "a:b", `x\y`, "{mail}", "tag:[8]"}, 64)
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Equal(t, Spec{
			Patterns: []Pattern{
				{Text: "critical", Source: "critical"},
				{Text: "mail", Cap: 8, Source: "mail:8"},
				{Text: "reports", Cap: 16, Source: "reports:25%"},
				{Text: "img_*", Glob: true, Cap: 2, Source: "img_*:2"},
				{Text: "a:b", Source: "a:b"},
				{Text: `x\y`, Source: `x\y`},
				{Text: "{mail}", Source: "{mail}"},
				{Text: "tag:[8]", Glob: true, Source: "tag:[8]"},
			},
			Exclude: []string{"low"},
		}, s)
	})

	for _, tc := range []struct {
		entry string
		text  string
		cap   int
	}{
		{"a:b:8", "a:b", 8},
		{"a:8:b", "a:8:b", 0},
		{"a:008", "a", 8},
		{"a :8", "a", 8},
		{"a:", "a:", 0},
		{"a:%", "a:%", 0},
		{"a:8x", "a:8x", 0},
		{"a:2024-01-01", "a:2024-01-01", 0},
		{"a:1.2.3", "a:1.2.3", 0},
		{"8", "8", 0},
		{"25%", "25%", 0},
		{"a:100%", "a", 64},
		{"a:99%", "a", 63},
	} {
		t.Run(fmt.Sprintf("%q is queue %q with cap %d", tc.entry, tc.text, tc.cap), func(t *testing.T) {
			t.Parallel()
			s, _, err := Parse([]string{tc.entry}, 64)
			require.NoError(t, err)
			require.Equal(t, []Pattern{{Text: tc.text, Cap: tc.cap, Source: tc.entry}}, s.Patterns)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, entries, want string }{
		{"an empty name", "a,,b", `queue "": the name is empty; write a queue's name, or "*" for all`},
		{"a cap without a name", ":8", "the name is empty"},
		{"an exclusion without a name", "a,!", "the name is empty"},
		{"a cap of 0", "mail:0", `a cap of 0 would never take a job; write "mail" for no cap, or leave the queue out`},
		{"a share of 0", "mail:0%", "a cap of 0 would never take a job"},
		{"a negative cap", "mail:-1", `write "mail:8" or "mail:25%" (a queue that is really called so is matched by a glob: "mail:-[1]")`},
		{"a fraction", "mail:12.5%", "a cap is a whole number"},
		{"a cap behind a space", "mail: 8", `write "mail:8"`},
		{"a share above 100 %", "mail:150%", `a share is at most 100%; write "mail:150" for 150 threads, or "mail" for no cap`},
		{"a cap beyond any number", "mail:99999999999999999999", `the cap is too large; write "mail" for no cap`},
		{"a name twice", "mail,mail", `queue "mail": mail is listed already, as "mail"; keep one of them`},
		{"a name twice with different caps", "mail:8,x,mail:25%", `queue "mail:25%": mail is listed already, as "mail:8"`},
		{"a glob twice", "img_*,img_*:2", `img_* is listed already, as "img_*"`},
		{"an exclusion twice", "*,!a,!a", `!a is listed already`},
		{"only exclusions", "!low,!img_*", `only exclusions select no queue; write "*" before them`},
		{"an exclusion of everything", "*,!*", `"!*" excludes every queue`},
		{"a name that is excluded", "low:2,*,!low", `"low:2" is listed and also excluded by "!low"; remove one of them`},
		{"a name that an excluded glob matches", "img_1,*,!img_*", `"img_1" is listed and also excluded by "!img_*"`},
		{"a glob that is excluded as it stands", "a,img_*,!img_*", `"img_*" is listed and also excluded by "!img_*"`},
		{"an exclusion with a cap", "*,!mail:8", `an exclusion takes no cap; write "!mail"`},
		{"an open bracket", "a[bc", `"[" is never closed; write \[ for the character itself`},
		{"an empty set", "a[]", `"[]" matches nothing`},
		{"a backward range", "[z-a]", "its range runs backwards"},
		{"a control character", "a\nb", "holds a control character"},
		{"a NUL", "a\x00", "holds a control character"},
		{"bytes that are not UTF-8", "a\xff", "not valid UTF-8"},
		{"the name of a key of a unique queue", "mail:start_at", "choose a name that does not end in :start_at or :uniqueue"},
		{"a name of 10 KB", strings.Repeat("x", 10_000), "longer than 1024 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, warnings, err := Parse(strings.Split(tc.entries, ","), 64)
			require.ErrorContains(t, err, tc.want)
			require.Zero(t, s)
			require.Empty(t, warnings)
		})
	}

	t.Run("a comma inside of an entry", func(t *testing.T) {
		t.Parallel()
		_, _, err := Parse([]string{"a,b"}, 1)
		require.ErrorContains(t, err, `queue "a,b": a comma separates queues`)
	})

	t.Run("an empty list", func(t *testing.T) {
		t.Parallel()
		_, _, err := Parse(nil, 1)
		require.EqualError(t, err, `no queue is named; write "*" for all`)
	})

	t.Run("every wrong entry at once, each with its place", func(t *testing.T) {
		t.Parallel()
		_, _, err := Parse([]string{"a:0", "b", "c:-1"}, 1)
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		var at []int
		for _, e := range joined.Unwrap() {
			var entry *EntryError
			require.True(t, errors.As(e, &entry))
			at = append(at, entry.Index)
		}
		require.Equal(t, []int{0, 2}, at)
	})
}

func TestParseWarns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, entries string
		threads       int
		want          []string
	}{
		{"of a share that rounds to no thread", "tiny:1%", 64, []string{
			"cap_zero tiny:1% is 0 threads; the fork reads 0 as unlimited. Using 1.",
		}},
		{"not of a share that is exactly one thread", "tiny:1%", 100, nil},
		{"of a name behind a glob that takes it", "img_*,img_1:4", 64, []string{
			"shadowed img_1:4 comes after img_*, which takes it first, with its own place and cap. Put img_1:4 before it.",
		}},
		{"of anything behind a star", "high,*,img_*:2", 64, []string{
			"shadowed img_*:2 comes after *, which takes it first, with its own place and cap. Put img_*:2 before it.",
		}},
		{"not of a star at the end", "high,img_*:2,*", 64, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, warnings, err := Parse(strings.Split(tc.entries, ","), tc.threads)
			require.NoError(t, err)
			var got []string
			for _, w := range warnings {
				got = append(got, w.Code+" "+w.Message)
			}
			require.Equal(t, tc.want, got)
		})
	}

	t.Run("a share that rounds to no thread becomes one", func(t *testing.T) {
		t.Parallel()
		s, _, err := Parse([]string{"tiny:1%"}, 0)
		require.NoError(t, err)
		require.Equal(t, 1, s.Patterns[0].Cap)
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"critical,mail:8,reports:25%", "*,!low,img_*:2", "a:b", "[a-z]*,![!x]", `\*,a\`, "a:-1", ":8", "!", "[", "[]", "a:1.5%", "ä?,\xff",
	} {
		f.Add(seed, 64)
	}
	f.Fuzz(func(t *testing.T, entries string, threads int) {
		threads %= 1 << 20
		s, _, err := Parse(strings.Split(entries, ","), threads)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		again, _, err := Parse(strings.Split(s.String(), ","), threads)
		require.NoError(t, err)
		require.Equal(t, s, again)
		for _, choice := range s.Resolve([]string{"mail", "a", entries, ""}) {
			require.GreaterOrEqual(t, choice.Cap, 0)
		}
	})
}

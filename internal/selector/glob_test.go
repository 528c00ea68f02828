package selector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The expectations are those of Ruby's File.fnmatch without flags.
func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		glob    string
		matches string // separated by spaces
		misses  string
	}{
		{"*", "a ab .a a/b ä", ""},
		{"img_*", "img_ img_a img_a/b", "img ximg_a IMG_a"},
		{"*_low", "_low a_low a_low_low", "low a_lowx"},
		{"a*b*c", "abc aXbYc abbcc abcbc", "ab ac abcx"},
		{"**", "a ab", ""},
		{"?", "a ä !", "ab"},
		{"a?c", "abc aäc a.c a/c", "ac abbc"},
		{"[abc]", "a b c", "d ab"},
		{"[a-c]x", "ax bx cx", "dx x"},
		{"[!a-c]", "d !", "a b c"},
		{"[^a-c]", "d ^", "a b c"},
		{"[a-]", "a -", "b"},
		{"[-a]", "a -", "b"},
		{`[\]]`, "]", `[ \`},
		{`[a\-c]`, "a - c", "b"},
		{"[ä-ö]", "ä ö", "a z"},
		{"[a-c0-9]*", "a0 9", "x9"},
		{`a\*b*`, "a*b a*bc", "aXb"},
		{`[x]\`, `x\`, "x"},
		{"a[b]c*[0-9]", "abc1 abcx9", "abc abcx"},
		{"{a,b}*", "{a,b} {a,b}c", "a b"},
	} {
		t.Run(tc.glob, func(t *testing.T) {
			t.Parallel()
			for name := range strings.FieldsSeq(tc.matches) {
				require.True(t, Matches(tc.glob, name), "%q should match %q", tc.glob, name)
			}
			for name := range strings.FieldsSeq(tc.misses) {
				require.False(t, Matches(tc.glob, name), "%q should not match %q", tc.glob, name)
			}
			require.False(t, tc.glob != "*" && tc.glob != "**" && Matches(tc.glob, ""), "%q should not match nothing", tc.glob)
		})
	}

	t.Run("many stars on a long name take no exponential time", func(t *testing.T) {
		t.Parallel()
		require.False(t, Matches(strings.Repeat("a*", 200)+"b", strings.Repeat("a", 10_000)))
	})

	t.Run("a name that is not UTF-8 is matched byte by byte", func(t *testing.T) {
		t.Parallel()
		require.True(t, Matches("a?b*", "a\xffb"))
		require.True(t, Matches("a*\xffb", "ax\xffb"))
	})
}

func TestMatchAny(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, set string
		want      bool
	}{
		{"an empty list covers nothing", "", false},
		{"a star covers everything", "*", true},
		{"a name covers itself", "a reports", true},
		{"another name does not", "a report", false},
		{"an exclusion wins wherever it stands", "!rep* *", false},
		{"an exclusion of something else does no harm", "* !mail", true},
		{"an exclusion alone covers nothing", "!mail", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, MatchAny(strings.Fields(tc.set), "reports"))
		})
	}
}

func TestCheckSet(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckSet(nil))
	require.NoError(t, CheckSet([]string{"*", "!mail", "a:b"}))
	require.ErrorContains(t, CheckSet([]string{"mail:8"}), "a cap has no meaning here")
	require.ErrorContains(t, CheckSet([]string{"a[b"}), `"[" is never closed`)
	require.ErrorContains(t, CheckSet([]string{""}), "the name is empty")
	require.ErrorContains(t, CheckSet([]string{"!a", "!b"}), `only exclusions match nothing; write "*" before them`)
}

package selector

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// slowMatch is match written for clarity: every way to split is tried.
func slowMatch(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	if pattern[0] == '*' {
		return slowMatch(pattern[1:], name) || name != "" && slowMatch(pattern, name[1:])
	}
	if name == "" {
		return false
	}
	switch pattern[0] {
	case '?':
		return slowMatch(pattern[1:], name[1:])
	case '[':
		set, rest, _ := strings.Cut(pattern[1:], "]")
		text, negated := strings.CutPrefix(set, "!")
		return strings.Contains(text, name[:1]) != negated && slowMatch(rest, name[1:])
	}
	return pattern[0] == name[0] && slowMatch(pattern[1:], name[1:])
}

func TestMatchAgreesWithASlowMatcher(t *testing.T) {
	t.Parallel()
	pattern := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "?", "[ab]", "[!a]"}), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		p := strings.Join(pattern.Draw(t, "pattern"), "")
		name := rapid.StringMatching("[abc]{0,8}").Draw(t, "name")
		require.Equal(t, slowMatch(p, name), Matches(p, name), "%q on %q", p, name)
	})
}

func TestResolveKeepsItsPromises(t *testing.T) {
	t.Parallel()
	entry := rapid.StringMatching(`!?[ab*?]{1,3}(:[1-9]|:[1-9]0%)?`)
	rapid.Check(t, func(t *rapid.T) {
		threads := rapid.IntRange(1, 100).Draw(t, "threads")
		s, _, err := Parse(rapid.SliceOfN(entry, 1, 6).Draw(t, "entries"), threads)
		if err != nil {
			return
		}
		known := rapid.SliceOfN(rapid.StringMatching("[abc]{1,3}"), 0, 20).Draw(t, "known")
		choices := s.Resolve(known)

		at := map[string]int{}
		for i, c := range choices {
			require.NotContains(t, at, c.Queue, "each queue once")
			at[c.Queue] = i
		}
		for _, queue := range known {
			by := slices.IndexFunc(s.Patterns, func(p Pattern) bool {
				return p.Text == queue || p.Glob && slowMatch(p.Text, queue) && !s.excluded(queue)
			})
			i, planned := at[queue]
			require.Equal(t, by >= 0, planned, "%q is planned if, and only if, something selects it", queue)
			if planned {
				require.Equal(t, s.Patterns[by].Cap, choices[i].Cap, "the first match decides the cap")
			}
		}
		rank := func(c Choice) int {
			return slices.IndexFunc(s.Patterns, func(p Pattern) bool {
				return p.Text == c.Queue || p.Glob && slices.Contains(known, c.Queue) && slowMatch(p.Text, c.Queue) && !s.excluded(c.Queue)
			})
		}
		require.True(t, slices.IsSortedFunc(choices, func(a, b Choice) int {
			if d := rank(a) - rank(b); d != 0 {
				return d
			}
			return strings.Compare(a.Queue, b.Queue)
		}), "order is priority, alphabetical within a glob: %v", choices)
		for _, p := range s.Patterns {
			if !p.Glob {
				require.Contains(t, at, p.Text, "names are always there")
			}
		}
	})
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"mail": "mail", "a:b": "a:b", "mail:8": "mail:[8]", "*": `\*`, "!low": `[\!]low`, " x": "[ ]x", "a,b": "a?b"} {
		require.Equal(t, want, Literal(name))
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "8", "%", ":", "*", "?", "[", "]", "!", "^", "-", "\\", " ", "ü"}), 1, 6)
		name, other := strings.Join(part.Draw(t, "name"), ""), strings.Join(part.Draw(t, "other"), "")
		spec, _, err := Parse([]string{Literal(name)}, 1)
		require.NoError(t, err, "%q", Literal(name))
		require.Zero(t, spec.Patterns[0].Cap)
		require.True(t, MatchAny([]string{spec.Patterns[0].Text}, name))
		require.Equal(t, name == other, MatchAny([]string{spec.Patterns[0].Text}, other))
	})
}

package store

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPlainFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		completions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Completion {
			kind := rapid.SampledFrom([]Kind{Done, Done, Done, Failed}).Draw(t, "kind")
			return Completion{Job: &Reserved{
				Deaths:  rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "deaths"),
				LockKey: rapid.SampledFrom([]string{"", "lock", "lock"}).Draw(t, "lock"),
			}, Kind: kind}
		}), 0, 2*maxPlain).Draw(t, "completions")
		o := plainFirst(completions)
		require.LessOrEqual(t, o.plain, maxPlain)
		var all []int
		for at, i := range o.indices {
			all = append(all, i)
			if at < o.plain {
				require.True(t, completions[i].plain())
				require.Equal(t, at < o.locked, completions[i].Job.LockKey != "")
			} else {
				require.True(t, !completions[i].plain() || o.plain == maxPlain)
			}
		}
		slices.Sort(all)
		for i, at := range all {
			require.Equal(t, i, at, "each once")
		}
	})
}

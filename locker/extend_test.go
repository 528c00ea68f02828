//go:build linux

package locker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/locker"
)

func TestExtend(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		extend := func(rows ...locker.Row) ([]int, error) {
			if f.bySQL {
				return locker.Extend(t.Context(), f.db, f.table, time.Minute, rows)
			}
			return locker.Extend(t.Context(), f.pool, f.table, time.Minute, rows)
		}
		for _, key := range []string{"a", `b "2"`, "c"} {
			got, err := f.lock(t, key, locker.Options{Identifier: "me: " + key}).Get(t.Context())
			require.NoError(t, err)
			require.True(t, got)
		}
		f.exec(t, "UPDATE %s SET locked_by = 'thief' WHERE key = 'c'")
		lost, err := extend(locker.Row{Key: "a", LockedBy: "me: a"}, locker.Row{Key: "c", LockedBy: "me: c"},
			locker.Row{Key: `b "2"`, LockedBy: `me: b "2"`}, locker.Row{Key: "none", LockedBy: "me"})
		require.NoError(t, err)
		require.Equal(t, []int{1, 3}, lost)
		rows, err := locker.List(t.Context(), f.pool, f.table)
		require.NoError(t, err)
		require.Len(t, rows, 3)
		require.Greater(t, rows[0].Left, 31*time.Second)
		require.Greater(t, rows[1].Left, 31*time.Second)
		require.Less(t, rows[2].Left, 31*time.Second, "the thief's lease stays what it was")

		lost, err = extend(locker.Row{Key: "a", LockedBy: "me: a"}, locker.Row{Key: "none", LockedBy: "me"},
			locker.Row{Key: "a", LockedBy: "me: a"}, locker.Row{Key: "none", LockedBy: "me"})
		require.NoError(t, err)
		require.Equal(t, []int{1, 3}, lost, "one that is named twice")

		lost, err = extend()
		require.NoError(t, err)
		require.Empty(t, lost)
		_, err = extend(locker.Row{Key: "a"})
		require.ErrorContains(t, err, "names no holder")
		_, err = locker.Extend(t.Context(), f.pool, f.table, 0, nil)
		require.ErrorContains(t, err, "must be greater than 0")
	})
}

// An identifier given by the caller makes an acquisition of unknown outcome repeatable for
// every program that knows the identifier.
func TestIdentifier(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for range 2 {
		l := f.lock(t, "k", locker.Options{Identifier: "me"})
		got, err := l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.Equal(t, "me", l.Identifier())
	}
	l := f.lock(t, "k", locker.Options{Identifier: "you"})
	got, err := l.Get(t.Context())
	require.NoError(t, err)
	require.False(t, got)
	require.Equal(t, "me", l.Holder().LockedBy)
	_, err = locker.New(f.pool, "k", locker.Options{Identifier: "a\x00"})
	require.ErrorContains(t, err, "zero byte")
}

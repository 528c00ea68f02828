package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/view"
)

func TestParkedJobs(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		none, total, err := view.ParkedJobs(ctx, f.store, 10)
		require.NoError(f, err)
		require.Empty(f, none)
		require.Zero(f, total)

		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		park := func(id, kind string, age time.Duration) {
			f.do("HSET", "resqued:parked", id, fmt.Sprintf("1 %s %d x 0 1 3 0\nqwhy", kind, at.Add(-age).UnixMilli()))
		}
		park("kept", "l", 3*time.Hour)
		park("waits", "f", 2*time.Hour)
		park("gone", "r", time.Hour)
		_, _, err = view.ParkedJobs(ctx, f.store, 10)
		require.NoError(f, err)
		jobs, total, err := view.ParkedJobs(ctx, f.store, 10)
		require.NoError(f, err)
		require.EqualValues(f, 3, total)
		require.Len(f, jobs, 3)
		for i, id := range []string{"kept", "waits"} {
			require.Equal(f, id, jobs[i].ID, "the oldest is first")
			require.NoError(f, f.redis.Set(ctx, jobs[i].Key, "12345", 0).Err())
		}
		jobs, _, err = view.ParkedJobs(ctx, f.store, 10)
		require.NoError(f, err)
		require.Equal(f, &view.ParkedJob{
			ID: "kept", State: view.ParkedKept, Queue: "q", Bytes: 5, ParkedAt: jobs[0].ParkedAt, Reason: "why", Key: jobs[0].Key,
		}, jobs[0])
		require.True(f, at.Add(-3*time.Hour).Equal(jobs[0].ParkedAt))
		require.Equal(f, view.ParkedWaits, jobs[1].State)
		require.Equal(f, view.ParkedGone, jobs[2].State)
		require.Zero(f, jobs[2].Bytes)
	})
}

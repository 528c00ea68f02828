//go:build linux

package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/locker"
)

func TestRotate(t *testing.T) {
	t.Parallel()
	t.Run("every server does its share", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		const servers, turns = 3, 90
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var of [servers]int // written by the holder alone
		var total int
		var all sync.WaitGroup
		for n := range servers {
			pool := newPool(t, server.URL(""), f.table, 3)
			all.Go(func() {
				err := locker.Rotate(ctx, pool, "k", locker.RotateOptions{
					Options: locker.Options{Table: f.table}, Pause: 20 * time.Millisecond,
				}, func(context.Context, int64) error {
					of[n]++
					if total++; total == turns {
						cancel()
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		t.Logf("turns: %v", of)
		for n, share := range of {
			require.Greater(t, share, turns/servers/3, "server %d of %v", n, of)
		}
	})
	t.Run("a stolen lock does not end it, an error of the block does", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		boom, turns := errors.New("boom"), 0
		o := locker.RotateOptions{Options: quick, Pause: time.Millisecond}
		o.Table = f.table
		err := locker.Rotate(t.Context(), f.db, "k", o, func(ctx context.Context, _ int64) error {
			if turns++; turns == 2 {
				return boom
			}
			f.exec(t, "UPDATE %s SET locked_by = NULL")
			receive(t, ctx.Done())
			return ctx.Err()
		})
		require.ErrorIs(t, err, boom)
		require.Equal(t, 2, turns)
	})
	t.Run("a missing table ends it", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, "DROP TABLE %s")
		err := locker.Rotate(t.Context(), f.pool, "k", locker.RotateOptions{Options: locker.Options{Table: f.table}}, nil)
		require.ErrorContains(t, err, "does not exist")
	})
}

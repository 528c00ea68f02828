//go:build unix

package longjob_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/longjob"
)

func TestTenant(t *testing.T) {
	t.Parallel()
	// left has the keys about tenants.
	left := func(b *bed) []string {
		return b.redis.Keys(t.Context(), b.ns+":resqued:longjob:[blt][uie][snn][yea]*").Val()
	}

	t.Run("runs take turns, and leave nothing behind", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var order []string
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, name string) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2}, func(context.Context, int) error {
				order = append(order, name)
				return nil
			})
		}, quick())
		var last longjob.Result
		for _, name := range []string{"a1", "a2", "a3", "b1"} {
			var err error
			last, err = b.EnqueueUnique(t.Context(), "L", name, longjob.Tenant(name[:1]))
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		run := b.run(last.UUID)
		require.Equal(t, "b", run.Tenant)
		require.Zero(t, run.Place)
		runs, err := b.List(t.Context(), longjob.Filter{})
		require.NoError(t, err)
		places := 0
		for _, r := range runs {
			places += b.run(r.UUID).Place
		}
		require.Equal(t, 1+2, places)
		b.work("q", "low")
		require.Len(t, order, 8)
		text := strings.Join(order, " ")
		require.Less(t, strings.Index(text, "a3"), strings.LastIndex(text, "a1"), "%s: a1 has let the others go first", text)
		require.Empty(t, left(b))
	})

	t.Run("a run that was cancelled makes room when its code has ended", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		begun := make(chan struct{}, 3)
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error {
			return r.WorkUnit(ctx, func(ctx context.Context) error {
				begun <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, longjob.Options{Queue: "q", TenantSlices: 1})
		first, err := b.Enqueue(t.Context(), "L", 1, longjob.Tenant("a"))
		require.NoError(t, err)
		_, err = b.Enqueue(t.Context(), "L", 2, longjob.Tenant("a"))
		require.NoError(t, err)
		k := b.take("q")
		result := make(chan error, 1)
		go func() { result <- k.perform() }()
		<-begun
		require.ErrorIs(t, b.Cancel(t.Context(), first.UUID), longjob.ErrEnding)
		err = <-result
		require.ErrorIs(t, err, resqued.Discard)
		require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":queue:q").Val(), "its code has ended, and so the other has its turn")
		k.complete(err)
	})

	t.Run("its process dies and nobody gets to know", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { return b.dies() }, longjob.Options{Queue: "q", TenantSlices: 1})
		first, err := b.Enqueue(t.Context(), "L", 1, longjob.Tenant("a"))
		require.NoError(t, err)
		_, err = b.Enqueue(t.Context(), "L", 2, longjob.Tenant("a"))
		require.NoError(t, err)
		k := b.take("q")
		result := make(chan error, 1)
		go func() { result <- k.perform() }()
		<-b.crashed
		require.ErrorIs(t, b.Cancel(t.Context(), first.UUID), longjob.ErrEnding)
		k.die()
		require.NoError(t, b.redis.Del(t.Context(), b.ns+":queue:q").Err())
		require.NoError(t, b.redis.ZAdd(t.Context(), b.ns+":resqued:longjob:tenants", z(1, "a")).Err(), "long ago")
		s := longstore.NewSweeper(b.long, zap.NewNop(), longstore.Limits{Running: time.Hour, Queued: time.Hour})
		require.NoError(t, s.Sweep(t.Context()))
		require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		b.buried <- struct{}{}
		require.Error(t, <-result)
	})

	t.Run("names that are none", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		for _, name := range []string{"\xff", strings.Repeat("x", 201)} {
			_, err := b.Enqueue(t.Context(), "L", 1, longjob.Queue("q"), longjob.Tenant(name))
			require.ErrorContains(t, err, "tenant")
		}
	})
}

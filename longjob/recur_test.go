//go:build unix

package longjob_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

// tick performs one tick of class L.
func (b *bed) tick() error {
	b.t.Helper()
	require.NoError(b.t, b.redis.RPush(b.t.Context(), b.ns+":queue:ticks", `{"class":"L.recurring","args":[]}`).Err())
	k := b.take("ticks")
	require.NotNil(b.t, k)
	err := k.perform()
	k.complete(nil)
	return err
}

// again moves the last tick into the past, with credit for one new subject.
func (b *bed) again(ago time.Duration) {
	b.t.Helper()
	key := b.ns + ":resqued:longjob:recur:L"
	at, err := b.redis.HGet(b.t.Context(), key, "at").Int64()
	require.NoError(b.t, err)
	require.NoError(b.t, b.redis.HSet(b.t.Context(), key, "at", at-ago.Milliseconds(), "credit", 1).Err())
}

func TestRecur(t *testing.T) {
	t.Parallel()
	t.Run("its runs have the arguments of a subject and the further ones", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		type args struct {
			Shop string
			Full bool
		}
		var ran []args
		longjob.Register(b.h, "L", func(_ context.Context, _ *longjob.Runner, a args) error {
			ran = append(ran, a)
			return nil
		}, longjob.Options{Queue: "q"})
		shops := []string{"north"}
		longjob.Recur(b.h, "L", longjob.Recurring{
			Interval: time.Hour, Args: []any{true}, Queue: "ticks",
			Each: longjob.Each(func(context.Context) ([]string, error) { return shops, nil }),
		})
		class, _ := b.h.Lookup("L.recurring")
		require.Equal(t, 5*time.Minute, class.Every)
		require.Equal(t, "ticks", class.Queue)
		require.NoError(t, b.tick())
		b.work("q")
		require.Equal(t, []args{{"north", true}}, ran)
		b.again(5 * time.Minute)
		require.NoError(t, b.tick())
		require.Zero(t, b.work("q"), "it has had its run in this interval")
		shops = append(shops, "south", "south")
		b.again(time.Hour)
		require.NoError(t, b.tick())
		b.work("q")
		require.Equal(t, []args{{"north", true}, {"south", true}}, ran)
	})

	t.Run("without subjects there is one run at a time", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, resqued.Args) error { return nil }, longjob.Options{Queue: "q"})
		wanted := false
		longjob.Recur(b.h, "L", longjob.Recurring{Interval: time.Second, Queue: "ticks", If: func(context.Context) bool { return wanted }})
		require.NoError(t, b.tick())
		require.Zero(t, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		wanted = true
		require.NoError(t, b.tick())
		runs, err := b.List(t.Context(), longjob.Filter{Status: longjob.StatusQueued})
		require.NoError(t, err)
		require.Len(t, runs, 1)
		require.Equal(t, "[]", runs[0].Args.String())
		b.again(time.Hour)
		require.NoError(t, b.tick())
		require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		res, err := b.EnqueueUnique(t.Context(), "L", nil)
		require.NoError(t, err)
		require.Equal(t, longjob.OutcomeExisting, res.Outcome)
	})

	t.Run("an error fails one tick, not each", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { return nil }, longjob.Options{Queue: "q"})
		var broken error
		longjob.Recur(b.h, "L", longjob.Recurring{Interval: time.Hour, Queue: "ticks", Each: func(context.Context) ([]longjob.Subject, error) {
			return []longjob.Subject{{Args: 1}, {Args: 2, Interval: time.Minute}}, broken
		}})
		broken = errors.New("no database")
		require.NotErrorIs(t, b.tick(), resqued.Discard)
		require.ErrorIs(t, b.tick(), resqued.Discard)
		all, err := b.long.Recurring(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Contains(t, all[0].Fields["error"], "no database")
		broken = nil
		require.NoError(t, b.tick())
		b.work("q")
		broken = errors.New("no database")
		require.NotErrorIs(t, b.tick(), resqued.Discard, "it was well in between")
	})

	t.Run("what cannot recur", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		require.Panics(t, func() { longjob.Recur(h, "L", longjob.Recurring{Interval: time.Hour}) })
		require.PanicsWithValue(t, `longjob: the function of class "L" is nil`, func() { longjob.Register[int](h, "L", nil, longjob.Options{Queue: "q"}) })
		longjob.Register(h, "L", func(context.Context, *longjob.Runner, int) error { return nil }, longjob.Options{Queue: "q"})
		for _, r := range []longjob.Recurring{{}, {Interval: time.Hour, Every: time.Millisecond}, {Interval: time.Hour, Backlog: -1}, {Interval: time.Hour, Args: []any{make(chan int)}}} {
			require.Panics(t, func() { longjob.Recur(h, "L", r) })
		}
		longjob.Recur(h, "L", longjob.Recurring{Interval: time.Minute})
		class, _ := h.Lookup("L.recurring")
		require.Equal(t, 6*time.Second, class.Every)
		require.Panics(t, func() { longjob.Recur(h, "L", longjob.Recurring{Interval: time.Hour}) })
	})
}

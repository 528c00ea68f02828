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

// Errors count in a row: progress in between resets the count.
func TestFailuresInARow(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(ctx context.Context, r *longjob.Runner, done *int) error{
		"a state": func(ctx context.Context, r *longjob.Runner, done *int) error {
			return r.WorkUnit(ctx, func(context.Context) error { *done++; return longjob.SetState(r, "n", *done) })
		},
		"a slice": func(ctx context.Context, r *longjob.Runner, done *int) error {
			for range 3 { // with time for two
				if err := r.WorkUnit(ctx, func(context.Context) error { *done++; return nil }); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			done, calls := 0, 0
			longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
				if calls++; calls > 20 {
					return nil
				}
				if calls%2 == 0 {
					return errors.New("now and then")
				}
				if err := work(ctx, r, &done); err != nil {
					return err
				}
				return errors.New("and then")
			}, longjob.Options{Queue: "q", MaxUnits: 2, Retries: 3, RetryAfter: time.Millisecond})
			uuid := b.enqueue("L", nil)
			b.untilOver(uuid)
			require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status, b.run(uuid).Error)
		})
	}

	t.Run("without anything between", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		calls := 0
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			calls++
			if err := r.WorkUnit(ctx, func(context.Context) error { return longjob.SetState(r, "same", 1) }); err != nil {
				return err
			}
			return errors.New("always")
		}, longjob.Options{Queue: "q", Retries: 3, RetryAfter: time.Millisecond})
		uuid := b.enqueue("L", nil)
		b.untilOver(uuid)
		require.Equal(t, longjob.StatusFailed, b.run(uuid).Status)
		require.LessOrEqual(t, calls, 5)
	})
}

// untilOver performs a run to its end, whatever it waits for.
func (b *bed) untilOver(uuid string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		b.work("q")
		_, err := b.store.MoveDue(b.t.Context(), "", nil)
		require.NoError(b.t, err)
		return b.run(uuid).Status.Over()
	}, patience, time.Millisecond)
}

// A critical unit within one of the same lock does not free it.
func TestNestedCriticalUnits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	held := func() string { return b.redis.HGet(t.Context(), b.ns+":resqued:longjob:locks", "lock").Val() }
	var seen []bool
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
		return r.CriticalUnit(ctx, "lock", func(ctx context.Context) error {
			for range 2 {
				if err := r.CriticalUnit(ctx, "lock", func(context.Context) error { seen = append(seen, held() != ""); return nil }); err != nil {
					return err
				}
				seen = append(seen, held() != "")
			}
			return nil
		})
	}, longjob.Options{Queue: "q"})
	uuid := b.enqueue("L", nil)
	b.work("q")
	require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status, b.run(uuid).Error)
	require.Equal(t, []bool{true, true, true, true}, seen)
	require.Empty(t, held())
}

func TestNegativeOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]longjob.Options{
		"CheckIn": {CheckIn: -1}, "MaxDeaths": {MaxDeaths: -1}, "TenantSlices": {TenantSlices: -1}, "Slice": {Slice: -1}, "Grace": {Grace: -1}, "StateLimit": {StateLimit: -1},
		"Keep": {Keep: -1}, "RetryAfter": {RetryAfter: -1}, "SaveEvery": {SaveEvery: -1}, "MaxUnits": {MaxUnits: -1},
	} {
		o.Queue = "q"
		says := func(call func()) {
			defer func() { require.Contains(t, recover(), name) }()
			call()
		}
		says(func() {
			longjob.Register(resqued.New(), "L", func(context.Context, *longjob.Runner, int) error { return nil }, o)
		})
		says(func() { longjob.Command("L", resqued.Command{Argv: []string{"true"}}, o) })
	}
}

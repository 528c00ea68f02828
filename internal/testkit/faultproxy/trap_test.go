package faultproxy

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestTrap(t *testing.T) {
	t.Parallel()
	const incr = "return redis.call('INCR', KEYS[1])"

	t.Run("a request is caught before it is carried out, or after", func(t *testing.T) {
		t.Parallel()
		for _, reply := range []bool{false, true} {
			p, c, beside := setup(t, 3)
			key := redistest.Namespace(t)
			catch := p.Trap(Trap{Nth: 2, Reply: reply, Match: func(q Request) bool { return q.Key == key }})
			require.NoError(t, c.Eval(t.Context(), incr, []string{key}).Err())
			answer := make(chan error, 1)
			go func() { answer <- c.Eval(context.Background(), incr, []string{key}).Err() }()
			caught := <-catch
			require.Equal(t, key, caught.Request.Key)
			want := "1"
			if reply {
				want = "2"
			}
			require.Equal(t, want, beside.Get(t.Context(), key).Val())
			caught.Pass()
			require.NoError(t, <-answer)
			require.Eventually(t, func() bool { return beside.Get(context.Background(), key).Val() == "2" }, 30*time.Second, time.Millisecond)
		}
	})

	t.Run("what is cut goes nowhere", func(t *testing.T) {
		t.Parallel()
		p, c, beside := setup(t, 3)
		key := redistest.Namespace(t)
		catch := p.Trap(Trap{})
		answer := make(chan error, 1)
		go func() { answer <- c.Eval(context.Background(), incr, []string{key}).Err() }()
		(<-catch).Cut()
		require.Error(t, <-answer)
		require.Equal(t, int64(0), beside.Exists(t.Context(), key).Val())
	})

	t.Run("healing takes traps away", func(t *testing.T) {
		t.Parallel()
		p, c, _ := setup(t, 3)
		catch := p.Trap(Trap{})
		p.Heal()
		_, ok := <-catch
		require.False(t, ok)
		require.NoError(t, c.Eval(t.Context(), "return 1", nil).Err())
	})
}

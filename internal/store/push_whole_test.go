package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

// whole fails what is sent together, as a connection does that cannot be prepared: without a word
// to the commands.
type whole struct{ err error }

func (whole) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (whole) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w whole) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return w.err }
}

// TestPushThatFailsAsAWhole: a job that was not pushed is not said to be, whatever the
// client library tells of the commands.
func TestPushThatFailsAsAWhole(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errors.New("no connection"), nil} {
		f := setup(t, redistest.Shared(t))
		f.push("q", job("A", "[0]"))
		f.Redis().Write.AddHook(whole{failure})
		f.Redis().Read.AddHook(whole{failure})
		check := func(err error) {
			t.Helper()
			require.Error(t, err)
			if failure != nil {
				require.ErrorIs(t, err, failure)
			}
		}
		_, err := f.Push(t.Context(), "q", []byte(job("A", "[1]")))
		check(err)
		_, err = f.PushTogether(t.Context(), "q", []byte(job("A", "[2]")))
		check(err)
		for _, p := range f.PushMany(t.Context(), []string{"q", "r"}, [][]byte{[]byte(job("A", "[3]")), []byte(job("A", "[4]"))}) {
			check(p.Err)
		}
		list, err := f.redis.LRange(t.Context(), f.key("queue:q"), 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, []string{job("A", "[0]")}, list)
		if failure == nil {
			continue
		}
		_, err = f.Length(t.Context(), "q")
		check(err)
		_, _, err = f.Stats(t.Context())
		check(err)
		_, _, err = f.WorkerIDs(t.Context())
		check(err)
	}
}

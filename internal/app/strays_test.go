package app

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestStrays(t *testing.T) {
	t.Parallel()
	const uuid = "0b0e9f4e-93d6-4b7e-8b0c-2f1f0a7d1c11"
	server := redistest.Shared(t)
	redis, err := rdb.Open(rdb.Options{URL: server.URL(), Namespace: redistest.Namespace(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	long := longstore.New(redis)
	ctx := long.InContext(t.Context())
	s := newStrays(zap.NewNop())
	job := func(id, class, arg string) *resqued.Job {
		return &resqued.Job{ID: id, Class: class, Args: resqued.Args{[]byte(`"` + arg + `"`)}, Queue: "q"}
	}
	slice := job(uuid+".1", "Long", uuid)

	_, is := s.giveBack(ctx, slice)
	require.False(t, is, "there is no such run: it fails as any job without a handler")
	_, err = long.AddRuns(ctx, longstore.Always, []longstore.NewRun{{UUID: uuid, Kind: "k", Class: "Long", Args: []byte("[]"), Queue: "q"}})
	require.NoError(t, err)
	for _, other := range []*resqued.Job{job(uuid+".1", "Other", uuid), job(uuid+".1", "Long", "x"), job(uuid, "Long", uuid), job(uuid+".x", "Long", uuid), job("1", "Long", uuid)} {
		_, is := s.giveBack(ctx, other)
		require.False(t, is, "%+v", other)
	}

	var pauses []time.Duration
	for range 9 {
		err, is := s.giveBack(ctx, slice)
		require.True(t, is)
		var requeue *resqued.RequeueError
		require.ErrorAs(t, err, &requeue)
		pauses = append(pauses, requeue.After)
	}
	second := time.Second
	require.Equal(t, []time.Duration{0, second, 2 * second, 4 * second, 8 * second, 16 * second, 30 * second, 30 * second, 30 * second}, pauses)

	err, is = s.giveBack(ctx, job(uuid+".2", "Long", uuid))
	require.True(t, is)
	require.ErrorIs(t, err, resqued.Discard, "a slice that is not next comes to nothing")
	require.NoError(t, long.Cancel(ctx, uuid, time.Hour))
	err, is = s.giveBack(ctx, slice)
	require.True(t, is)
	require.True(t, errors.Is(err, longstore.ErrOver) && errors.Is(err, resqued.Discard), "%v", err)
}

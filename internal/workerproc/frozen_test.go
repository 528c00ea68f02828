package workerproc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/workerproc"
)

// frozen delays an answer that holds jobs until others have recovered them.
type frozen struct {
	workerproc.Store
	store *store.Store
}

func (f *frozen) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	reply, err := f.Store.Exchange(ctx, req)
	if len(reply.Jobs) > 0 {
		if _, _, err := f.store.Fence(ctx, req.Proc, true); err != nil {
			return reply, err
		}
		select {
		case <-time.After(1400 * time.Millisecond): // more than a part of the locks' eight seconds
		case <-ctx.Done():
		}
	}
	return reply, err
}

// Beat fails if the loop calls it, which would have been frozen too.
func (f *frozen) Beat(ctx context.Context, b store.BeatRequest) (store.BeatReply, error) {
	if b.Info != nil {
		return store.BeatReply{}, errors.New("cut off")
	}
	return f.Store.Beat(ctx, b)
}

func TestFrozenBeforeItsJobsBegin(t *testing.T) {
	t.Parallel()
	h, running, _ := gate()
	f := start(t, handlers{"A": h}, options{short: true, wrap: func(s workerproc.Store) workerproc.Store {
		return &frozen{Store: s, store: s.(*store.Store)} //nolint:forcetypeassert // as start makes it
	}})
	f.push(payload(1))
	require.ErrorIs(t, <-f.result, workerproc.ErrFenced)
	require.Empty(t, running)
	require.Zero(t, f.started.Load(), "it is another's job by now")
}

package workerproc_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/workerproc"
)

// unanswered executes the first request that ends jobs and asks for some, and then reports a
// script error, then and for each repetition of the same request.
type unanswered struct {
	workerproc.Store
	mu     sync.Mutex
	failed int
}

func (u *unanswered) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(req.Wants) == 0 || len(req.Completions) == 0 && !req.Repeat || u.failed >= 4 {
		return u.Store.Exchange(ctx, req)
	}
	u.failed++
	if u.failed == 1 {
		if _, err := u.Store.Exchange(ctx, req); err != nil {
			return store.ExchangeReply{}, err
		}
	}
	return store.ExchangeReply{}, errors.New("ERR Error running script")
}

// Jobs taken by a request whose answer was lost start even if the request is split: a job of a
// class that runs at most once has not run.
func TestJobsOfARequestTakenApart(t *testing.T) {
	t.Parallel()
	begun, open := make(chan string, 10), make(chan struct{})
	h := func(_ context.Context, job *resqued.Job) error {
		begun <- job.Class
		<-open
		return nil
	}
	away := &unanswered{}
	f := start(t, handlers{"A": h, "Once": h}, options{short: true, cfg: workerproc.Config{Threads: 1}, wrap: func(s workerproc.Store) workerproc.Store {
		away.Store = s
		return away
	}})
	f.push(`{"class":"A","args":[1]}`)
	require.Equal(t, "A", <-begun)
	f.push(`{"class":"Once","args":[1]}`)
	open <- struct{}{}
	close(open)
	eventually(t, "it has begun, or failed", func() bool { return len(begun)+len(f.failed()) > 0 })
	eventually(t, "both are recorded", func() bool { return f.processed() == 2 })
	require.Empty(t, f.failed())
	f.drain()
	require.Equal(t, 4, away.failed)
	require.Equal(t, "Once", <-begun)
	require.Empty(t, begun)
}

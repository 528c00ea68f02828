package workerproc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// byClass names locks by the class of a payload.
type byClass struct{}

func (byClass) Name(_ string, payload []byte) string {
	class, _, _ := strings.Cut(strings.TrimPrefix(string(payload), `{"class":"`), `"`)
	return class
}

// TestRenamedLocks: a job put in line for a lock of another name runs with the lock that it has
// now.
func TestRenamedLocks(t *testing.T) {
	t.Parallel()
	for name, fair := range map[string]map[string]*store.Fair{"": nil, "with turns of tenants": {"*": store.NewFair(0, nil, 1)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, running, open := gate()
			f := start(t, handlers{"A": h}, options{
				cfg: workerproc.Config{Threads: 3, Lined: true, NamedLocks: true, Fair: fair}, namer: byClass{}, state: "paused",
			})
			// With other settings, two jobs are in line for the lock A[1].
			ctx := t.Context()
			require.NoError(t, f.store.Register(ctx, store.Registration{Proc: "other", Workers: []string{"other:1:q"}, Started: "now"}))
			f.push(payload(1), payload(1), payload(1))
			req := store.ExchangeRequest{
				Proc: "other", Master: "m", Queues: []store.Queue{{Name: "q", Locked: true, Lined: true}},
				Wants: []store.Want{{Token: "1", Worker: "w"}, {Token: "2", Worker: "w"}},
			}
			reply, err := f.store.Exchange(ctx, req)
			require.NoError(t, err)
			require.Len(t, reply.Jobs, 1)
			require.Equal(t, "2", f.redis.HGet(ctx, f.key("resqued:lined"), "q").Val())
			ended := store.ExchangeRequest{Proc: "other", Master: "m", Completions: []store.Completion{{Job: &reply.Jobs[0], Kind: store.Done}}}
			_, err = f.store.Exchange(ctx, ended)
			require.NoError(t, err)

			_, err = f.store.Unregister(ctx, "other")
			require.NoError(t, err)

			f.push(payload(2))
			f.down <- proc.Message{Type: proc.SetState, State: "running"}
			close(open)
			for range 3 {
				require.Equal(t, f.key("locket:job_locks:A"), next(t, running).LockKey)
			}
			eventually(t, "done", func() bool { return f.processed() == 4 })
			require.Zero(t, f.redis.Exists(ctx, f.key("resqued:lined"), f.key("resqued:line:1:q:A[1]"), f.key("resqued:line:1:q:A")).Val())
			f.drain()
		})
	}
}

package web_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/internal/wire"
)

// Locks in PostgreSQL are listed with those in Redis. A database that does not answer harms nothing
// else.
func TestLocksInADatabase(t *testing.T) {
	t.Parallel()
	var broken error
	role := web.Operator
	f := setup(t, func(o *web.Options) {
		o.HideArgs = true
		o.Who = func(*http.Request) (web.Visitor, error) { return web.Visitor{Role: role}, nil }
		o.DatabaseLocks = func(ctx context.Context, limit int) ([]*view.Lock, bool, error) {
			if _, bounded := ctx.Deadline(); !bounded {
				return nil, false, errors.New("for ever")
			}
			return []*view.Lock{
				view.NewDatabaseLock(ctx, "Payout-4711", wire.WorkerID("p", "web-1", 0, 3, 9120, []string{"q"}), 7, time.Minute, time.Second),
				view.NewDatabaseLock(ctx, "Payout-4712", "a nightly program", 8, 0, 0),
			}, limit > 2, broken
		}
	})
	f.Fill("mail")
	keys := func(path string) (keys []string) {
		for _, one := range f.Get(path)["items"].([]any) {
			keys = append(keys, one.(map[string]any)["key"].(string))
		}
		return keys
	}
	both := keys("/api/v1/locks")
	require.Contains(t, both, "Payout-4711")
	require.Equal(t, []string{"Payout-4711", "Payout-4712"}, keys("/api/v1/locks?kind=postgres"))
	require.NotContains(t, keys("/api/v1/locks?kind=locket"), "Payout-4711")
	html := func(r *http.Request) { r.Header.Set("Accept", "text/html") }
	page := f.Ask(http.MethodGet, "/locks", "", html).Body.String()
	require.Contains(t, page, "Payout-4711")
	require.Contains(t, page, "In PostgreSQL")
	require.Contains(t, page, "web-1:9120.0.3<")
	require.Contains(t, page, "a nightly program")
	require.NotContains(t, page, redact.Shown)

	role = web.Viewer
	require.NotContains(t, keys("/api/v1/locks"), "Payout-4711", "its key is made of arguments")
	require.NotContains(t, f.Ask(http.MethodGet, "/locks", "", html).Body.String(), "Payout-47")

	broken = errors.New("connection refused")
	require.Len(t, keys("/api/v1/locks"), len(both)-2)
	require.Equal(t, "PostgreSQL: connection refused", f.Get("/api/v1/locks")["missing"])
	require.Equal(t, http.StatusServiceUnavailable, f.Ask(http.MethodGet, "/api/v1/locks?kind=postgres", "").Code)
	page = f.Ask(http.MethodGet, "/locks", "", html).Body.String()
	require.Contains(t, page, "connection refused")
	require.Contains(t, page, `id="held"`)
}

// TestADatabaseThatHangs: a database that stops answering is not taken for Redis, and keeps nothing else
// from being read.
func TestADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	f := setup(t, func(o *web.Options) {
		o.DatabaseLocks = func(ctx context.Context, _ int) ([]*view.Lock, bool, error) {
			if hangs.Load() {
				<-ctx.Done()
				return nil, false, ctx.Err()
			}
			return []*view.Lock{view.NewDatabaseLock(ctx, "Payout-4711", "gone", 7, time.Minute, 0)}, true, nil
		}
	})
	defer func() { // ends what still waits
		ctx, stop := context.WithCancel(t.Context())
		stop()
		f.Server.Run(ctx)
	}()
	html := func(r *http.Request) { r.Header.Set("Accept", "text/html") }
	page := func() string { return f.Ask(http.MethodGet, "/locks", "", html).Body.String() }
	require.Contains(t, page(), "Payout-4711")
	hangs.Store(true)
	f.Do("SADD", "queue:payouts:uniqueue", "payload")
	f.Do("RPUSH", "queue:payouts", `{"class":"A","args":[]}`)
	f.Do("SADD", "queues", "payouts")
	text := page()
	require.Contains(t, text, "Payout-4711", "what was read last")
	require.Contains(t, text, "Not up to date")
	require.Contains(t, text, "PostgreSQL has not answered yet")
	require.NotContains(t, text, "Redis has not answered yet")
	require.Contains(t, text, "payouts", "the unique queues are those of now")
}

package web_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web"
	"github.com/resqued/resqued/internal/wire"
)

// The locks in PostgreSQL are beside those of Redis, and a database that does not answer spoils nothing else.
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
	f.fill("mail")
	keys := func(path string) (keys []string) {
		for _, one := range f.get(path)["items"].([]any) {
			keys = append(keys, one.(map[string]any)["key"].(string))
		}
		return keys
	}
	both := keys("/api/v1/locks")
	require.Contains(t, both, "Payout-4711")
	require.Equal(t, []string{"Payout-4711", "Payout-4712"}, keys("/api/v1/locks?kind=postgres"))
	require.NotContains(t, keys("/api/v1/locks?kind=locket"), "Payout-4711")
	html := func(r *http.Request) { r.Header.Set("Accept", "text/html") }
	page := f.ask(http.MethodGet, "/locks", "", html).Body.String()
	require.Contains(t, page, "Payout-4711")
	require.Contains(t, page, "In PostgreSQL")
	require.Contains(t, page, "web-1:9120.0.3<")
	require.Contains(t, page, "a nightly program")
	require.NotContains(t, page, redact.Shown)

	role = web.Viewer
	require.NotContains(t, keys("/api/v1/locks"), "Payout-4711", "its key is made of arguments")
	require.NotContains(t, f.ask(http.MethodGet, "/locks", "", html).Body.String(), "Payout-47")

	broken = errors.New("connection refused")
	require.Len(t, keys("/api/v1/locks"), len(both)-2)
	require.Equal(t, http.StatusServiceUnavailable, f.ask(http.MethodGet, "/api/v1/locks?kind=postgres", "").Code)
	page = f.ask(http.MethodGet, "/locks", "", html).Body.String()
	require.Contains(t, page, "connection refused")
	require.Contains(t, page, `id="held"`)
}

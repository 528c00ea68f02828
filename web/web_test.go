package web_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }

// A program mounts the dashboard beside its own pages, and says who may do what.
func TestHandler(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	visitor, known := web.Visitor{Name: "ann"}, true
	d, err := web.Handler(web.Options{
		URL: redis.URL(), Namespace: redistest.Namespace(t), PathPrefix: "/jobs",
		Who: func(*http.Request) (web.Visitor, bool) { return visitor, known },
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/jobs/", d)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the program's own page") })
	server := httptest.NewServer(mux)
	ask := func(method, path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(""))
		require.NoError(t, err)
		answer, err := server.Client().Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, string(body)
	}
	code, body := ask(http.MethodGet, "/jobs/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `href="/jobs/queues"`)
	_, body = ask(http.MethodGet, "/other")
	require.Equal(t, "the program's own page", body)
	code, _ = ask(http.MethodPost, "/jobs/api/v1/pause")
	require.Equal(t, http.StatusForbidden, code)
	visitor.Operator = true
	code, body = ask(http.MethodPost, "/jobs/api/v1/pause")
	require.Equal(t, http.StatusOK, code, body)
	_, body = ask(http.MethodGet, "/jobs/api/v1/events")
	require.Contains(t, body, `"by":"ann@127.0.0.1"`)
	known = false
	for _, path := range []string{"/jobs/", "/jobs/api/v1/overview", "/jobs/metrics"} {
		code, _ = ask(http.MethodGet, path)
		require.Equal(t, http.StatusForbidden, code, path)
	}
	server.Close()
	require.NoError(t, d.Close())
}

// The page has the schedules of the program's own classes, and those that stand in Redis as daemons
// take them: nothing is wrong with either.
func TestSchedules(t *testing.T) {
	t.Parallel()
	redis, ns := redistest.Shared(t), redistest.Namespace(t)
	ctx, db := t.Context(), redis.Client(t)
	require.NoError(t, db.HSet(ctx, ns+":persistent_schedules", "stored", `{"cron":"0 3 * * *","class":"Poll"}`, "live", `{"cron":"0 4 * * *","class":"Poll","rails_env":"production"}`).Err())
	require.NoError(t, db.HSet(ctx, ns+":resqued:schedules", "theirs", `{"name":"theirs","class":"Their","queue":"q","cron":"0 5 * * *"}`).Err())
	h := resqued.New()
	h.Register(resqued.Class{Name: "Poll", Queue: "polls", Every: time.Hour, Handler: func(context.Context, *resqued.Job) error { return nil }})
	type item struct{ Name, Source, Queue, When, Invalid string }
	ask := func(o web.Options) (found map[string]item, attention string) {
		o.URL, o.Namespace = redis.URL(), ns
		d, err := web.Handler(o)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		get := func(path string) string {
			answer, request := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
			request.Host = "localhost"
			d.ServeHTTP(answer, request)
			require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
			return answer.Body.String()
		}
		var v struct{ Items []item }
		require.NoError(t, json.Unmarshal([]byte(get("/api/v1/schedule")), &v))
		found = map[string]item{}
		for _, one := range v.Items {
			found[one.Name] = one
		}
		return found, get("/api/v1/attention")
	}
	found, attention := ask(web.Options{Handlers: h, StoredSchedules: true, RailsEnv: "production"})
	require.Equal(t, item{"Poll", "program", "polls", "every 3600s", ""}, found["Poll"])
	require.Equal(t, item{"stored", "redis", "polls", "0 3 * * *", ""}, found["stored"])
	require.Empty(t, found["live"].Invalid)
	require.Empty(t, found["theirs"].Invalid)
	require.NotContains(t, attention, "schedules")
	found, attention = ask(web.Options{})
	require.Equal(t, "has no queue, and class Poll names none", found["stored"].Invalid)
	require.NotContains(t, found, "Poll")
	require.NotContains(t, attention, "schedules", "a Ruby scheduler keeps them")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []web.Options{{PathPrefix: "jobs"}, {PathPrefix: "/{x}"}, {PathPrefix: "/a//b"}, {PathPrefix: "//a"}, {PathPrefix: "/a/../b"}, {PathPrefix: "/a\nb"}, {URL: "http://x"}, {CAFile: "nowhere.pem"}, {KeyFile: "nowhere.pem"}, {UniqueQueues: []string{"["}}, {Redact: "Mail"}} {
		_, err := web.Handler(o)
		require.ErrorContains(t, err, "web: ", "%+v", o)
	}
	// A Redis that is away is shown as such.
	d, err := web.Handler(web.Options{URL: "redis://127.0.0.1:1/0"})
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	request.Host = "localhost"
	d.ServeHTTP(answer, request)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.NoError(t, d.Close())
}

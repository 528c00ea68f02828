package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/redistest"
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

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []web.Options{{PathPrefix: "jobs"}, {PathPrefix: "/{x}"}, {PathPrefix: "/a//b"}, {PathPrefix: "//a"}, {PathPrefix: "/a/../b"}, {PathPrefix: "/a\nb"}, {URL: "http://x"}, {CAFile: "nowhere.pem"}, {UniqueQueues: []string{"["}}, {Redact: "Mail"}} {
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

package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/webtest"
	"github.com/resqued/resqued/internal/web"
)

// Each store has its pages, with a switch to the same page of the others.
func TestStores(t *testing.T) {
	t.Parallel()
	own := redistest.Start(t, redistest.Options{})
	main := webtest.SetupOn(t, own, func(o *web.Options) { o.StoreName, o.PathPrefix = "main", "/jobs" })
	bulk := setup(t, func(o *web.Options) { o.StoreName, o.PathPrefix = "bulk", "/jobs" })
	main.Do("SADD", "queues", "mail")
	bulk.Do("SADD", "queues", "import")
	both := web.NewStores([]web.Options{main.Options, bulk.Options})
	server := httptest.NewServer(both)
	t.Cleanup(server.Close)
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(path string) (code int, body, to string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		request.Header.Set("Accept", "text/html")
		answer, err := browser.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text), answer.Header.Get("Location")
	}
	for path, want := range map[string]string{
		"/jobs/":                              "/jobs/store/main/",
		"/jobs/store/bulk":                    "/jobs/store/bulk/",
		"/jobs/?store=bulk":                   "/jobs/store/bulk/",
		"/jobs/?store=bulk&page=/queues":      "/jobs/store/bulk/queues",
		"/jobs/?store=bulk&page=//evil.test/": "/jobs/store/bulk/",
	} {
		code, _, to := ask(path)
		require.Equal(t, http.StatusSeeOther, code, path)
		require.Equal(t, want, to, path)
	}
	code, body, _ := ask("/jobs/?store=other")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, "there is no store")
	code, body, _ = ask("/jobs/store/bulk/queues")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "import")
	require.NotContains(t, body, "mail")
	require.Contains(t, body, `<form class="stores" action="/jobs/">`)
	require.Contains(t, body, `<input type="hidden" name="page" value="/queues">`)
	require.Contains(t, body, `<option>main</option><option selected>bulk</option>`)
	require.Contains(t, body, `href="/jobs/store/bulk/failed"`, "links stay in the store")
	code, body, _ = ask("/jobs/store/main/queues")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "mail")
	for _, path := range []string{"/jobs/queues", "/jobs/store/other/", "/"} {
		code, _, _ = ask(path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
	for _, path := range []string{"/jobs/healthz", "/jobs/readyz", "/jobs/store/bulk/metrics"} {
		code, _, _ = ask(path)
		require.Equal(t, http.StatusOK, code, path)
	}
	// A store that cannot be reached does not hide the others.
	own.Kill()
	code, _, _ = ask("/jobs/readyz")
	require.Equal(t, http.StatusOK, code)
	code, _, _ = ask("/jobs/store/main/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	// A single store is shown as usual.
	require.NotContains(t, setup(t).html("/queues"), "class=\"stores\"")
}

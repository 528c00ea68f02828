package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/webtest"
	"github.com/resqued/resqued/internal/web"
)

const notReady = "not ready: Redis does not answer as it should; the log says why\n"

// strangers refuses every login, and fails the test if a probe's login is checked: its tokens must not
// matter.
func strangers(t *testing.T) func(*web.Options) {
	return func(o *web.Options) {
		o.Who = func(r *http.Request) (web.Visitor, error) {
			assert.False(t, r.Method == http.MethodGet && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz"), r.URL.Path)
			return web.Visitor{}, &web.Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "this server asks for a login"}
		}
	}
}

// A probe needs no login. It learns whether the server runs and whether Redis answers, nothing else.
func TestProbesNeedNoLogin(t *testing.T) {
	t.Parallel()
	own := redistest.Start(t, redistest.Options{})
	f := webtest.SetupOn(t, own, strangers(t))
	f.Fill("mail")
	token := func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }
	for _, path := range []string{"/healthz", "/readyz", "/healthz?verbose", "/readyz?verbose=1"} {
		answer := f.Ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, answer.Code, path)
		require.Equal(t, "ok\n", answer.Body.String(), path)
		require.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
		require.Equal(t, http.StatusOK, f.Ask(http.MethodHead, path, "", token).Code, path)
		foreign := f.Ask(http.MethodGet, path, "", func(r *http.Request) { r.Host = "evil.example" })
		require.Equal(t, http.StatusMisdirectedRequest, foreign.Code, path)
	}
	for _, r := range web.Table() {
		if r.Role != 0 {
			require.Equal(t, http.StatusUnauthorized, f.Ask(r.Method, placeholder.ReplaceAllString(r.Path, "x"), "").Code, "%s %s", r.Method, r.Path)
		}
	}
	for _, one := range []string{"POST /healthz", "DELETE /readyz", "GET /healthz/", "GET /healthz/x", "GET /nothing", "GET /HEALTHZ"} {
		method, path, _ := strings.Cut(one, " ")
		require.Equal(t, http.StatusUnauthorized, f.Ask(method, path, "").Code, one)
	}

	// A new server does not repeat another one's result.
	fresh := web.New(f.Options)
	own.Kill()
	f.Server = fresh
	answer := f.Ask(http.MethodGet, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, notReady, answer.Body.String(), "not where Redis is, or what it said")
	require.Equal(t, http.StatusOK, f.Ask(http.MethodGet, "/healthz", "").Code)
}

// The stores' names are not revealed without a login.
func TestProbesOfStores(t *testing.T) {
	t.Parallel()
	main := setup(t, strangers(t), func(o *web.Options) { o.StoreName = "main" })
	bulk := setup(t, strangers(t), func(o *web.Options) { o.StoreName = "bulk" })
	both := web.NewStores([]web.Options{main.Options, bulk.Options})
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusOK,
		"/store/main/healthz": http.StatusUnauthorized, "/store/main/readyz": http.StatusUnauthorized,
		"/store/other/healthz": http.StatusUnauthorized, "/": http.StatusUnauthorized, "/?store=other": http.StatusUnauthorized,
		"/?store=main": http.StatusUnauthorized, "/store/main": http.StatusUnauthorized, "/store/other": http.StatusUnauthorized,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = "localhost"
		answer := httptest.NewRecorder()
		both.ServeHTTP(answer, r)
		assert.Equal(t, want, answer.Code, path)
		assert.NotContains(t, answer.Body.String(), "bulk", path)
	}
	// A single store is probed as usual.
	require.Equal(t, http.StatusOK, main.Ask(http.MethodGet, "/readyz", "").Code)
}

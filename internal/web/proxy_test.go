package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/web"
)

var addressed = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// Under a path behind a proxy that asks for the login, every address on every page leads through
// the proxy, and who has logged in there is known.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	login := &web.Login{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, UserHeader: "X-Forwarded-User", Operators: []string{"ann"}}
	f := setup(t, func(o *web.Options) {
		o.PathPrefix, o.Hosts, o.Who = "/tools/jobs", []string{"jobs.example"}, login.Who
	})
	f.fill("mail")
	behind := httptest.NewServer(f.server)
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL)
	require.NoError(t, err)
	user := "ann"
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = "jobs.example"
		r.SetXForwarded()
		r.Out.Header.Set("X-Forwarded-User", user)
	}})
	t.Cleanup(front.Close)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string, form url.Values) (code int, to, body string) {
		request, err := http.NewRequestWithContext(t.Context(), method, front.URL+path, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		request.Header.Set("Accept", "text/html")
		if method == http.MethodPost {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			request.Header.Set("Origin", "http://jobs.example") // no Sec-Fetch-Site: it is not https
		}
		answer, err := client.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, answer.Header.Get("Location"), string(text)
	}
	seen := map[string]bool{}
	todo := []string{"/tools/jobs/"}
	for len(todo) > 0 && len(seen) < 300 {
		at := todo[0]
		todo = todo[1:]
		if path, _, _ := strings.Cut(at, "#"); path == "" || seen[path] {
			continue
		}
		seen[at] = true
		code, _, body := ask(http.MethodGet, at, nil)
		require.Equal(t, http.StatusOK, code, "%s: %s", at, body)
		for _, m := range addressed.FindAllStringSubmatch(body, -1) {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.HasPrefix(to, "#") || strings.HasPrefix(to, "data:") {
				continue
			}
			assert.True(t, strings.HasPrefix(to, "/tools/jobs/") || to == "/tools/jobs", "%s on %s", to, at)
			if !strings.HasPrefix(m[0], "action") {
				todo = append(todo, to)
			}
		}
	}
	require.Greater(t, len(seen), 20)

	code, to, _ := ask(http.MethodPost, "/tools/jobs/queues/mail", url.Values{"act": {"pause"}})
	require.Equal(t, http.StatusSeeOther, code)
	require.True(t, strings.HasPrefix(to, "/tools/jobs/queues/mail"), to)
	user = "bob"
	code, _, _ = ask(http.MethodPost, "/tools/jobs/queues/mail", url.Values{"act": {"resume"}})
	require.Equal(t, http.StatusForbidden, code, "he is no operator")
	code, _, _ = ask(http.MethodGet, "/", nil)
	require.Equal(t, http.StatusNotFound, code, "nothing is served beside the path")
}

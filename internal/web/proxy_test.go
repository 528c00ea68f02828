package web_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/web"
)

var addressed = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// Under a path behind a proxy that does the login, every address on every page leads through the
// proxy, and its user is known.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	login := &web.Login{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, UserHeader: "X-Forwarded-User", Operators: []string{"ann"}}
	f := setup(t, func(o *web.Options) {
		o.PathPrefix, o.Hosts, o.Who = "/tools/jobs", []string{"jobs.example"}, login.Who
	})
	f.Fill("mail")
	behind := httptest.NewServer(f.Server)
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
	require.Equal(t, http.StatusForbidden, code, "he is not an operator")
	code, _, _ = ask(http.MethodGet, "/", nil)
	require.Equal(t, http.StatusNotFound, code, "nothing is served beside the path")
}

// On a unix socket the kernel identifies the user. Only a trusted user may pass on another login.
func TestProxyByUnixSocket(t *testing.T) {
	t.Parallel()
	self, err := user.Current()
	require.NoError(t, err)
	login := &web.Login{Anonymous: web.Viewer, UserHeader: "X-User", Operators: []string{"ann", self.Username}}
	f := setup(t, func(o *web.Options) { o.Who = login.Who })
	f.Fill("mail")
	path := filepath.Join(t.TempDir(), "web")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := f.Server.HTTP()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	act := "/api/v1/pause"
	ask := func(header http.Header) (code int, text string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+act, nil)
		require.NoError(t, err)
		r.Header = header
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	ann := http.Header{"X-User": {"ann"}}

	// This process's user is not a proxy, and no address makes it one.
	for _, proxies := range [][]netip.Prefix{nil, {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}} {
		for _, users := range [][]int{nil, {os.Getuid() + 1}, {-1}} {
			login.Proxies, login.ProxyUsers = proxies, users
			code, text := ask(ann)
			assert.Equal(t, http.StatusForbidden, code, text)
			assert.Contains(t, text, "X-User comes from user "+self.Username+", which is not a trusted proxy")
		}
	}
	code, text := ask(nil)
	require.Equal(t, http.StatusOK, code, "who asks for himself is known: %s", text)
	login.Anonymous = 0
	code, text = ask(nil)
	require.Equal(t, http.StatusOK, code, "an operator, whom the kernel names: %s", text)
	login.Operators = []string{"ann"}
	code, text = ask(nil)
	require.Equal(t, http.StatusUnauthorized, code, text)

	login.ProxyUsers, act = []int{os.Getuid()}, "/api/v1/resume"
	code, text = ask(ann)
	require.Equal(t, http.StatusOK, code, text)
	events, err := f.Store.Events(t.Context(), "", 1)
	require.NoError(t, err)
	require.Equal(t, "ann", events[0].By)
	code, _ = ask(http.Header{"X-User": {"bob"}})
	require.Equal(t, http.StatusForbidden, code, "he is not an operator")
	for name, header := range map[string]http.Header{"no header": nil, "an empty one": {"X-User": {""}}, "another one": {"X-Forwarded-User": {"ann"}}, "Via": {"Via": {"1.1 x"}}} {
		code, text = ask(header)
		require.Equal(t, http.StatusUnauthorized, code, "%s: the proxy is not one of its users: %s", name, text)
	}
	code, _ = ask(http.Header{"X-User": {"bob", "ann"}})
	require.Equal(t, http.StatusForbidden, code, "whose name comes first is not said")
	// The same header by TCP is not believed.
	tcp := f.Ask(http.MethodPost, "/api/v1/pause", "", func(r *http.Request) { r.Header.Set("X-User", "ann") })
	require.Equal(t, http.StatusOK, tcp.Code, "127.0.0.1 is of 0.0.0.0/0")
	login.Proxies = nil
	tcp = f.Ask(http.MethodPost, "/api/v1/pause", "", func(r *http.Request) { r.Header.Set("X-User", "ann") })
	require.Equal(t, http.StatusForbidden, tcp.Code)
}

package cli

import (
	"crypto/sha256"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/web"
)

// A dashboard that was started without tokens accepts later ones without a restart.
func TestTokensAreAddedLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	o := webOptions{tokens: path}
	login, err := o.login(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	require.NoError(t, writeTokens(path, []web.Token{{Name: "ann", Role: web.Operator, Sum: sha256.Sum256([]byte("secret"))}}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer secret")
	v, err := login.Who(r)
	require.NoError(t, err)
	require.Equal(t, web.Visitor{Name: "ann", Role: web.Operator}, v)

	o.tokens = filepath.Join(t.TempDir(), "none")
	_, err = o.login(&net.TCPAddr{IP: net.IPv4zero})
	require.ErrorContains(t, err, "there is no login")
}

func TestWideProxies(t *testing.T) {
	t.Parallel()
	for network, wide := range map[string]bool{
		"10.0.0.0/8": false, "172.16.0.0/12": false, "192.0.2.7": false, "203.0.113.0/24": false, "fd00::/8": false, "2001:db8::/48": false,
		"10.0.0.0/7": true, "203.0.0.0/8": true, "128.0.0.0/1": true, "2000::/3": true,
	} {
		o := webOptions{proxies: []string{network}, userHeader: "X-User"}
		_, err := o.login(&net.TCPAddr{IP: net.IPv4zero})
		require.NoError(t, err)
		require.Equal(t, wide, len(o.wide) == 1, network)
	}
	for _, network := range []string{"0.0.0.0/0", "::/0", "10.0.0.0/0"} {
		o := webOptions{proxies: []string{network}, userHeader: "X-User"}
		_, err := o.login(&net.TCPAddr{IP: net.IPv4zero})
		require.ErrorContains(t, err, "holds every address")
	}
}

func TestPathPrefixes(t *testing.T) {
	t.Parallel()
	for prefix, ok := range map[string]bool{
		"": true, "/": true, "/jobs": true, "/a/b/": true, "jobs": false, "//jobs": false, "/a//b": false, "/a/../b": false, "/a/./b": false, "/{x}": false, "/a b": false, "/a\nb": false, "/é": false,
	} {
		o := webOptions{prefix: prefix}
		_, err := o.login(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		require.Equal(t, ok, err == nil, "%q: %v", prefix, err)
		if ok {
			web.New(web.Options{PathPrefix: o.prefix})
		}
	}
}

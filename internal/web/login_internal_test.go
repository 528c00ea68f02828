package web

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSocketsNamedLikeAddresses: a client of a unix socket has no address, whatever its own socket is
// called. Not parallel: such a name is a path in the working directory.
func TestSocketsNamedLikeAddresses(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := net.Listen("unix", "server")
	require.NoError(t, err)
	said := make(chan bool, 1)
	server := &http.Server{ConnContext: withLocalUser, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		from, local := peer(r)
		said <- r.RemoteAddr == "203.0.113.9:1" && local && !from.IsValid()
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	defer func() { _ = server.Close(); <-ended }()
	d := net.Dialer{LocalAddr: &net.UnixAddr{Net: "unix", Name: "203.0.113.9:1"}}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", "server")
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/", nil)
	require.NoError(t, err)
	answer, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.True(t, <-said)
}

package web_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Clients that accept it get compressed answers with the same content: lists, descriptions, metrics
// and pages. Others get plain ones.
func TestPacked(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.Fill("mail")
	for i := range 300 {
		f.Do("SADD", "workers", fmt.Sprintf("ruby:%d:mail", i))
		f.Do("SADD", "queues", fmt.Sprintf("queue-%d", i))
	}
	server := httptest.NewServer(f.Server)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	ask := func(method, path string, accepted ...string) (http.Header, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		require.NoError(t, err)
		r.Header["Accept-Encoding"] = accepted
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		raw, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
		return answer.Header, raw
	}
	for _, path := range []string{"/api/v1/workers", "/api/v1/queues", "/api/v1/openapi.yaml", "/api/v1/openapi.json", "/metrics", "/queues"} {
		for _, refused := range [][]string{nil, {"identity"}, {"br"}, {"gzip;q=0"}, {"gzip; q=0.000, br"}} {
			answer, raw := ask(http.MethodGet, path, refused...)
			assert.Empty(t, answer.Get("Content-Encoding"), "%s %v", path, refused)
			assert.Contains(t, answer.Get("Vary"), "Accept-Encoding", path)
			assert.Equal(t, strconv.Itoa(len(raw)), answer.Get("Content-Length"))
		}
		_, plain := ask(http.MethodGet, path)
		for _, accepted := range [][]string{{"gzip"}, {"br", "gzip"}, {"GZIP;q=0.1"}, {"deflate, gzip;q=1.0, *;q=0.5"}} {
			answer, raw := ask(http.MethodGet, path, accepted...)
			require.Equal(t, "gzip", answer.Get("Content-Encoding"), "%s %v", path, accepted)
			assert.Equal(t, strconv.Itoa(len(raw)), answer.Get("Content-Length"))
			z, err := gzip.NewReader(bytes.NewReader(raw))
			require.NoError(t, err)
			text, err := io.ReadAll(z)
			require.NoError(t, err)
			if strings.Contains(path, "openapi") { // the others have figures of their own time
				assert.Equal(t, plain, text, path)
			}
			assert.Less(t, 2*len(raw), len(text), path)
			head, none := ask(http.MethodHead, path, accepted...)
			assert.Empty(t, none)
			assert.Equal(t, "gzip", head.Get("Content-Encoding"), path)
			assert.Equal(t, answer.Get("Content-Type"), head.Get("Content-Type"), path)
			assert.NotEmpty(t, head.Get("Content-Length"), path)
		}
	}
	answer, _ := ask(http.MethodGet, "/healthz", "gzip")
	assert.Empty(t, answer.Get("Content-Encoding"), "it is not worth it")
	missing := f.Ask(http.MethodHead, "/api/v1/queues/none", "")
	assert.Equal(t, http.StatusNotFound, missing.Code)
}

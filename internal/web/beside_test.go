package web_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/webtest"
)

// All background work has ended when Run returns, and none begins later. Not parallel: it looks at
// all goroutines of the process.
func TestNothingOutlivesRun(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	f := webtest.SetupOn(t, server)
	f.Fill("mail")
	for range 20 {
		var records []any
		for i := range 1000 {
			records = append(records, fmt.Sprintf(`{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"A","args":[%d]},"exception":"E","error":"e","backtrace":[],"worker":"w","queue":"q"}`, i))
		}
		f.Do("RPUSH", "failed", records...)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ran := make(chan struct{})
	go func() { defer close(ran); f.Server.Run(ctx) }()
	f.Get("/api/v1/overview")
	f.Get("/api/v1/failed/groups") // 20,000 take longer than a request: it continues in the background
	server.Hang()
	defer server.Resume()
	stop()
	<-ran
	require.Empty(t, ofPackageWeb())
	server.Resume()

	answer := f.Ask(http.MethodPost, "/api/v1/failed/retry", `{"filter":{"all":true},"background":true}`)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code, "an act that nothing waits for")
	require.Contains(t, answer.Body.String(), "stopping")
	f.Ask(http.MethodGet, "/api/v1/failed/groups", "")
	f.Ask(http.MethodGet, "/api/v1/overview", "")
	f.Ask(http.MethodGet, "/", "")
	require.Empty(t, ofPackageWeb())
}

// ofPackageWeb returns the goroutines that the server has started.
func ofPackageWeb() (all []string) {
	text := make([]byte, 8<<20)
	text = text[:runtime.Stack(text, true)]
	for one := range strings.SplitSeq(string(text), "\n\n") {
		if strings.Contains(one, "created by github.com/resqued/resqued/internal/web.") {
			all = append(all, one)
		}
	}
	return all
}

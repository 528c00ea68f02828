package system_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
)

// The dashboard starts with its first visitor, knows the visitor's name, and loses no request
// when restarted.
func TestSystemdDashboard(t *testing.T) {
	t.Parallel()
	self, err := user.Current()
	require.NoError(t, err)
	const web, socket = "resqued-web.service", "/run/resqued-web.sock"
	s := boot(t, "", "", map[string]string{
		"/etc/systemd/system/resqued-web.socket.d/a-test.conf": "[Socket]\nListenStream=\nListenStream=" + socket + "\n",
		"/etc/systemd/system/resqued-web.service.d/a-test.conf": "[Service]\nRestartSec=100ms\nExecStart=\n" +
			"ExecStart=/usr/local/bin/resqued web --config /etc/resqued/resqued.yaml --tokens %d/web-tokens --operators " + self.Username + "\n",
	})
	s.Systemctl("start", "resqued-web.socket")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.Path(socket))
	}}}
	ask := func(method, path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
		require.NoError(t, err)
		answer, err := client.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	require.Equal(t, "inactive", s.Property(web, "ActiveState"))
	code, body := ask(http.MethodGet, "/readyz")
	require.Equal(t, http.StatusOK, code, "%s\n%s", body, s.Journal(web))
	require.Equal(t, "active", s.Property(web, "ActiveState"))

	t.Log("who asks by the socket is who he is")
	code, body = ask(http.MethodPost, "/api/v1/pause")
	require.Equal(t, http.StatusOK, code, body)
	code, body = ask(http.MethodGet, "/api/v1/events")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"by":"`+self.Username)

	t.Log("killed, and restarted, it is missed by nobody")
	before := s.MainPID(web)
	var refused atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	asked := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if code, body := ask(http.MethodGet, "/healthz"); code != http.StatusOK && ctx.Err() == nil && (code != 0 || strings.Contains(body, "dial")) {
				t.Log(code, body)
				refused.Add(1)
			}
			n++
		}
		asked <- n
	}()
	s.Exec("kill", "-KILL", strconv.Itoa(before))
	proctest.Await(t, patience, func() bool { pid := s.MainPID(web); return pid != 0 && pid != before }, "another process")
	again := s.MainPID(web)
	s.Systemctl("restart", web)
	require.NotEqual(t, again, s.MainPID(web))
	stop()
	require.Positive(t, <-asked)
	require.Zero(t, refused.Load(), "a connection that was made before is lost with its process; no new one is refused")
	s.Systemctl("stop", web, "resqued-web.socket")
	require.Equal(t, "inactive", s.Property(web, "ActiveState"), s.Journal(web))
}

package system_test

import (
	"context"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestAKillBeforeAnAttemptIsKnown kills a job with all others of its process before the number
// of its earlier runs is known. It has not begun: it is put back, and no attempt is lost.
func TestAKillBeforeAnAttemptIsKnown(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	address, err := url.Parse(server.URL())
	require.NoError(t, err)
	proxy, err := faultproxy.Listen(faultproxy.Config{Network: "tcp", Address: address.Host})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = proxy.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-served })
	address.Host = proxy.Addr()
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Env: []string{"REDIS_URL=" + address.String()}})

	asked := func() *faultproxy.Caught {
		trap := proxy.Trap(faultproxy.Trap{Match: func(q faultproxy.Request) bool { return strings.Contains(q.Arg, "resque-retry:") }})
		d.PushRaw("mail", `{"class":"FlakyNow","args":[7]}`)
		select {
		case caught := <-trap:
			return caught
		case <-time.After(time.Minute):
			t.Fatal("the number of the job's runs was not asked for")
			return nil
		}
	}
	caught := asked()
	d.Signal(syscall.SIGUSR1)
	proctest.Await(t, time.Minute, func() bool {
		s, err := standingOf(d)
		return err == nil && s.inflight == 0
	}, "the end of the kill")
	caught.Pass()
	proctest.Await(t, time.Minute, func() bool {
		s, err := standingOf(d)
		return err == nil && s.inflight+s.queued+s.delayed == 0
	}, "the end of the job")
	require.Empty(t, d.Failures())
	for _, attempt := range []string{"attempt-1", "attempt-2", "attempt-3"} {
		require.Equal(t, map[string]string{"7": "1"}, d.Noted(attempt), attempt)
	}
	d.Signal(quit)
	require.Zero(t, d.Exit())
	nothingOfRetries(t, d)
}

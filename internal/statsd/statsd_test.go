package statsd

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen returns a UDP server's port, and a function that reads metrics until
// one begins with the given text.
func listen(t *testing.T) (port int, until func(last string) []string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().(*net.UDPAddr).Port, func(last string) []string {
		t.Helper()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		var got []string
		buf := make([]byte, 65536)
		for {
			n, _, err := conn.ReadFrom(buf)
			require.NoError(t, err, "after %q", got)
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				got = append(got, line)
				if strings.HasPrefix(line, last) {
					return got
				}
			}
		}
	}
}

func TestCounting(t *testing.T) {
	t.Parallel()

	t.Run("a job counts under its class and in the totals", func(t *testing.T) {
		t.Parallel()
		port, until := listen(t)
		c := New(Config{Host: "127.0.0.1", Port: port, Key: "app.jobs"}, zap.NewNop())
		c.Job("Mail", "done", 1500*time.Microsecond, 2*time.Second)
		c.Job("My::Import", Failed, time.Second, 0)
		c.Job("Mail", Dropped, Unknown, time.Second)
		c.Job("Mail", Interrupted, Unknown, 0)
		c.Job("Mail", Requeued, 2*time.Millisecond, 0)
		c.Job("Mail", Retried, Unknown, 0)
		c.Died("Mail")
		c.Count(Locked, 3)
		c.Close()
		require.Equal(t, []string{
			"app.jobs.Mail:1|c",
			"app.jobs.processed:1|c",
			"app.jobs.duration.Mail:1.5|ms",
			"app.jobs.queue_wait:2000|ms",
			"app.jobs.My.Import:1|c",
			"app.jobs.processed:1|c",
			"app.jobs.failed:1|c",
			"app.jobs.duration.My.Import:1000|ms",
			"app.jobs.Mail:1|c",
			"app.jobs.processed:1|c",
			"app.jobs.dropped:1|c",
			"app.jobs.Mail:1|c",
			"app.jobs.processed:1|c",
			"app.jobs.interrupted:1|c",
			"app.jobs.requeued:1|c",
			"app.jobs.duration.Mail:2|ms",
			"app.jobs.Mail:1|c",
			"app.jobs.processed:1|c",
			"app.jobs.failed:1|c",
			"app.jobs.retried:1|c",
			"app.jobs.Mail:1|c",
			"app.jobs.processed:1|c",
			"app.jobs.failed:1|c",
			"app.jobs.locked:3|c",
		}, until("app.jobs.locked"))
	})

	t.Run("an empty key leaves no dot behind", func(t *testing.T) {
		t.Parallel()
		port, until := listen(t)
		c := New(Config{Host: "127.0.0.1", Port: port}, zap.NewNop())
		c.Job("Mail", "done", 0, 0)
		c.Close()
		require.Equal(t, "Mail:1|c", until("duration")[0])
	})

	t.Run("a name cannot smuggle in a metric", func(t *testing.T) {
		t.Parallel()
		port, until := listen(t)
		c := New(Config{Host: "127.0.0.1", Port: port, Key: "k:1|c\nx"}, zap.NewNop())
		c.Job("A:9|c\nevil:1|c|@0.1|#t\x00é", "done", 0, 0)
		c.Count(Locked, 1)
		c.Close()
		for _, line := range until("k_1_c_x.locked") {
			require.Regexp(t, `^k_1_c_x\.[A-Za-z0-9_.-]+:[0-9.]+\|(c|ms)$`, line)
		}
	})

	t.Run("names are bounded and never empty", func(t *testing.T) {
		t.Parallel()
		c := &Client{key: "k"}
		require.Len(t, c.name("duration", strings.Repeat("A", 1<<20)), maxName)
		require.Equal(t, "k.unknown", c.name("", ""))
		require.Equal(t, "k.unknown", c.name("", "::"))
		require.Equal(t, "k.Foo", c.name("", "::Foo"))
	})

	t.Run("a host by name is found", func(t *testing.T) {
		t.Parallel()
		port, until := listen(t)
		c := New(Config{Host: "localhost", Port: port}, zap.NewNop())
		defer c.Close()
		ticks, stop := time.NewTicker(10*time.Millisecond), make(chan struct{})
		defer ticks.Stop()
		var counting sync.WaitGroup
		counting.Go(func() {
			// Counts before the end of the look-up may be lost.
			for {
				select {
				case <-ticks.C:
					c.Job("Mail", "done", 0, 0)
				case <-stop:
					return
				}
			}
		})
		defer counting.Wait()
		defer close(stop)
		until("Mail:1|c")
	})

	t.Run("no host counts nothing, also when it is closed", func(t *testing.T) {
		t.Parallel()
		c := New(Config{}, zap.NewNop())
		require.Nil(t, c)
		c.Job("Mail", "done", 0, 0)
		c.Count(Locked, 1)
		c.Close()
	})

	t.Run("a host that does not resolve is one warning", func(t *testing.T) {
		t.Parallel()
		core, logs := observer.New(zap.InfoLevel)
		c := New(Config{Host: "no-such-host.invalid"}, zap.New(core))
		c.Job("Mail", "done", 0, 0)
		require.Eventually(t, func() bool { return logs.Len() == 1 }, 30*time.Second, 5*time.Millisecond)
		require.Contains(t, logs.All()[0].Message, "does not resolve")
		c.Close()
		c.Job("Mail", "done", 0, 0)
	})
}

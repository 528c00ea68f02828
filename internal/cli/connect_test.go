package cli

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestConnect(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	server := redistest.Shared(t)
	// An address where nothing listens, and one that takes datagrams.
	statsd, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = statsd.Close() })
	_, port, err := net.SplitHostPort(statsd.LocalAddr().String())
	require.NoError(t, err)
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	_, goneport, err := net.SplitHostPort(gone.LocalAddr().String())
	require.NoError(t, err)
	require.NoError(t, gone.Close())

	file := func(lines ...string) map[string]string {
		return map[string]string{"etc/resqued/resqued.yaml": "queues: [a]\nnamespace: " + redistest.Namespace(t) + "\n" + strings.Join(lines, "\n")}
	}
	check := func(t *testing.T, files map[string]string, env ...string) (stdout string, code int) {
		t.Helper()
		stdout, stderr, code := newHost(t, files).run(t, env, "config", "check", "--connect")
		require.Empty(t, stderr)
		return stdout, code
	}

	t.Run("all that is well has a line", func(t *testing.T) {
		t.Parallel()
		stdout, code := check(t, file("redis_url: "+server.URL(), "statsd_host: 127.0.0.1", "statsd_port: "+port, "statsd_key: app."))
		require.Zero(t, code, stdout)
		require.Regexp(t, `(?m)^ok    redis connection: redis://.* answers$`, stdout)
		require.Regexp(t, `(?m)^ok    redis version: \d+\.\d+`, stdout)
		require.Regexp(t, `(?m)^ok    redis role: takes writes$`, stdout)
		require.Regexp(t, `(?m)^ok    redis eviction: noeviction, maxmemory has no limit$`, stdout)
		require.Regexp(t, `(?m)^ok    redis rights: every script runs$`, stdout)
		require.Contains(t, stdout, "ok    statsd: one datagram sent to 127.0.0.1:"+port)
		text := make([]byte, 100)
		n, _, err := statsd.ReadFrom(text)
		require.NoError(t, err)
		require.Equal(t, "app.config_check:1|c", string(text[:n]))
	})
	t.Run("what cannot be reached has the source of its address", func(t *testing.T) {
		t.Parallel()
		stdout, code := check(t, file("redis_url: redis://127.0.0.1:1", "statsd_host: 127.0.0.1", "statsd_port: "+goneport))
		require.Equal(t, exitUnreachable, code)
		require.Regexp(t, `(?m)^FAIL  redis connection: .*connection refused\. Start it, or correct redis_url, which is from ROOT/etc/resqued/resqued.yaml:3\.$`, stdout)
		require.Regexp(t, `(?m)^FAIL  statsd: .*connection refused\. Start it, or correct statsd_host 127\.0\.0\.1 \(ROOT/etc/resqued/resqued.yaml:4\) and statsd_port`, stdout)
		require.NotContains(t, stdout, "redis rights")
	})
	t.Run("and in JSON", func(t *testing.T) {
		t.Parallel()
		stdout, _, code := newHost(t, file("redis_url: redis://127.0.0.1:1")).run(t, nil, "config", "check", "--connect", "-o", "json")
		require.Equal(t, exitUnreachable, code)
		var report struct {
			OK          bool         `json:"ok"`
			Connections []connection `json:"connections"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &report))
		require.False(t, report.OK)
		require.Len(t, report.Connections, 1)
		require.Equal(t, "redis connection", report.Connections[0].Check)
		require.Contains(t, report.Connections[0].Hint, "redis_url")
	})
	t.Run("a refusal is a failure: password, rights, eviction", func(t *testing.T) {
		t.Parallel()
		closed := redistest.Start(t, redistest.Options{
			Args:  []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
			Users: []string{"default off", "reader on >secret ~* &* +@read +@connection +info +eval +evalsha +script +multi +exec"},
		})
		stdout, code := check(t, file("redis_url: "+closed.URL()))
		require.Equal(t, exitFailed, code, stdout)
		require.Regexp(t, `(?m)^FAIL  redis connection: .*NOAUTH.*No password is given`, stdout)

		stdout, code = check(t, file("redis_url: "+closed.URLAs("reader", "wrong")))
		require.Equal(t, exitFailed, code, stdout)
		require.Regexp(t, `(?m)^FAIL  redis connection: .*WRONGPASS.*It holds the password that was refused`, stdout)

		stdout, code = check(t, file("redis_url: "+closed.URLAs("reader", "secret")))
		require.Equal(t, exitFailed, code, stdout)
		require.Regexp(t, `(?m)^FAIL  redis eviction: .*may evict jobs`, stdout)
		require.Regexp(t, `(?m)^FAIL  redis rights: .*docs/redis-keys.md`, stdout)
	})
	t.Run("the database of class locks, and its table", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Start(t, pgtest.Options{}).URL("")
		files := file("redis_url: "+server.URL(), "handlers: {A: {command: [sh], lock: {store: postgres}}}")
		stdout, code := check(t, files, "DATABASE_URL="+url)
		require.NotZero(t, code, stdout)
		require.Regexp(t, `(?m)^FAIL  postgres: .*locker migrate.* database_url is from environment DATABASE_URL\.$`, stdout)
		h := newHost(t, files)
		_, stderr, migrated := h.run(t, []string{"DATABASE_URL=" + url}, "locker", "migrate")
		require.Zero(t, migrated, stderr)
		stdout, code = check(t, files, "DATABASE_URL="+url)
		require.Zero(t, code, stdout)
		require.Regexp(t, `(?m)^ok    postgres: answers, and has the table locks$`, stdout)
		stdout, code = check(t, files, "DATABASE_URL=postgres://127.0.0.1:1/x")
		require.Equal(t, exitUnreachable, code, stdout)
		require.Regexp(t, `(?m)^FAIL  postgres: `, stdout)
	})
}

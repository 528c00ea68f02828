package store_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Probe(t.Context(), longstore.Probed()))
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
	require.Contains(t, client.Info(t.Context(), "memory").Val(), "number_of_cached_scripts:2\r\n")
}

// Delayed jobs of a probe leave nothing behind either if their time is a whole second, for which jobs
// wait in keys of resque-scheduler.
func TestProbeAtTheEndOfASecond(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	whole := 0
	storetest.Intercept(s.Redis(), func(cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			args := cmd.Args()
			for i, arg := range args {
				if script, ok := arg.(string); ok && strings.Contains(script, "local function delay(") {
					args[i] = strings.Replace(script, "if due <= ms then", "if due > ms and due < ms + 5000 then due = math.ceil(due / 1000) * 1000 end\n  if due <= ms then", 1)
					if args[i] != script {
						whole++
					}
				}
			}
		}
		return send()
	})
	require.NoError(t, s.Probe(t.Context(), longstore.Probed()))
	require.Greater(t, whole, 1, "scripts that delay jobs")
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
}

// A server need not run the scripts again until it is restarted or the scripts change. Whether it
// accepts writes is checked each time.
func TestProbeOfAKnownServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	ready := func() (rehearsals int) {
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		storetest.Intercept(s.Redis(), func(_ []redis.Cmder, send func() error) error {
			rehearsals++
			return send()
		})
		require.NoError(t, s.WaitReady(t.Context(), nil, longstore.Probed()))
		return rehearsals
	}
	require.Equal(t, 1, ready())
	require.Equal(t, 1, ready(), "nobody has worked here yet")
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
	require.NoError(t, client.HSet(t.Context(), "resque:resqued:meta", "id", "1").Err())
	require.Equal(t, 1, ready())
	if major, err := redistest.Major(); err != nil || major < 7 {
		require.NoError(t, err)
		require.Equal(t, 1, ready(), "only running them shows what a user may do")
		return
	}
	require.Equal(t, 0, ready())
	mark := client.HGet(t.Context(), "resque:resqued:meta", "probes").Val()
	for _, other := range []string{"x" + mark[1:], mark[:len(mark)-1] + "x"} { // of another server, of other scripts
		require.NoError(t, client.HSet(t.Context(), "resque:resqued:meta", "probes", other).Err())
		require.Equal(t, 1, ready())
		require.Equal(t, 0, ready())
	}
	run, sum, _ := strings.Cut(mark, " ")
	// Those of other versions stay beside it: an old and a new one are started by turns.
	for n, sums := range []string{sum, "x " + sum, "x y z " + sum, "x y z u " + sum, "v"} {
		require.NoError(t, client.HSet(t.Context(), "resque:resqued:meta", "probes", run+" "+sums).Err())
		require.Equal(t, sums == "v", ready() == 1, n)
	}
	require.Equal(t, mark+" v", client.HGet(t.Context(), "resque:resqued:meta", "probes").Val())
	require.NoError(t, client.HSet(t.Context(), "resque:resqued:meta", "probes", run+" a b c d e").Err())
	require.Equal(t, 1, ready())
	require.Equal(t, mark+" a b c", client.HGet(t.Context(), "resque:resqued:meta", "probes").Val())

	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	err = s.WaitReady(ctx, func(why error, _ time.Duration) {
		require.ErrorContains(t, why, "NOREPLICAS")
		cancel()
	})
	require.ErrorIs(t, err, context.Canceled)
}

// Whatever an earlier one has left is not a reason to refuse a server.
func TestProbeAfterAnother(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	for _, key := range []string{"queues", "queue:plain", "queue:unique:start_at", "failed", "resqued:meta", "resqued:procs", "resqued:master:probe", "worker:probe:1:plain"} {
		require.NoError(t, client.Set(t.Context(), "resque:resqued:probe:"+key, "odd", 0).Err())
	}
	require.NoError(t, s.Probe(t.Context(), longstore.Probed()))
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
}

// A probe that is tried again tries everything again.
func TestProbeAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	var sizes []int
	storetest.Intercept(s.Redis(), func(cmds []redis.Cmder, send func() error) error {
		if sizes = append(sizes, len(cmds)); len(sizes) == 1 {
			return redis.ErrPoolTimeout
		}
		return send()
	})
	require.NoError(t, s.Probe(t.Context(), longstore.Probed()))
	require.Len(t, sizes, 2)
	require.Equal(t, sizes[0], sizes[1])
}

// A script that a server does not do is named.
func TestProbeOfAScriptThatDoesNotRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	for _, text := range []string{"redis.call('NOSUCH')", "this is not Lua"} {
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		changed := 0
		storetest.Intercept(s.Redis(), func(cmds []redis.Cmder, send func() error) error {
			for _, cmd := range cmds {
				args := cmd.Args()
				for i := range args {
					if script, _ := args[i].(string); strings.Contains(script, "-- beat extends ") {
						args[i] = text
						changed++
					}
				}
			}
			return send()
		})
		require.ErrorContains(t, s.Probe(t.Context(), longstore.Probed()), "script beat does not run")
		require.Equal(t, 1, changed)
	}
}

// Servers that are in no state to be tried are named, and no script is.
func TestProbeOfAServerThatRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	err = s.Probe(t.Context(), longstore.Probed())
	require.ErrorContains(t, err, "NOREPLICAS")
	require.ErrorContains(t, err, server.Addr)
	require.NotContains(t, err.Error(), "does not run")
	require.True(t, rdb.Unexecuted(err))
}

func TestProbeOfMissingRights(t *testing.T) {
	t.Parallel()
	redistest.NeedsMajor(t, 6)
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	probe := func(user string, rules ...any) error {
		require.NoError(t, client.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">pw"}, rules...)...).Err())
		s, err := store.Open(store.Options{URL: server.URLAs(user, "pw"), Namespace: "resque"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		return s.Probe(t.Context(), longstore.Probed())
	}
	require.NoError(t, probe("enough", "~resque:*", "+@all", "-acl"))
	mighty := probe("mighty", "~resque:*", "+@all", "-zadd")
	reader := probe("reader", "~resque:*", "+@all", "-acl", "-hset", "-lpop")
	stranger := probe("stranger", "~other:*", "+@all", "-acl")
	part := probe("part", "~resque:resqued:*", "~resque:[^qd]*", "+@all", "-acl")
	side := probe("side", "~resque:[dqrtw]*", "~resque:loner:*", "~resque:lock:*", "~resque:locket:job*", "~resque:failed*", "~resque:probe_failed",
		"~resque:pause:*", "~resque:stat:p*", "+@all", "-acl")
	if major, err := redistest.Major(); err == nil && major < 7 {
		require.ErrorContains(t, reader, "does not run on redis at ", "it names the script, as it cannot be asked")
	} else {
		require.ErrorContains(t, reader, "may not run HSET, LPOP on keys of resque:*; docs/redis-keys.md")
		require.ErrorContains(t, mighty, "may not run ZADD on keys of resque:*")
		require.ErrorContains(t, part, "may not write resque:queues, resque:queue:probe, resque:delayed:0, resque:delayed_queue_schedule; docs/redis-keys.md")
		require.ErrorContains(t, side, "may not write resque:stat:failed, resque:locket:queue_lock_counters, resque:failure-resque-retry:probe, "+
			"resque:pause-all-workers, resque:persistent_schedules, resque:schedules_changed; docs/redis-keys.md")
	}
	require.ErrorContains(t, stranger, "docs/redis-keys.md")
	require.ErrorContains(t, probe("mute", "~resque:*", "+@all", "-acl", "-eval", "-evalsha"), "docs/redis-keys.md")
	require.ErrorContains(t, probe("single", "~resque:*", "+@all", "-acl", "-exec"), "NOPERM")
	require.Empty(t, client.Keys(t.Context(), "*").Val(), "nothing is left behind")
}

// Every script has its part in a probe.
func TestProbeRunsEveryScript(t *testing.T) {
	t.Parallel()
	var names []string
	for _, room := range []string{".", "../longstore"} {
		sources, err := filepath.Glob(room + "/*.go")
		require.NoError(t, err)
		for _, file := range sources {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range regexp.MustCompile(`rdb\.NewScript\(Lua, "([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
				if !strings.HasSuffix(file, "_test.go") {
					names = append(names, match[1])
				}
			}
		}
	}
	require.Greater(t, len(names), 20)
	slices.Sort(names)
	s, err := store.Open(store.Options{URL: redistest.Shared(t).URL(), Namespace: redistest.Namespace(t)})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.Subset(t, s.Rehearsed(t.Context(), longstore.Probed()), slices.Compact(names))
}

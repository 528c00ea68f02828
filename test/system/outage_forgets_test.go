package system_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// loading are options for a server that is slow to load its data until it is told to speed up.
var loading = redistest.Options{Args: []string{"--key-load-delay", "150000", "--loading-process-events-interval-bytes", "1024"}}

// load restarts a server with enough data to answer LOADING for a minute and a half, or until
// the returned function is called.
func load(t *testing.T, s *redistest.Server) (getOn func()) {
	t.Helper()
	pipe := s.Client(t).Pipeline()
	for i := range 600 {
		pipe.Set(context.Background(), "filler"+strconv.Itoa(i), rand.Text()+strings.Repeat(rand.Text(), 100), 0)
	}
	pipe.Save(context.Background())
	_, err := pipe.Exec(context.Background())
	require.NoError(t, err)
	s.Restart()
	return func() {
		t.Helper()
		do("CONFIG", "SET", "key-load-delay", "0")(t, s)
	}
}

func TestRedisLoadsItsData(t *testing.T) {
	t.Parallel()
	t.Run("at the start", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, loading)
		harness.Binary(t) // building it may take longer than all that is to be met
		getOn := load(t, server)
		config, gate, _ := gated(t.TempDir())
		require.NoError(t, os.WriteFile(gate, nil, 0o600))
		d := harness.Start(t, harness.Options{Redis: server, Config: config, Unready: true})
		d.AwaitLog("LOADING")
		getOn()
		d.AwaitReady()
		d.Push("mail", "Note", 1)
		d.AwaitProcessed(1, patience)
	})
	t.Run("while jobs run", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, loading)
		config, gate, notes := gated(t.TempDir())
		d := harness.Start(t, harness.Options{Workers: 2, Threads: 2, Redis: server, Config: config})
		d.Push("mail", "Note", harness.Range(1, 4)...)
		proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 4 }, "jobs in hand")
		pids := d.WorkerPIDs() // of both: each has two
		getOn := load(t, server)
		require.NoError(t, os.WriteFile(gate, nil, 0o600))
		d.AwaitLog("LOADING")
		getOn()
		d.AwaitProcessed(4, patience)
		d.Push("mail", "Note", 5)
		d.AwaitProcessed(5, patience)
		ran, _ := readNotes(t, notes)
		require.Equal(t, map[string]string{"1": "1", "2": "1", "3": "1", "4": "1", "5": "1"}, ran)
		require.ElementsMatch(t, pids, d.WorkerPIDs())
		require.NotContains(t, d.Log(), "recovered the jobs")
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	})
}

// TestRedisForgets deletes the scripts or all data of Redis.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]struct {
		how func(*testing.T, *redistest.Server)
		// kept: the records of the jobs in hand are not deleted.
		kept bool
	}{
		"SCRIPT FLUSH":         {do("SCRIPT", "FLUSH"), true},
		"FLUSHALL":             {do("FLUSHALL"), false},
		"a restart, no memory": {func(_ *testing.T, s *redistest.Server) { s.Restart() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			config, gate, notes := gated(t.TempDir())
			d := harness.Start(t, harness.Options{Workers: 2, Threads: 2, Redis: server, Config: config})
			d.Push("mail", "Note", harness.Range(1, 4)...)
			proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 4 }, "jobs in hand")
			pids := d.WorkerPIDs() // of both: each has two
			forget.how(t, server)
			proctest.Await(t, patience, func() bool {
				n, _ := d.Client.SCard(context.Background(), d.Key("workers")).Result()
				return n == 4
			}, "everybody to be registered")
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			d.Push("mail", "Note", harness.Range(5, 8)...)
			proctest.Await(t, patience, func() bool {
				text, _ := os.ReadFile(notes)
				return strings.Count(string(text), "\n") >= 8
			}, "the jobs")
			ran, _ := readNotes(t, notes)
			require.Len(t, ran, 8)
			for id, times := range ran {
				require.Equal(t, "1", times, "job %s", id)
			}
			require.ElementsMatch(t, pids, d.WorkerPIDs())
			require.NotContains(t, d.Log(), "recovered the jobs")
			require.Empty(t, d.Failures())
			if forget.kept {
				d.AwaitProcessed(8, patience)
			} else {
				d.AwaitProcessed(4, patience)
			}
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

// TestRedisIsFullAtTheStart checks that a daemon starts and works with a Redis that is full
// already.
func TestRedisIsFullAtTheStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	config, gate, _ := gated(t.TempDir())
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	d := harness.Watch(t, server.Client(t), redistest.Namespace(t))
	d.Push("mail", "Note", harness.Range(1, 8)...)
	do("CONFIG", "SET", "maxmemory", "1")(t, server)
	d = harness.Start(t, harness.Options{Redis: server, Config: config, Namespace: d.Space})
	d.AwaitProcessed(8, patience)
	for line := range strings.Lines(d.Log()) {
		// Only what is not a job's goes without.
		if !strings.Contains(line, `"logger":"events"`) && !strings.Contains(line, `"logger":"history"`) {
			require.NotContains(t, line, "OOM")
		}
	}
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestRedisIsFull checks that a full Redis is drained, also by worker processes that are
// replaced.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	config, gate, notes := gated(t.TempDir())
	d := harness.Start(t, harness.Options{Workers: 2, Threads: 2, JobsPerFork: 4, Redis: server, Config: config})
	d.Push("mail", "Note", harness.Range(1, 24)...)
	proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 4 }, "jobs in hand")
	do("CONFIG", "SET", "maxmemory", "1")(t, server)
	refusesPushes(t, d, "OOM")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	d.AwaitProcessed(24, patience)
	refusesPushes(t, d, "OOM")
	do("CONFIG", "SET", "maxmemory", "0")(t, server)
	d.Push("mail", "Note", 25)
	d.AwaitProcessed(25, patience)
	ran, _ := readNotes(t, notes)
	require.Len(t, ran, 25)
	require.Empty(t, d.Failures())
	require.NotContains(t, d.Log(), "recovered the jobs")
	for line := range strings.Lines(d.Log()) {
		// Only what is not a job's goes without.
		if !strings.Contains(line, `"logger":"events"`) && !strings.Contains(line, `"logger":"history"`) {
			require.NotContains(t, line, "OOM")
		}
	}
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

func TestRedisThatEvicts(t *testing.T) {
	t.Parallel()
	evicting := redistest.Options{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}}
	t.Run("is refused at the start", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{Redis: redistest.Start(t, evicting), Unready: true})
		require.NotZero(t, d.Exit())
		for _, part := range []string{"may evict jobs", "volatile-lru", "noeviction", "allow_eviction: true", d.URL} {
			d.AwaitLog(part)
		}
	})
	t.Run("may be allowed", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{Redis: redistest.Start(t, evicting), Config: "allow_eviction: true\n"})
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.NotContains(t, d.Log(), "evict jobs")
	})
	t.Run("that begins to is told of", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory", "100mb"}})
		d := harness.Start(t, harness.Options{Redis: server})
		do("CONFIG", "SET", "maxmemory-policy", "volatile-lru")(t, server)
		d.AwaitLog("jobs may be lost")
		d.AwaitLog("volatile-lru")
	})
}

// TestRedisIsTooOld checks that an old server is refused, with the version that is needed.
func TestRedisIsTooOld(t *testing.T) {
	t.Parallel()
	addr := ancient(t)
	d := harness.Start(t, harness.Options{Env: []string{"REDIS_URL=redis://" + addr}, Unready: true})
	require.NotZero(t, d.Exit())
	for _, part := range []string{addr, "version 4.0.14", "needs 5.0 or newer"} {
		d.AwaitLog(part)
	}
}

// ancient answers as Redis 4 does.
func ancient(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					answer := ""
					switch strings.ToUpper(in.Text()) {
					case "PING":
						answer = "+PONG\r\n"
					case "INFO":
						const text = "# Server\r\nredis_version:4.0.14\r\n"
						answer = fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
					case "CLIENT":
						answer = "+OK\r\n"
					case "HELLO":
						answer = "-ERR unknown command 'HELLO'\r\n"
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Wait()
	})
	return l.Addr().String()
}

// TestRedisForgetsACount empties Redis while a job that was taken waits for its count of attempts,
// which is lost: its attempts begin anew. That run is its last, because its record is lost, too.
func TestRedisForgetsACount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	d := harness.Start(t, harness.Options{App: true, Redis: server})
	if err := d.Client.Do(t.Context(), "ACL", "SETUSER", "default", "-mget").Err(); err != nil {
		t.Skip("no ACL: ", err)
	}
	require.NoError(t, d.Client.Set(t.Context(), d.Key("resque-retry:Flaky:1"), 1, 0).Err()) // two runs have failed
	d.Push("mail", "Flaky", 1)
	proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 1 }, "a job in hand")
	do("FLUSHALL")(t, server)
	do("ACL", "SETUSER", "default", "+mget")(t, server)
	d.AwaitLog("late: the record of a job was gone when it ended")
	require.Equal(t, map[string]string{"1": "1"}, d.Noted("attempt-1"))
	require.Empty(t, d.Noted("attempt-3"))
	d.Push("mail", "Gate", 2) // the daemon goes on
	d.Open()
	d.AwaitProcessed(1, patience)
	require.Empty(t, d.Noted("attempt-2"))
}

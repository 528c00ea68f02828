package system_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// unlocked configures no locks for the queue of these tests and a short lease, so that a
// process that is silent for the duration of these faults counts as dead.
const unlocked = shortLease + "locketed_queues: [locked]\n"

// gated returns a command that waits for a file before it notes its job in another.
func gated(dir string) (config, gate, notes string) {
	gate, notes = filepath.Join(dir, "open"), filepath.Join(dir, "ran")
	return unlocked + fmt.Sprintf(`
handlers:
  Note:
    command: [sh, -c, 'read -r job; while [ ! -e %s ]; do sleep 0.05; done; echo "$RESQUED_PROC $job" >> %s']
`, gate, notes), gate, notes
}

// answer is an error that Redis may give to any request, and how to provoke it.
type answer struct {
	word string
	// pushed is the answer to a push; empty means word.
	pushed     string
	begin, end func(t *testing.T, s *redistest.Server)
}

// do returns a function that runs a command of Redis.
func do(args ...any) func(*testing.T, *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		t.Helper()
		require.NoError(t, s.Client(t).Do(context.Background(), args...).Err())
	}
}

func both(steps ...func(*testing.T, *redistest.Server)) func(*testing.T, *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		t.Helper()
		for _, step := range steps {
			step(t, s)
		}
	}
}

// says returns a function that waits for a line of INFO.
func says(section, line string) func(*testing.T, *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		t.Helper()
		proctest.Await(t, patience, func() bool {
			return strings.Contains(s.Client(t).Info(context.Background(), section).Val(), line+"\r\n")
		}, "%s", line)
	}
}

// spin keeps Redis busy with a script that never ends.
func spin(t *testing.T, s *redistest.Server) {
	t.Helper()
	do("CONFIG", "SET", "lua-time-limit", "10")(t, s)
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, ReadTimeout: -1, MaxRetries: -1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	}()
	t.Cleanup(func() {
		<-done
		_ = c.Close()
	})
	proctest.Await(t, patience, func() bool {
		return redis.HasErrorPrefix(s.Client(t).Ping(context.Background()).Err(), "BUSY")
	}, "BUSY")
}

// answering waits until Redis answers.
func answering(t *testing.T, s *redistest.Server) {
	t.Helper()
	proctest.Await(t, patience, func() bool { return s.Client(t).Ping(context.Background()).Err() == nil }, "an answer")
}

// blockDump puts a directory where the dump should be, so that saving fails.
func blockDump(t *testing.T, s *redistest.Server) {
	t.Helper()
	dir := s.Client(t).ConfigGet(context.Background(), "dir").Val()["dir"]
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "dump.rdb", "x"), 0o700))
}

var answers = []answer{
	{"READONLY", "", do("REPLICAOF", "127.0.0.1", "1"), do("REPLICAOF", "NO", "ONE")},
	{
		"MASTERDOWN", "READONLY", both(do("CONFIG", "SET", "replica-serve-stale-data", "no"), do("REPLICAOF", "127.0.0.1", "1")),
		do("REPLICAOF", "NO", "ONE"),
	},
	{"NOREPLICAS", "", do("CONFIG", "SET", "min-replicas-to-write", "1"), do("CONFIG", "SET", "min-replicas-to-write", "0")},
	{
		"MISCONF", "", both(blockDump, do("CONFIG", "SET", "save", "3600 1"), do("BGSAVE"), says("persistence", "rdb_last_bgsave_status:err")),
		do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no"),
	},
	{"BUSY", "", spin, both(do("SCRIPT", "KILL"), answering)},
}

// TestRedisRefusesWhileJobsRun makes Redis answer with errors. Running jobs go on, outcomes are
// kept, no process spins and none is taken for dead. Afterwards everything is as before.
func TestRedisRefusesWhileJobsRun(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		t.Run(a.word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			config, gate, notes := gated(t.TempDir())
			d := harness.Start(t, harness.Options{Workers: 2, Threads: 2, Redis: server, Config: config})
			d.Push("mail", "Note", harness.Range(1, 4)...)
			proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 4 }, "jobs in hand")
			pids := d.WorkerPIDs() // of both: each has two

			a.begin(t, server)
			t.Cleanup(func() {
				if t.Failed() {
					a.end(t, server)
				}
			})
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			d.AwaitLog(a.word)
			used := cpuTime(d)
			logged := strings.Count(d.Log(), "\n")
			// Longer than a lease.
			require.False(t, d.AwaitEnd(8*time.Second), "the daemon ended: %s", d.Log())
			require.Less(t, cpuTime(d)-used, 3*time.Second, "waiting costs too much processor time")
			require.Less(t, strings.Count(d.Log(), "\n")-logged, 80, "it says too much: %s", d.Log())
			refusesPushes(t, d, cmp.Or(a.pushed, a.word))

			a.end(t, server)
			d.Push("mail", "Note", harness.Range(5, 8)...)
			d.AwaitProcessed(8, patience)
			ran, _ := readNotes(t, notes)
			require.Len(t, ran, 8)
			for id, times := range ran {
				require.Equal(t, "1", times, "job %s", id)
			}
			require.Empty(t, d.Failures())
			require.ElementsMatch(t, pids, d.WorkerPIDs())
			require.NotContains(t, d.Log(), "recovered the jobs")
			require.NotContains(t, d.Log(), "RESQUEDTYPE")
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

// refusesPushes checks the errors that programs and people get who push to a server that
// answers with word.
func refusesPushes(t *testing.T, d *harness.Daemon, word string) {
	t.Helper()
	c, err := client.New(client.Options{URL: d.URL, Namespace: d.Space})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.Enqueue(context.Background(), "Note", []int{100}, client.Queue("mail"))
	require.ErrorContains(t, err, word)
	require.True(t, client.NotEnqueued(err), err)
	_, stderr, code := d.Run("enqueue", "--queue", "mail", "Note", "100")
	require.NotZero(t, code)
	require.Contains(t, stderr, word)
}

// TestRedisRefusesAtTheStart does the same at the daemon's start: the daemon logs why it waits,
// and begins as soon as it can.
func TestRedisRefusesAtTheStart(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		t.Run(a.word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			a.begin(t, server)
			t.Cleanup(func() {
				if t.Failed() {
					a.end(t, server)
				}
			})
			config, gate, notes := gated(t.TempDir())
			require.NoError(t, os.WriteFile(gate, nil, 0o600))
			d := harness.Start(t, harness.Options{Redis: server, Config: config, Unready: true})
			says := a.word
			if says == "READONLY" {
				says = "read-only replica"
			}
			d.AwaitLog(says)
			require.False(t, d.AwaitEnd(time.Second), "the daemon gave up: %s", d.Log())
			require.False(t, d.HasNotified("READY=1"))
			require.Less(t, cpuTime(d), 1500*time.Millisecond, "waiting costs too much processor time")
			a.end(t, server)
			d.AwaitReady()
			d.Push("mail", "Note", 1)
			d.AwaitProcessed(1, patience)
			ran, _ := readNotes(t, notes)
			require.Equal(t, map[string]string{"1": "1"}, ran)
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

func cpuTime(d *harness.Daemon) (used time.Duration) {
	for _, p := range d.Processes() {
		used += proctest.CPUTime(p.PID)
	}
	return used
}

package system_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// tenSeconds is the only setting needed to notice a dead machine sooner.
const tenSeconds = "job_lock_duration: 10s\n"

// leases returns the ends of a daemon's leases and the time, by Redis's clock.
func leases(t *testing.T, d *harness.Daemon, host string) (ends map[string]time.Time, now time.Time) {
	t.Helper()
	pipe := d.Client.TxPipeline()
	at, all := pipe.Time(t.Context()), pipe.ZRangeWithScores(t.Context(), d.Key("resqued:procs"), 0, -1)
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	ends = map[string]time.Time{}
	for _, z := range all.Val() {
		if proc, _ := z.Member.(string); strings.HasPrefix(proc, host+":") {
			ends[proc] = time.UnixMilli(int64(z.Score))
		}
	}
	return ends, at.Val()
}

// acted makes intervals of notes. They end with the job's last action as the holder of its lock:
// it may have been told to stop, or its process killed.
func acted(t *testing.T, notes []note) []hold {
	t.Helper()
	last := map[[2]int64]time.Duration{}
	for _, n := range notes {
		last[[2]int64{int64(n.pid), n.fence}] = n.at
	}
	holds := slices.DeleteFunc(holdsOf(t, notes), func(h hold) bool { return h.key == "" })
	for i, h := range holds {
		holds[i].end, holds[i].ended = last[[2]int64{int64(h.pid), h.fence}], true
	}
	return holds
}

// TestADeadMachineAtTenSeconds kills two machines at once. Jobs of the one with
// job_lock_duration: 10s are recovered when its lease ends, not before, and long before the
// other's.
func TestADeadMachineAtTenSeconds(t *testing.T) {
	t.Parallel()
	dead := harness.Start(t, harness.Options{App: true, Threads: 2, Host: "dead", Config: tenSeconds, Queues: "short"})
	slow := harness.Start(t, harness.Options{App: true, Host: "slow", Namespace: dead.Space, Queues: "long"})
	dead.Push("short", "Act", 1, 2)
	slow.Push("long", "Act", 3)
	dead.AwaitNoted("started", 3)
	lives := harness.Start(t, harness.Options{App: true, Threads: 3, Host: "lives", Config: tenSeconds, Namespace: dead.Space})
	slow.KillTree()
	dead.KillTree()
	short, killed := leases(t, lives, "dead")
	long, _ := leases(t, lives, "slow")
	require.Len(t, short, 1)
	require.Len(t, long, 1)
	var proc string
	for name, end := range short {
		proc = name
		require.LessOrEqual(t, end.Sub(killed), 10*time.Second, "the lease follows from job_lock_duration")
	}
	var now time.Time
	proctest.Await(t, patience, func() bool {
		// In one step, so that both are from the same time.
		pipe := lives.Client.TxPipeline()
		at, records, lease := pipe.Time(t.Context()), pipe.HLen(t.Context(), lives.Key("resqued:inflight:"+proc)), pipe.ZScore(t.Context(), lives.Key("resqued:procs"), proc)
		_, err := pipe.Exec(t.Context())
		if err != nil && lease.Err() != redis.Nil { //nolint:errorlint // the library returns it as it is
			require.NoError(t, err)
		}
		now = at.Val()
		if !now.After(short[proc]) {
			require.EqualValues(t, 2, records.Val(), "they stay as they are before the lease has ended")
			require.Equal(t, float64(short[proc].UnixMilli()), lease.Val())
		}
		return records.Val() == 0
	}, "the recovery")
	after, _ := leases(t, lives, "slow")
	for name, end := range long {
		require.Equal(t, end, after[name])
		require.True(t, end.After(now), "the lease of 35 s has not ended yet")
		require.EqualValues(t, 1, lives.Client.HLen(t.Context(), lives.Key("resqued:inflight:"+name)).Val())
	}
	t.Logf("recovered %s after the kill, %s after the end of the lease", now.Sub(killed), now.Sub(short[proc]))
	proctest.Await(t, patience, func() bool { n := lives.Noted("started"); return n["1"] == "2" && n["2"] == "2" }, "their second runs")
	require.Equal(t, "1", lives.Noted("started")["3"])
}

// TestRedisAwayAtTenSeconds makes Redis hang for eight seconds. Jobs that hold locks are stopped
// before others could get them, others continue, and no process counts as dead.
func TestRedisAwayAtTenSeconds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	o := harness.Options{
		App: true, Workers: 2, Threads: 3, Redis: server, Trace: t.TempDir(), Config: tenSeconds + "locketed_queues: [mail]\n", Host: "here", Queues: "mail",
	}
	d := harness.Start(t, o)
	o.Namespace, o.Host = d.Space, "elsewhere"
	other := harness.Start(t, o)
	o.Queues = "free"
	free := harness.Start(t, o)
	const kinds = 3
	for range 3 {
		d.Push("mail", "Act", harness.Range(1, kinds)...)
	}
	d.Push("free", "Gate", 9)
	d.AwaitNoted("started", kinds+1)
	pids := free.WorkerPIDs()

	server.Hang()
	<-time.After(8 * time.Second)
	server.Resume()
	// The longest grace, until all beat again.
	proctest.Await(t, patience, func() bool {
		ends, now := leases(t, d, "")
		for _, end := range ends {
			if end.Before(now) {
				return false
			}
		}
		return len(lockValues(t, d)) == kinds
	}, "beats, and the locks")
	d.Open()
	d.AwaitProcessed(3*kinds+1, patience)
	requireExclusion(t, acted(t, readTrace(t, o.Trace)))
	require.Equal(t, "1", d.Noted("started")["9"], "what holds no lock goes on")
	require.Empty(t, d.Failures())
	require.Empty(t, d.Keys("resqued:deaths*"), "no death counts for a job")
	require.Equal(t, pids, free.WorkerPIDs())
	requireNoLocks(t, d)
	for _, d := range []*harness.Daemon{d, other, free} {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
	require.Empty(t, d.Residue())
}

// TestAStarvedMachineAtTenSeconds gives all processes of a daemon a tenth of the time. Whatever
// happens to its leases, no job is lost, none has two holders, and fences grow.
func TestAStarvedMachineAtTenSeconds(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true, Threads: 3, Trace: t.TempDir(), Config: tenSeconds, Host: "starved"}
	d := harness.Start(t, o)
	d.Push("mail", "Act", 1, 2, 3)
	d.AwaitNoted("started", 3)
	o.Namespace, o.Host = d.Space, "other"
	other := harness.Start(t, o)
	d.Push("mail", "Act", 1, 2, 3)
	beats := map[time.Time]bool{}
	for turn := time.NewTicker(50 * time.Millisecond); ; {
		// Three leases long, by Redis's clock, and ten beats: what a starved machine manages in
		// that time.
		ends, _ := leases(t, d, "starved")
		for _, end := range ends {
			beats[end] = true
		}
		if len(beats) > 8 || d.Ended() {
			turn.Stop()
			break
		}
		d.Stop()
		for range 9 {
			<-turn.C
		}
		d.Continue()
		<-turn.C
	}
	d.Open()
	d.AwaitProcessed(6, patience)
	fenced := strings.Contains(d.Log(), "given up for dead")
	t.Logf("fenced: %t", fenced)
	if !fenced {
		requireExclusion(t, acted(t, readTrace(t, o.Trace)))
		require.Equal(t, map[string]string{"1": "2", "2": "2", "3": "2"}, d.Noted("started"))
	}
	require.Empty(t, d.Failures())
	requireNoLocks(t, d)
	for _, d := range []*harness.Daemon{d, other} {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
	require.Empty(t, other.Residue())
}

// TestHostDeadHook stops a whole machine. Another one's hook is asked whether it is dead. When
// the hook says so, the jobs run again, long before the lease ends. If the machine continues, it
// is fenced: its reports change nothing.
func TestHostDeadHook(t *testing.T) {
	t.Parallel()
	trace := t.TempDir()
	old := harness.Start(t, harness.Options{App: true, Host: "frozen", Trace: trace})
	old.Push("mail", "Act", 1)
	old.AwaitNoted("started", 1)
	pid := old.WorkerPIDs()[0]
	// A hook that leaves a process behind, and proves nothing until a file exists.
	config := `host_dead_hook: [sh, -c, 'sleep 1000 & echo "$1 $RESQUED_HOST_BOOT_ID $RESQUED_HOST_PROCESSES" >>asked; [ -e dead ]', hook]
host_dead_after: 6s
`
	next := harness.Start(t, harness.Options{App: true, Host: "asks", Namespace: old.Space, Config: config, Trace: trace})
	another := harness.Start(t, harness.Options{App: true, Host: "asks-too", Namespace: old.Space, Config: config, Queues: "none"})
	asked := func() (lines []string) {
		for _, d := range []*harness.Daemon{next, another} {
			text, _ := os.ReadFile(filepath.Join(d.Dir, "asked"))
			lines = append(lines, strings.Fields(string(text))...)
		}
		return lines
	}
	old.Stop()
	stopped := procfs.BootTime()
	ends, _ := leases(t, next, "frozen")
	require.Len(t, ends, 1)
	proctest.Await(t, patience, func() bool { return len(asked()) >= 6 }, "two questions")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	require.Equal(t, []string{"frozen", strings.TrimSpace(string(boot)), "1"}, asked()[:3])
	after, now := leases(t, next, "frozen")
	require.Equal(t, ends, after, "nothing was proven yet: the lease decides")
	out, _, code := next.Run("hosts", "-o", "json")
	require.Zero(t, code)
	require.Contains(t, out, `"host":"frozen"`)
	next.Touch("dead")
	another.Touch("dead")
	proctest.Await(t, patience, func() bool { return next.Noted("started")["1"] == "2" }, "the second run")
	_, recovered := leases(t, next, "frozen")
	for _, end := range ends {
		t.Logf("asked %s before the end of the lease, recovered %s before it", end.Sub(now), end.Sub(recovered))
		require.Greater(t, end, recovered)
	}
	require.Contains(t, next.Log()+another.Log(), "a host is dead, says host_dead_hook")
	value := lockValues(t, next)[actLock]
	require.NotEmpty(t, value)
	for _, name := range []string{"asks:", "asks-too:"} {
		require.Empty(t, proctest.Find(func(p proctest.Process) bool {
			return p.Title == "sleep 1000" && strings.HasPrefix(p.Env("RESQUED_PROC"), name)
		}), "what a hook leaves goes with it")
	}

	continued := procfs.BootTime()
	old.Continue()
	proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of the process with the old job")
	gone := procfs.BootTime()
	// The first to notice is its worker process, from Redis or its own clock, or its master,
	// which kills it.
	proctest.Await(t, patience, func() bool {
		return slices.ContainsFunc([]string{"given up for dead", "its lease in redis is past", "no beat has reached redis for too long"}, func(why string) bool {
			return strings.Contains(old.Log(), why)
		})
	}, "a line that says why")
	// Its master replaces the worker process and continues.
	awaitOthers(t, old, []int{pid}, 1)
	require.Equal(t, map[string]string{actLock: value}, lockValues(t, next))
	requireStale(t, readTrace(t, trace), pid, stopped, continued, gone)
	out, _, _ = next.Run("events", "-o", "json")
	require.Contains(t, out, `"kind":"host dead"`)
	require.Contains(t, out, `"subject":"host frozen"`)
	next.Open()
	next.AwaitProcessed(1, patience)
	require.Equal(t, harness.Snapshot{Processed: 1}, next.Snapshot())
	require.Empty(t, next.Failures())
	for _, d := range []*harness.Daemon{old, next, another} {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
	require.Empty(t, next.Residue())
}

// TestAPersonSaysThatAHostIsDead does the same by hand, without a hook.
func TestAPersonSaysThatAHostIsDead(t *testing.T) {
	t.Parallel()
	dead := harness.Start(t, harness.Options{App: true, Host: "dead", Config: tenSeconds, Queues: "mail"})
	dead.Push("mail", "Act", 1)
	dead.AwaitNoted("started", 1)
	lives := harness.Start(t, harness.Options{App: true, Host: "lives", Namespace: dead.Space})
	_, stderr, code := lives.Run("hosts", "dead", "dead", "--yes")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "gave a sign of life")
	dead.KillTree()
	ends, _ := leases(t, lives, "dead")
	proctest.Await(t, patience, func() bool {
		out, _, code := lives.Run("hosts", "dead", "dead", "--yes")
		return code == 0 && strings.Contains(out, "is dead: its 1 job run")
	}, "a silence that can be one of the dead")
	after, now := leases(t, lives, "dead")
	for proc, end := range ends {
		require.True(t, now.Before(end), "before the lease has ended")
		require.True(t, after[proc].UnixMilli() == 0 || after[proc].IsZero())
	}
	proctest.Await(t, patience, func() bool { return lives.Noted("started")["1"] == "2" }, "the second run")
	lives.Open()
	lives.AwaitProcessed(1, patience)
	lives.Signal(quit)
	require.Zero(t, lives.Exit())
	lives.ForgetMasters()
	require.Empty(t, lives.Residue())
}

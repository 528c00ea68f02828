package system_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// reloadable holds two values for each setting of a configuration. Settings that are missing
// here must be in fixed, so that no new setting is forgotten.
var reloadable = map[string][2]string{
	"allow_eviction":       {"false", "true"},
	"database_url":         {"postgres://a@127.0.0.1:1/a", "postgres://b@127.0.0.1:1/b"},
	"worker_count":         {"1", "3"},
	"thread_count":         {"2", "5"},
	"jobs_per_fork":        {"0", "7"},
	"max_rss":              {"auto", "1GiB"},
	"max_age":              {"0", "1h"},
	"max_retiring":         {"1", "2"},
	"queues":               {"[worked]", "[worked, more]"},
	"interval":             {"100ms", "200ms"},
	"until_empty":          {"false", "true"},
	"waker":                {"off", "on"},
	"drain_timeout":        {"0", "1h"},
	"resque_term_timeout":  {"30", "31"},
	"on_master_death":      {"drain", "kill"},
	"on_worker_death":      {"requeue", "fail"},
	"max_deaths":           {"3", "4"},
	"host_dead_hook":       {"['true']", "['false']"},
	"host_dead_after":      {"20s", "21s"},
	"host_dead_timeout":    {"10s", "11s"},
	"failure_backend":      {"resque", "multi-queue"},
	"long_job_silence":     {"300", "301"},
	"long_job_wait":        {"300", "301"},
	"prune_queues":         {"168h", "24h"},
	"pidfile":              {"old.pid", "new.pid"},
	"statsd_host":          {"127.0.0.1", "localhost"},
	"statsd_port":          {"OLDPORT", "NEWPORT"},
	"statsd_key":           {"old", "new"},
	"locketed_queues":      {"['*']", "[]"},
	"heartbeat_frequency":  {"30", "4"},
	"job_lock_duration":    {"35", "20"},
	"job_lock_key":         {"class-args", "payload"},
	"lines":                {"auto", "off"},
	"limits":               {"{two: {queues: [u], concurrency: 2}}", "{two: {queues: [u], concurrency: 3}}"},
	"fair":                 {"{old: '{{args.0}}'}", "{new: '{{args.0}}'}"},
	"on_lock_lost":         {"fail", "requeue"},
	"unique_queues":        {"[u]", "[v]"},
	"unique_queues_strict": {"false", "true"},
	"env_keep":             {"[A]", "[B]"},
	"env_drop":             {"[C]", "[D]"},
	"persistent_schedules": {"false", "true"},
	"scheduler_lock":       {"none", "resque-scheduler"},
	"max_payload":          {"0", "1MiB"},
	"redact":               {"{Old: [args.0]}", "{New: [args.1]}"},
	"log_format":           {"json", "text"},
	"log_jobs":             {"false", "true"},
	"log_level":            {"info", "debug"},
	"handlers":             {"{Old: {command: ['true']}}", "{New: {command: ['true']}}"},
	"within":               {"{worked: 1m}", "{worked: 2m}"},
	"schedule":             {"{older: {every: 1s, class: T, queue: ticks-old}}", "{newer: {every: 1s, class: T, queue: ticks-new}}"},
}

// fixed are the settings that a reload refuses to change, or that this test cannot change.
var fixed = []string{"redis_url", "redis_password_file", "redis_ca_file", "redis_cert_file", "redis_key_file", "control_socket", "namespace", "database_url_file"}

// reloading is a daemon whose whole configuration changes.
type reloading struct {
	*harness.Daemon
	t        *testing.T
	old, new net.PacketConn // where statsd is
}

func (r *reloading) settings(which int, but ...string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(reloadable)) {
		value := reloadable[name][which]
		if slices.Contains(but, name) {
			value = reloadable[name][0]
		}
		fmt.Fprintf(&b, "%s: %s\n", name, value)
	}
	port := func(c net.PacketConn) string { return fmt.Sprint(c.LocalAddr().(*net.UDPAddr).Port) }
	return strings.NewReplacer("OLDPORT", port(r.old), "NEWPORT", port(r.new)).Replace(b.String())
}

func startReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{t: t}
	for _, c := range []*net.PacketConn{&r.old, &r.new} {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		*c = conn
	}
	r.Daemon = harness.Start(t, harness.Options{
		App: true, Unready: true, Config: r.settings(0),
		Env: []string{"WORKER_COUNT=", "THREAD_COUNT=", "JOBS_PER_FORK=", "QUEUES=", "RESQUED_LOG_FORMAT=", "RESQUED_TEST_GATE=gate"},
	})
	r.Touch("gate")
	r.AwaitReady()
	return r
}

// counted waits until statsd has received what.
func (r *reloading) counted(at net.PacketConn, what string) {
	r.t.Helper()
	require.NoError(r.t, at.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 64<<10)
	for {
		n, _, err := at.ReadFrom(buf)
		require.NoError(r.t, err, "statsd has not heard of %s", what)
		if slices.Contains(strings.Split(string(buf[:n]), "\n"), what) {
			return
		}
	}
}

// moved pushes two equal jobs, due at once, for a queue, and returns how many were moved there.
func (r *reloading) moved(queue string) int64 {
	r.t.Helper()
	ctx, list := r.t.Context(), "delayed:1000"
	item := fmt.Sprintf(`{"class":"Count","args":[%d],"queue":%q}`, time.Now().UnixNano(), queue)
	before := r.Client.LLen(ctx, r.Key("queue:"+queue)).Val()
	_, err := r.Client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.RPush(ctx, r.Key(list), item, item)
		pipe.ZAdd(ctx, r.Key("delayed_queue_schedule"), redis.Z{Score: 1000, Member: 1000})
		return nil
	})
	require.NoError(r.t, err)
	proctest.Await(r.t, patience, func() bool { return r.Client.Exists(ctx, r.Key(list)).Val() == 0 }, "delayed jobs to be moved")
	return r.Client.LLen(ctx, r.Key("queue:"+queue)).Val() - before
}

// ticks waits for a new tick of a schedule.
func (r *reloading) ticks(queue string) {
	r.t.Helper()
	length := func() int64 { return r.Client.LLen(r.t.Context(), r.Key("queue:"+queue)).Val() }
	before := length()
	proctest.Await(r.t, patience, func() bool { return length() > before }, "a tick")
}

// standing returns the visible state of the daemon, in Redis and on the machine.
func (r *reloading) standing() map[string]string {
	r.t.Helper()
	ctx, s := r.t.Context(), map[string]string{}
	ids := r.Client.SMembers(ctx, r.Key("resqued:masters")).Val()
	require.Len(r.t, ids, 1)
	entry := r.Key("resqued:master:" + ids[0])
	left := r.Client.PTTL(ctx, entry).Val()
	proctest.Await(r.t, patience, func() bool {
		now := r.Client.PTTL(ctx, entry).Val()
		renewed := now > left
		left = now
		return renewed
	}, "the master to write its entry")
	for name, value := range r.Client.HGetAll(ctx, entry).Val() {
		s["entry "+name] = value
	}
	for _, name := range []string{"entry busy", "entry done", "entry ready", "entry ends"} {
		delete(s, name)
	}
	for _, key := range r.Keys("*") {
		// These come and go, or come with a minute or a look at the queues.
		if !strings.Contains(key, "delayed") && !strings.Contains(key, "resqued:hist:") && !strings.Contains(key, "resqued:age") {
			s["key "+key] = "is there"
		}
	}
	for _, p := range r.Workers() {
		if title, _, _ := strings.Cut(strings.TrimPrefix(p.Title, "resqued (resque-3): "), ": "); title == "worker 1 of 1" {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
			s["process"] += fmt.Sprintln(title, p.PID, string(environ))
		}
	}
	for _, file := range []string{"old.pid", "new.pid"} {
		text, err := os.ReadFile(r.Dir + "/" + file)
		s["file "+file] = fmt.Sprint(string(text), err)
	}
	return s
}

// TestReloadableSettings: TestReloadThatIsRefused, a test of make nightly, knows every setting.
func TestReloadableSettings(t *testing.T) {
	t.Parallel()
	for _, s := range config.Settings() {
		_, known := reloadable[s.Name]
		assert.True(t, known || slices.Contains(fixed, s.Name), "%s is not among the settings that the test changes: add it", s.Name)
	}
}

// TestReloadThatIsRefused changes every setting and requires that nothing has changed: neither
// while the first worker process of the new configuration is tried, nor afterwards.
func TestReloadThatIsRefused(t *testing.T) {
	t.Parallel()
	r := startReloading(t)
	// State from the first second, and state that appears with the first job of a kind.
	require.EqualValues(t, 1, r.moved("u"))
	r.counted(r.old, "old.duplicate:1|c")
	r.ticks("ticks-old")
	proctest.Await(t, patience, func() bool { return r.Client.Exists(t.Context(), r.Key("resqued:schedules:kept")).Val() == 1 },
		"the note about its schedule")
	before := r.standing()

	same := func(when string) {
		t.Helper()
		require.EqualValues(t, 1, r.moved("u"), when)
		r.counted(r.old, "old.duplicate:1|c")
		r.ticks("ticks-old")
		r.ticks("ticks-old")
		require.Equal(t, before, r.standing(), when)
		require.NotContains(t, r.Log(), `"DEBUG"`, when)
		require.NoError(t, r.new.SetReadDeadline(time.Now()))
		_, _, err := r.new.ReadFrom(make([]byte, 1000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, when)
	}
	require.NoError(t, os.Remove(r.Dir+"/gate"))
	r.Configure(r.settings(1))
	r.Signal(hup)
	var trial proctest.Process
	proctest.Await(t, patience, func() bool {
		for _, p := range r.Workers() {
			if strings.Contains(p.Title, "worker 1 of 3") {
				trial = p
			}
		}
		return trial.PID != 0
	}, "a worker process with the new configuration")
	same("while it is tried")
	_ = unix.Kill(trial.PID, unix.SIGKILL)
	r.AwaitLog("the new configuration does not work; the old one stays")
	same("when it was refused")
	r.Configure(r.settings(1) + "no_such_setting: 1\n")
	r.Signal(hup)
	r.AwaitLog("the new configuration cannot be used; the old one stays")
	same("when it could not be read")

	// A replacement still gets the old configuration.
	r.Touch("gate")
	pids := r.WorkerPIDs()
	require.Len(t, pids, 1)
	require.NoError(t, unix.Kill(pids[0], unix.SIGKILL))
	proctest.Await(t, patience, func() bool {
		now := r.WorkerPIDs()
		return len(now) == 1 && now[0] != pids[0]
	}, "another worker process")
	after := r.standing()
	require.Contains(t, after["process"], "worker 1 of 1")
	r.Signal(quit)
	require.Zero(t, r.Exit(), r.Log())
}

// TestReloadChangesTheMaster checks that the parts of the master follow the new configuration
// as soon as it is in force.
func TestReloadChangesTheMaster(t *testing.T) {
	t.Parallel()
	r := startReloading(t)
	require.EqualValues(t, 1, r.moved("u"))
	r.counted(r.old, "old.duplicate:1|c")
	r.ticks("ticks-old")
	proctest.Await(t, patience, func() bool { return r.Client.Exists(t.Context(), r.Key("resqued:schedules:kept")).Val() == 1 },
		"the note about its schedule")
	before := r.standing()
	r.Configure(r.settings(1, "until_empty"))
	r.Signal(hup)
	r.AwaitLog("the new configuration is in force everywhere")
	require.EqualValues(t, 1, r.moved("v"))
	r.counted(r.new, "new.duplicate:1|c")
	r.ticks("ticks-new")
	r.AwaitLog(`"DEBUG"`)
	after := r.standing()
	require.NotEqual(t, before["entry config"], after["entry config"])
	require.Equal(t, "worked,more", after["entry queues"])
	require.Equal(t, before["file old.pid"], after["file old.pid"], "it is where others look for it")
	require.Empty(t, after["process"])
	require.NoError(t, r.old.SetReadDeadline(time.Now()))
	for {
		buf := make([]byte, 64<<10)
		n, _, err := r.old.ReadFrom(buf)
		if err != nil {
			break
		}
		require.NotContains(t, string(buf[:n]), "duplicate")
	}
	// The lock of Ruby's scheduler master is released as soon as the configuration says so.
	require.Equal(t, int64(1), r.Client.Exists(t.Context(), r.Key(r.Space+":resque_scheduler_master_lock")).Val())
	r.Configure(r.settings(0))
	r.Signal(hup)
	proctest.Await(t, patience, func() bool {
		return r.Client.Exists(t.Context(), r.Key(r.Space+":resque_scheduler_master_lock")).Val() == 0
	}, "the lock to be given back")
}

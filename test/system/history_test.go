package system_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/test/system/harness"
)

// runsOf returns how many jobs a series has counted in total: runs, failed, not run.
func runsOf(t *testing.T, d *harness.Daemon, name string) []uint64 {
	t.Helper()
	series, err := history.ParseName(name)
	require.NoError(t, err)
	raw, err := d.Client.Get(t.Context(), d.Key(history.TotalKey(series))).Bytes()
	require.NoError(t, err)
	sum := history.ReadTotal(raw)
	return []uint64{sum.Runs, sum.Failed, sum.Unrun}
}

// TestHistoryCountsEachJob: worker processes that are replaced all the time count the same jobs
// as Redis, to the last one.
func TestHistoryCountsEachJob(t *testing.T) {
	t.Parallel()
	for _, perFork := range []int{1, 7} {
		t.Run(fmt.Sprintf("jobs per fork: %d", perFork), func(t *testing.T) {
			t.Parallel()
			n := harness.Jobs(60)
			d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2, JobsPerFork: perFork})
			d.Push("mail", "Count", harness.Range(1, n)...)
			d.Push("report", "Fail", 1, 2, 3)
			d.AwaitProcessed(int64(n+3), patience)
			d.Signal(quit)
			require.Zero(t, d.Exit())
			processed, err := d.Client.Get(t.Context(), d.Key("stat:processed")).Uint64()
			require.NoError(t, err)
			failed, err := d.Client.Get(t.Context(), d.Key("stat:failed")).Uint64()
			require.NoError(t, err)
			require.Equal(t, []uint64{processed, failed, 0}, runsOf(t, d, "t:all"))
			require.Equal(t, []uint64{uint64(n), 0, 0}, runsOf(t, d, "c:Count"))
			require.Equal(t, []uint64{uint64(n), 0, 0}, runsOf(t, d, "q:mail"))
			require.Equal(t, []uint64{3, 3, 0}, runsOf(t, d, "q:report"))
			require.Len(t, d.Keys("resqued:hist:h:*:total"), 1)
		})
	}
}

// number reads a number from Redis; 0 = missing.
func number(t *testing.T, d *harness.Daemon, key string) int {
	t.Helper()
	n, _ := d.Client.Get(t.Context(), d.Key(key)).Int()
	return n
}

// counted returns how many runs the history has counted; 0 = it has not begun.
func counted(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	raw, _ := d.Client.Get(t.Context(), d.Key(history.TotalKey(history.AllJobs()))).Bytes()
	return int(history.ReadTotal(raw).Runs)
}

// ran returns how many runs of jobs have ended in the handlers of each worker process.
func ran(t *testing.T, d *harness.Daemon) (by map[string]int, all int) {
	t.Helper()
	by = map[string]int{}
	for proc, text := range d.Noted("ran-by") {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		by[proc] = n
		all += n
	}
	return by, all
}

// feeder keeps a queue from running empty.
type feeder struct {
	d      *harness.Daemon
	pushed int
}

func (f *feeder) feed(t *testing.T) {
	t.Helper()
	if f.d.Client.LLen(t.Context(), f.d.Key("queue:mail")).Val() < 100 {
		f.d.Push("mail", "Count", harness.Range(f.pushed+1, f.pushed+100)...)
		f.pushed += 100
	}
}

// slotTitle is the title of a worker process, with how many jobs had ended at its last report.
var slotTitle = regexp.MustCompile(`: worker \d+ of \d+: .* (\d+) done$`)

// reported feeds a daemon until each worker process has certainly sent its counts of some
// moment, and returns the number of those jobs, by pid. Counts in the title are sent with the
// first report at least a second later, if not earlier.
func reported(t *testing.T, d *harness.Daemon, f *feeder, workers int) map[int]int {
	t.Helper()
	type watched struct {
		first   string // title
		done    int
		until   time.Time // with a report that begins after that done is sent
		title   string    // after that
		changes int       // of title
	}
	seen := map[int]*watched{}
	proctest.Await(t, patience, func() bool {
		f.feed(t)
		sure := 0
		for _, p := range d.Workers() {
			m := slotTitle.FindStringSubmatch(p.Title)
			if m == nil {
				continue
			}
			w := seen[p.PID]
			done, _ := strconv.Atoi(m[1])
			switch {
			case w == nil && done > 0:
				seen[p.PID] = &watched{first: p.Title}
			case w == nil || w.first == p.Title:
			case w.done == 0: // the second report: the first one is sent at once
				w.done, w.until = done, time.Now().Add(time.Second)
			case w.title == "" && time.Now().After(w.until):
				w.title = p.Title
			case w.title != "" && w.title != p.Title:
				w.title = p.Title
				w.changes++ // the first may be of a report that had begun before
			}
			if w != nil && w.changes >= 2 {
				sure++
			}
		}
		return sure >= workers
	}, "reports of %d worker processes", workers)
	sent := map[int]int{}
	for pid, w := range seen {
		if w.changes >= 2 {
			sent[pid] = w.done
		}
	}
	return sent
}

// procOf returns the names of the worker processes by pid.
func procOf(t *testing.T, d *harness.Daemon) map[int]string {
	t.Helper()
	names := map[int]string{}
	for _, key := range d.Keys("resqued:proc:*") {
		if pid, err := d.Client.HGet(t.Context(), d.Key(key), "pid").Int(); err == nil {
			names[pid] = strings.TrimPrefix(key, "resqued:proc:")
		}
	}
	return names
}

// TestHistoryOfKilledProcesses: a killed process only loses the counts that it has not sent.
// Only ended jobs are counted.
func TestHistoryOfKilledProcesses(t *testing.T) {
	t.Parallel()

	t.Run("worker processes", func(t *testing.T) {
		t.Parallel()
		const workers = 2
		d := harness.Start(t, harness.Options{
			App: true, Workers: workers, Threads: 4, Config: "heartbeat_frequency: 4\njob_lock_duration: 15\n",
		})
		f := &feeder{d: d}
		sent := map[string]int{} // by killed process
		for range 2 {
			reports, names := reported(t, d, f, workers), procOf(t, d)
			for pid, n := range reports {
				require.Contains(t, names, pid)
				require.NoError(t, unix.Kill(pid, unix.SIGKILL))
				sent[names[pid]] = n
			}
			proctest.Await(t, patience, func() bool {
				return !slices.ContainsFunc(slices.Collect(maps.Keys(reports)), proctest.Alive)
			}, "the end of the killed processes")
		}
		d.AwaitProcessed(int64(f.pushed), patience)
		d.Signal(quit)
		require.Zero(t, d.Exit())

		by, all := ran(t, d)
		unsent := 0
		for proc, n := range sent {
			require.LessOrEqual(t, n, by[proc])
			unsent += by[proc] - n
		}
		total := counted(t, d)
		t.Logf("%d jobs processed in %d runs; %d counted; killed processes had reported %v, at most %d runs not", f.pushed, all, total, sent, unsent)
		require.GreaterOrEqual(t, len(sent), 2*workers)
		require.LessOrEqual(t, f.pushed-total, unsent)
		// A job whose end was counted, but not recorded when its process died, is counted twice,
		// and ran twice. A job that died too often has failed without a run.
		require.LessOrEqual(t, total, all+len(d.Failures()))
	})

	t.Run("the master", func(t *testing.T) {
		t.Parallel()
		o := harness.Options{App: true, Workers: 2, Threads: 4}
		d := harness.Start(t, o)
		const first = 1000
		d.Push("mail", "Count", harness.Range(1, first)...)
		proctest.Await(t, patience, func() bool { return counted(t, d) == first }, "the history of the first jobs")
		f := &feeder{d: d, pushed: first}
		proctest.Await(t, patience, func() bool {
			f.feed(t)
			return number(t, d, "stat:processed") > first+500
		}, "more jobs")
		killMaster(t, d)
		allGone(t, d)
		total, processed := counted(t, d), number(t, d, "stat:processed")
		t.Logf("%d processed, %d counted when the master was dead", processed, total)
		require.GreaterOrEqual(t, total, first, "it has lost no more than what it had not written")
		require.LessOrEqual(t, total, processed)

		d.Push("mail", "Count", harness.Range(f.pushed+1, f.pushed+200)...)
		next := successor(t, d, o)
		next.AwaitProcessed(int64(f.pushed+200), patience)
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Equal(t, f.pushed+200-processed, counted(t, next)-total, "the next one counts each job, and no other")
		_, all := ran(t, d)
		require.Equal(t, f.pushed+200, all)
	})
}

// TestHistoryInACluster: all keys of the history are in the namespace's slot, on one of two
// nodes, of which the daemon knows the other.
func TestHistoryInACluster(t *testing.T) {
	t.Parallel()
	node := func() *redistest.Server {
		return redistest.Start(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
	}
	mine, other := node(), node()
	client := mine.Client(t)
	const space = "{history}"
	slot := int(client.ClusterKeySlot(t.Context(), space+":x").Val())
	require.NoError(t, client.ClusterAddSlotsRange(t.Context(), slot, slot).Err())
	require.NoError(t, other.Client(t).ClusterAddSlotsRange(t.Context(), 0, slot-1).Err())
	require.NoError(t, other.Client(t).ClusterAddSlotsRange(t.Context(), slot+1, 16383).Err())
	require.NoError(t, other.Client(t).Do(t.Context(), "CONFIG", "SET", "cluster-announce-ip", "127.0.0.1").Err())
	host, port, _ := strings.Cut(other.Addr, ":")
	require.NoError(t, client.ClusterMeet(t.Context(), host, port).Err())
	for _, s := range []*redistest.Server{mine, other} {
		proctest.Await(t, patience, func() bool {
			info := s.Client(t).ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		}, "the cluster")
	}
	url := "redis-cluster://" + other.Addr
	d := harness.Start(t, harness.Options{App: true, Redis: mine, Namespace: space, Env: []string{"REDIS_URL=" + url}})
	d.Push("mail", "Count", harness.Range(1, 20)...)
	d.Push("mail", "Fail", 21)
	d.AwaitProcessed(21, patience)
	d.Signal(quit)
	require.Zero(t, d.Exit())

	require.NotContains(t, d.Log(), "the history of jobs is not complete")
	s, err := store.Open(store.Options{URL: url, Namespace: space})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	totals, err := view.Totals(t.Context(), s)
	require.NoError(t, err)
	runs := map[string]uint64{}
	for _, total := range totals {
		runs[string(rune(total.Kind))] += total.Runs
	}
	require.Equal(t, map[string]uint64{"t": 21, "c": 21, "q": 21, "h": 21}, runs)
	now := time.Now().Add(time.Minute)
	classes, err := view.Classes(t.Context(), s, view.Spans[1], now)
	require.NoError(t, err)
	require.Len(t, classes, 2)
	points, err := view.Series(t.Context(), s, history.AllJobs(), now.Add(-time.Hour), now, time.Minute)
	require.NoError(t, err)
	var all, failed int64
	for _, p := range points {
		all, failed = all+p.Runs, failed+p.Failed
	}
	require.Equal(t, []int64{21, 1}, []int64{all, failed})
	require.Zero(t, other.Client(t).DBSize(t.Context()).Val())
}

// resquesKeys are the keys that a daemon writes for its jobs and that Resque or resque-locket
// has, too; <id> is a worker's.
var resquesKeys = regexp.MustCompile(`^(queues|queue:mail|failed|workers|worker:<id>|worker:<id>:started|stat:(processed|failed)(:<id>)?|locket:job_locks:(Count|Fail)\[\d+\])$`)

// TestHistoryLeavesResquesKeysAlone checks each change of a key while a daemon lives.
func TestHistoryLeavesResquesKeysAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--notify-keyspace-events", "EKA"}})
	const channel = "__keyspace@0__:"
	changes := server.Client(t).PSubscribe(t.Context(), channel+"*")
	defer func() { _ = changes.Close() }()
	_, err := changes.Receive(t.Context())
	require.NoError(t, err)

	d := harness.Start(t, harness.Options{App: true, Redis: server, Workers: 2, Threads: 2, JobsPerFork: 7})
	d.Push("mail", "Count", harness.Range(1, 60)...)
	d.Push("mail", "Fail", 61, 62, 63)
	d.AwaitProcessed(63, patience)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Equal(t, 63, number(t, d, "stat:processed"))
	require.Equal(t, 3, number(t, d, "stat:failed"))
	require.NoError(t, d.Client.Set(t.Context(), d.Key("test:end"), 1, 0).Err())

	id := regexp.MustCompile(`:[^:]+~resqued:[^:]+:[^:]+:,[^:]+`)
	shared, kinds := map[string]bool{}, map[string]bool{}
	for key := ""; key != "test:end"; {
		m, err := changes.ReceiveMessage(t.Context())
		require.NoError(t, err)
		below, ok := strings.CutPrefix(m.Channel, channel+d.Space+":")
		require.True(t, ok, "%s is not in the namespace", m.Channel)
		key = below
		switch {
		case strings.HasPrefix(key, "resqued:hist:"):
			kinds[key[strings.LastIndexByte(key, ':')+1:][:1]] = true
		case strings.HasPrefix(key, "resqued:"), strings.HasPrefix(key, "test:"):
		default:
			key = id.ReplaceAllString(key, ":<id>")
			require.Regexp(t, resquesKeys, key)
			if !strings.HasPrefix(key, "locket:") {
				shared[key] = true
			}
		}
	}
	for _, kind := range []string{"n", "h", "d", "t"} { // names, hours, days, totals
		require.True(t, kinds[kind], kind)
	}
	t.Log(slices.Sorted(maps.Keys(shared)))
	require.Subset(t, slices.Collect(maps.Keys(shared)), []string{"queues", "queue:mail", "failed", "workers", "stat:processed", "stat:failed"})
}

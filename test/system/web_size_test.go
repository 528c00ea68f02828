package system_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/test/system/harness"
)

// The fleet of these tests. Its processes and queues exist in every run, because the cost of a
// look depends on them; only full size has as many waiting and failed jobs.
func fleetSize() harness.Fleet {
	f := harness.Fleet{Masters: 625, Slots: 8, Threads: 16, Running: 5000, Queues: 2000, Waiting: 100_000, Failures: 20_000}
	if harness.Full() {
		f.Waiting, f.Failures = 10_000_000, 1_000_000
	}
	return f
}

// fleetDashboard is a process of "resqued web" that shows a large fleet.
type fleetDashboard struct {
	t       *testing.T
	redis   *redistest.Server
	db      *redis.Client
	command *exec.Cmd
	url     string
}

// reply is an answer of a dashboard.
type reply struct {
	code   int
	first  time.Duration // until its first byte
	packed int           // bytes as they came, packed if the server packs them
	body   []byte
}

func openDashboard(t *testing.T) *fleetDashboard {
	t.Helper()
	d := &fleetDashboard{t: t, redis: redistest.Start(t, redistest.Options{})}
	d.db = d.redis.Client(t)
	begun := time.Now()
	harness.FillFleet(t, d.db, fleetSize())
	t.Logf("the fleet was written in %s", time.Since(begun).Round(100*time.Millisecond))
	port, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := port.(*net.TCPListener).File()
	require.NoError(t, err)
	defer func() { _ = file.Close(); _ = port.Close() }()
	d.url = "http://" + port.Addr().String()
	d.command = exec.Command(harness.Binary(t), "web", "--listen", "fd:3", "--operator", "--tokens", "", "--while-stdin", "--redis-url", d.redis.URL(), "--namespace", harness.FleetSpace)
	d.command.Dir, d.command.ExtraFiles = t.TempDir(), []*os.File{file}
	var said bytes.Buffer
	d.command.Stderr = &said
	stdin, err := d.command.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, d.command.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := d.command.Wait(); err != nil || t.Failed() {
			t.Logf("web: %v\n%s", err, said.Bytes())
		}
	})
	require.Equal(t, http.StatusOK, d.get("/readyz").code)
	return d
}

func (d *fleetDashboard) get(path string) reply { return d.ask(http.MethodGet, path, nil) }

func (d *fleetDashboard) ask(method, path string, body []byte) (a reply) {
	d.t.Helper()
	var begun time.Time
	ctx := httptrace.WithClientTrace(d.t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { begun = time.Now() }, GotFirstResponseByte: func() { a.first = time.Since(begun) },
	})
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(body))
	require.NoError(d.t, err)
	request.Header.Set("Accept-Encoding", "gzip")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(d.t, err)
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	require.NoError(d.t, err)
	a.code, a.packed, a.body = answer.StatusCode, len(raw), raw
	if answer.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		require.NoError(d.t, err)
		a.body, err = io.ReadAll(z)
		require.NoError(d.t, err)
	}
	return a
}

// info returns a number of Redis's INFO.
func (d *fleetDashboard) info(section, name string) float64 {
	d.t.Helper()
	text, err := d.db.Info(d.t.Context(), section).Result()
	require.NoError(d.t, err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(d.t, err)
			return n
		}
	}
	d.t.Fatalf("INFO %s has no %s", section, name)
	return 0
}

// commands returns how often each command was called, and how long all of them took.
func (d *fleetDashboard) commands() (calls map[string]int64, took time.Duration) {
	d.t.Helper()
	text, err := d.db.Info(d.t.Context(), "commandstats").Result()
	require.NoError(d.t, err)
	calls = map[string]int64{}
	for _, m := range regexp.MustCompile(`cmdstat_(\S+):calls=(\d+),usec=(\d+)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseInt(m[2], 10, 64)
		usec, _ := strconv.ParseInt(m[3], 10, 64)
		calls[m[1]] = n
		took += time.Duration(usec) * time.Microsecond
	}
	return calls, took
}

// memory returns a process's resident and peak memory.
func (d *fleetDashboard) memory() (now, most int64) {
	d.t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", d.command.Process.Pid))
	require.NoError(d.t, err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "VmRSS: %d kB", &now)
		_, _ = fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &most)
	}
	return now << 10, most << 10
}

// Pages and API lists that do not grow with the fleet.
var (
	sizedPages = []string{
		"/", "/queues", "/queues?sort=size", "/queues/queue-0000", "/queues/queue-0000?from=40000", "/queues/queue-0000?match=nowhere", "/jobs", "/failed", "/failed?view=flat",
		"/failed?view=flat&cursor=10000", "/failed?view=flat&error=nowhere", "/workers", "/workers/worker-000.example.com:1000", "/locks", "/longjobs", "/schedule", "/classes", "/events", "/redis",
	}
	sizedLists = []string{
		"/live", "/overview", "/attention", "/doctor", "/queues", "/queues/queue-0000", "/queues/queue-0000/jobs", "/jobs", "/jobs?limit=10000", "/failed", "/failed?error=nowhere", "/failed/groups", "/parked",
		"/workers", "/locks", "/locks/waiting", "/locks/unique", "/longjobs", "/schedule", "/schedule/delayed", "/redis", "/classes", "/history", "/events",
	}
)

var element = regexp.MustCompile(`<[a-z]`)

// TestDashboardOfALargeFleet: for 5,000 processes with 80,000 threads, 2,000 queues and, at full
// size, 10 million waiting jobs and a million failures, answers are small and their cost to
// Redis is bounded. On a shared machine, times are only printed.
func TestDashboardOfALargeFleet(t *testing.T) {
	testlevel.Long(t)
	if harness.Race() {
		t.Skip("the processes are none of resqued's")
	}
	t.Parallel()
	d := openDashboard(t)
	size := fleetSize()

	first := d.get("/")
	t.Logf("first page: %s", first.first.Round(time.Millisecond))
	before, took := d.commands()
	times := map[string][]time.Duration{}
	rounds := 1
	if harness.Full() {
		rounds = 5
	}
	for range rounds {
		for _, path := range sizedPages {
			a := d.get(path)
			times[path] = append(times[path], a.first)
			if len(times[path]) > 1 {
				continue
			}
			assert.Equal(t, http.StatusOK, a.code, "%s: %s", path, a.body)
			assert.Less(t, a.packed, 15<<10, path)
			assert.Less(t, len(element.FindAll(a.body, -1)), 4000, "%s: elements", path)
			t.Logf("%-45s %6d bytes, %6d packed, %5d elements", path, len(a.body), a.packed, len(element.FindAll(a.body, -1)))
		}
		for _, path := range sizedLists {
			path = "/api/v1" + path
			a := d.get(path)
			if times[path] = append(times[path], a.first); len(times[path]) == 1 {
				assert.Equal(t, http.StatusOK, a.code, "%s: %s", path, a.body)
				t.Logf("%-45s %6d bytes, %6d packed", path, len(a.body), a.packed)
			}
		}
	}
	after, took2 := d.commands()
	t.Logf("Redis worked %s for these: %v", (took2 - took).Round(time.Millisecond), less(after, before))
	for _, path := range sizedPages {
		t.Logf("%-45s first byte after %s", path, middle(times[path]))
	}
	for _, path := range sizedLists {
		t.Logf("%-45s first byte after %s", "/api/v1"+path, middle(times["/api/v1"+path]))
	}
	d.metrics()
	d.search(size)
	d.retryOne(size)
	now, most := d.memory()
	t.Logf("memory of the server: %d MB, %d MB at most", now>>20, most>>20)
	d.queuesVerb()
	if harness.Full() {
		d.share()
	}
	now, most = d.memory()
	t.Logf("memory of the server: %d MB, %d MB at most", now>>20, most>>20)
	assert.Less(t, now, int64(100<<20))
}

func less(after, before map[string]int64) map[string]int64 {
	diff := map[string]int64{}
	for name, n := range after {
		if n -= before[name]; n > 0 {
			diff[name] = n
		}
	}
	return diff
}

func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(100 * time.Microsecond)
}

func (d *fleetDashboard) metrics() {
	d.t.Helper()
	a := d.get("/metrics")
	require.Equal(d.t, http.StatusOK, a.code)
	d.t.Logf("/metrics: %d bytes, first byte after %s", len(a.body), a.first.Round(100*time.Microsecond))
	assert.Less(d.t, len(a.body), 300_000)
}

// search: a step reports its progress and stays within its time.
func (d *fleetDashboard) search(size harness.Fleet) {
	d.t.Helper()
	a := d.get("/api/v1/failed?error=nowhere")
	var step struct {
		Looked, Total int64
		Next          *string
	}
	require.NoError(d.t, json.Unmarshal(a.body, &step), "%s", a.body)
	d.t.Logf("a step of a search: %s, %d of %d failures", a.first.Round(time.Millisecond), step.Looked, step.Total)
	assert.EqualValues(d.t, size.Failures, step.Total)
	assert.Positive(d.t, step.Looked)
	if step.Looked < step.Total {
		assert.NotNil(d.t, step.Next, "%s", a.body)
	}
}

// retryOne: one failure in the middle of the list is retried without walking the list.
func (d *fleetDashboard) retryOne(size harness.Fleet) {
	d.t.Helper()
	a := d.get(fmt.Sprintf("/api/v1/failed?limit=9&cursor=%d", size.Failures/2))
	var page struct{ Items []struct{ ID string } }
	require.NoError(d.t, json.Unmarshal(a.body, &page), "%s", a.body)
	require.Len(d.t, page.Items, 9)
	var times []time.Duration
	in := d.info("stats", "total_net_output_bytes")
	before, _ := d.commands()
	for _, one := range page.Items {
		body, err := json.Marshal(map[string]any{"ids": []string{one.ID}})
		require.NoError(d.t, err)
		a := d.ask(http.MethodPost, "/api/v1/failed/retry", body)
		require.Equal(d.t, http.StatusOK, a.code, "%s", a.body)
		assert.Contains(d.t, string(a.body), `"matched":1`)
		times = append(times, a.first)
	}
	after, _ := d.commands()
	moved := d.info("stats", "total_net_output_bytes") - in
	d.t.Logf("a failure is retried in %s; %.0f bytes and %v for nine", middle(times), moved, less(after, before))
}

// queuesVerb: the list of queues costs little processor time.
func (d *fleetDashboard) queuesVerb() {
	d.t.Helper()
	for _, args := range [][]string{{"queues"}, {"workers"}, {"jobs"}, {"stats"}} {
		list := exec.Command(harness.Binary(d.t), append(args, "--redis-url", d.redis.URL(), "--namespace", harness.FleetSpace)...)
		list.Dir = d.t.TempDir()
		out, err := list.CombinedOutput()
		require.NoError(d.t, err, "%s", out)
		used, ok := list.ProcessState.SysUsage().(*syscall.Rusage)
		require.True(d.t, ok)
		d.t.Logf("resqued %s: %s of CPU, %d MB", args[0], (list.ProcessState.UserTime() + list.ProcessState.SystemTime()).Round(time.Millisecond), used.Maxrss>>10)
		if args[0] == "queues" {
			assert.Less(d.t, list.ProcessState.UserTime()+list.ProcessState.SystemTime(), 2*time.Second)
		}
	}
}

// share: the sampler's share of Redis while the dashboard is open all the time.
func (d *fleetDashboard) share() {
	d.t.Helper()
	const looking = 30 * time.Second
	cpu := func() float64 {
		return d.info("cpu", "used_cpu_user_main_thread") + d.info("cpu", "used_cpu_sys_main_thread")
	}
	calls, took := d.commands()
	used := cpu()
	begun := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(begun) < looking {
		d.get("/api/v1/live?since=0")
		<-tick.C
	}
	now, later := d.commands()
	passed := time.Since(begun)
	d.t.Logf("while somebody looks: %.2f %% of Redis's thread, commands %.2f %%: %v", 100*(cpu()-used)/passed.Seconds(), 100*(later-took).Seconds()/passed.Seconds(), less(now, calls))
}

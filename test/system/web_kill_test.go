package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// dashboard is a process of "resqued web" that serves a unix socket.
type dashboard struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *bytes.Buffer
	http *http.Client
	// header is sent with each request.
	header http.Header
}

// serveWeb starts a dashboard of a daemon's namespace and waits until it answers.
func serveWeb(t *testing.T, d *harness.Daemon) *dashboard {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "web")
	return startWeb(t, d.Command(context.Background(), nil, "web", "--operator", "--tokens", "", "--listen", "unix:"+socket), dialing("unix", socket))
}

// dialing returns a client that connects to the same address for each request, whatever its URL,
// and follows no redirects.
func dialing(network, address string) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
	}
}

// startWeb starts a dashboard and waits until it answers the client.
func startWeb(t *testing.T, cmd *exec.Cmd, client *http.Client) *dashboard {
	t.Helper()
	w := &dashboard{t: t, cmd: cmd, out: &bytes.Buffer{}, http: client}
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	require.NoError(t, w.cmd.Start())
	t.Cleanup(w.kill)
	proctest.Await(t, patience, func() bool { code, _ := w.ask(http.MethodGet, "/readyz", ""); return code == http.StatusOK }, "the dashboard")
	return w
}

// kill ends the process at once, and waits for its end.
func (w *dashboard) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// ask returns the answer's status, 0 without an answer.
func (w *dashboard) ask(method, path, body string) (int, string) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://localhost"+path, strings.NewReader(body))
	require.NoError(w.t, err)
	maps.Copy(r.Header, w.header)
	r.Header.Set("Content-Type", "application/json")
	answer, err := w.http.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// act acts on all failures and returns their number, -1 without an answer.
func (w *dashboard) act(what string) int {
	code, text := w.ask(http.MethodPost, "/api/v1/failed/"+what, `{"filter":{"class":"Slow"}}`)
	if code == 0 {
		return -1
	}
	require.Equal(w.t, http.StatusOK, code, text)
	var v struct{ Count int }
	require.NoError(w.t, json.Unmarshal([]byte(text), &v))
	return v.Count
}

func failureRecord(id int) string {
	return fmt.Sprintf(`{"failed_at":"2026/11/24 01:02:03 UTC","payload":{"class":"Slow","args":[%d]},"exception":"RuntimeError","error":"e","backtrace":[],"worker":"w:1:mail","queue":"mail"}`, id)
}

// failures writes n records as Ruby does, and returns a function that counts the jobs by place.
func failures(t *testing.T, d *harness.Daemon, first, n int) {
	t.Helper()
	pipe := d.Client.Pipeline()
	for id := first; id < first+n; id++ {
		pipe.RPush(t.Context(), d.Key("failed"), failureRecord(id))
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}

// places counts, by a job's argument, how often it is queued, kept as a failure that was not
// retried, and as one that was.
func places(t *testing.T, d *harness.Daemon) (queued, fresh, retried map[int]int) {
	t.Helper()
	queued, fresh, retried = map[int]int{}, map[int]int{}, map[int]int{}
	var both struct {
		Args      []int
		Payload   struct{ Args []int }
		RetriedAt string `json:"retried_at"`
	}
	for _, key := range []string{"queue:mail", "failed"} {
		all, err := d.Client.LRange(t.Context(), d.Key(key), 0, -1).Result()
		require.NoError(t, err)
		for _, text := range all {
			both.Args, both.Payload.Args, both.RetriedAt = nil, nil, ""
			require.NoError(t, json.Unmarshal([]byte(text), &both), text)
			switch {
			case key == "queue:mail":
				queued[both.Args[0]]++
			case both.RetriedAt != "":
				retried[both.Payload.Args[0]]++
			default:
				fresh[both.Payload.Args[0]]++
			}
		}
	}
	return queued, fresh, retried
}

// manyFailures is how many failures a bulk act has.
func manyFailures() int {
	if harness.Full() {
		return 10_000
	}
	return 2_000
}

// TestWebKilledInABulkRetry kills the dashboard with SIGKILL while it retries thousands of failures: each
// is retried and queued once, or neither, and a second act does the rest.
func TestWebKilledInABulkRetry(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	n := manyFailures()
	failures(t, d, 0, n)
	killedIn := false
	for tries := 0; !killedIn; tries++ {
		require.Less(t, tries, 20, "the act was always over before the kill")
		w := serveWeb(t, d)
		acted := make(chan int, 1)
		go func() { acted <- w.act("retry") }()
		proctest.Await(t, patience, func() bool {
			n, err := d.Client.LLen(t.Context(), d.Key("queue:mail")).Result()
			return err == nil && n > 0
		}, "the first retry")
		w.kill()
		<-acted
		queued, fresh, retried := places(t, d)
		require.Equal(t, queued, retried, "what is marked as retried is queued, and the other way round")
		require.Equal(t, n, len(fresh)+len(retried), "none is lost")
		for id, times := range queued {
			require.Equal(t, 1, times, "job %d", id)
		}
		if killedIn = len(fresh) > 0; !killedIn {
			t.Logf("too late: all %d were retried", n)
			require.NoError(t, d.Client.Del(t.Context(), d.Key("queue:mail"), d.Key("failed")).Err())
			failures(t, d, 0, n)
			continue
		}
		t.Logf("killed after %d of %d", len(queued), n)
		w = serveWeb(t, d)
		code, text := w.ask(http.MethodPost, "/api/v1/failed/retry", `{"filter":{"class":"Slow"},"dry_run":true}`)
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, text, fmt.Sprintf(`"count":%d`, len(fresh)), "what is left is shown")
		require.Equal(t, len(fresh), w.act("retry"))
		queued, fresh, _ = places(t, d)
		require.Empty(t, fresh)
		require.Len(t, queued, n)
		for id, times := range queued {
			require.Equal(t, 1, times, "job %d", id)
		}
	}
}

// TestWebKilledInABulkRemove does the same while it removes them.
func TestWebKilledInABulkRemove(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	n := manyFailures()
	for tries := 0; ; tries++ {
		require.Less(t, tries, 20, "the act was always over before the kill")
		require.NoError(t, d.Client.Del(t.Context(), d.Key("failed")).Err())
		failures(t, d, 0, n)
		const others = 10
		for id := range others {
			require.NoError(t, d.Client.RPush(t.Context(), d.Key("failed"), strings.Replace(failureRecord(n+id), "Slow", "Other", 1)).Err())
		}
		w := serveWeb(t, d)
		acted := make(chan int, 1)
		go func() { acted <- w.act("remove") }()
		left := int64(n + others)
		proctest.Await(t, patience, func() bool {
			var err error
			left, err = d.Client.LLen(t.Context(), d.Key("failed")).Result()
			return err == nil && left < int64(n+others)
		}, "the first removal")
		w.kill()
		<-acted
		queued, fresh, retried := places(t, d)
		require.Empty(t, queued)
		require.Empty(t, retried)
		for id, times := range fresh {
			require.Equal(t, 1, times, "failure %d", id)
		}
		for id := range others {
			require.Equal(t, 1, fresh[n+id], "what was not selected stays")
		}
		if len(fresh) == others {
			continue // too late
		}
		t.Logf("killed after %d of %d", n+others-len(fresh), n)
		w = serveWeb(t, d)
		require.Equal(t, len(fresh)-others, w.act("remove"))
		_, fresh, _ = places(t, d)
		require.Len(t, fresh, others)
		return
	}
}

// TestWebAnswersBeforeItLeaves: a pending request is answered when the dashboard is told to end.
func TestWebAnswersBeforeItLeaves(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	const n = 2_000
	failures(t, d, 0, n)
	w := serveWeb(t, d)
	acted := make(chan int, 1)
	go func() { acted <- w.act("retry") }()
	proctest.Await(t, patience, func() bool {
		n, err := d.Client.LLen(t.Context(), d.Key("queue:mail")).Result()
		return err == nil && n > 0
	}, "the first retry")
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, n, <-acted)
	require.NoError(t, w.cmd.Wait(), w.out.String())
}

// TestTwoOperatorsRetryTheSame: two dashboards act on the same filter at once while a Ruby worker
// appends failures.
func TestTwoOperatorsRetryTheSame(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Queues: "other"})
	n := manyFailures()
	failures(t, d, 0, n)
	both := []*dashboard{serveWeb(t, d), serveWeb(t, d)}
	var wait sync.WaitGroup
	counts := make([]int, len(both))
	for i, w := range both {
		wait.Go(func() { counts[i] = w.act("retry") })
	}
	added := 0
	over := make(chan struct{})
	go func() { wait.Wait(); close(over) }()
	for busy := true; busy; added++ {
		failures(t, d, n+added, 1)
		select {
		case <-over:
			busy = false
		case <-time.After(time.Millisecond): // as fast as a worker fails
		}
	}
	t.Logf("%v were retried, %d were added meanwhile", counts, added)
	queued, fresh, retried := places(t, d)
	require.Equal(t, queued, retried)
	require.Equal(t, counts[0]+counts[1], len(queued))
	require.Equal(t, n+added, len(fresh)+len(retried))
	for id := range n {
		require.Equal(t, 1, queued[id], "job %d", id)
	}
	require.Equal(t, len(fresh), both[0].act("retry"))
	queued, fresh, _ = places(t, d)
	require.Empty(t, fresh)
	require.Len(t, queued, n+added)
}

// TestDaemonNoticesNoDashboard: a dashboard that is stopped, killed or out of memory costs the
// daemon nothing.
func TestDaemonNoticesNoDashboard(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Queues: "mail"})
	worked := 0
	works := func(while string) {
		const jobs = 200
		d.Push("mail", "Count", harness.Range(worked+1, worked+jobs)...)
		worked += jobs
		d.AwaitProcessed(int64(worked), patience)
		t.Logf("%s: %d jobs", while, worked)
	}
	before, said := d.WorkerPIDs(), len(d.Log())

	w := serveWeb(t, d)
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGSTOP))
	works("stopped")
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
	code, _ := w.ask(http.MethodGet, "/", "")
	require.Equal(t, http.StatusOK, code)

	w.kill()
	works("killed")

	// It gets no more memory from the kernel, and dies when it next needs some. The runtime
	// chooses the message: out of memory, pthread_create failed, or a segmentation violation in
	// its garbage collector.
	require.NoError(t, d.Client.RPush(t.Context(), d.Key("failed"), failureRecord(1)).Err())
	w = serveWeb(t, d)
	require.NoError(t, exec.Command("prlimit", "--pid", fmt.Sprint(w.cmd.Process.Pid), "--data=1:1").Run())
	ended := make(chan error, 1)
	go func() { ended <- w.cmd.Wait() }()
	for gone, limit := false, time.After(patience); !gone; {
		select {
		case err := <-ended:
			require.Error(t, err, "it was not asked to stop")
			gone = true
		case <-limit:
			t.Fatal("it lives on with no memory")
		default:
			w.ask(http.MethodPost, "/api/v1/jobs", `{"class":"`+strings.Repeat("x", 60<<10)+`"`)
			w.ask(http.MethodGet, "/failed", "")
		}
	}
	works("out of memory")

	require.Equal(t, before, d.WorkerPIDs(), "no worker process was replaced")
	require.Empty(t, d.Failures()[1:])
	for line := range strings.Lines(d.Log()[said:]) {
		require.NotRegexp(t, `"level":"(error|warn)"|\b(ERROR|WARN)\b`, line)
	}
}

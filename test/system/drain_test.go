package system_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// fleet is four processes of eight threads, with 100 jobs per process. The numbers below follow
// from these.
var fleet = harness.Options{Workers: 4, Threads: 8, JobsPerFork: 100}

// drained requires that every job ran once, that no process exceeded its quota, and that only
// the counters are left.
func drained(t *testing.T, d *harness.Daemon, jobs int, ran, byProc map[string]string) {
	t.Helper()
	require.Len(t, ran, jobs)
	for id, times := range ran {
		require.Equal(t, "1", times, "job %s ran %s times", id, times)
	}
	for proc, count := range byProc {
		n, err := strconv.Atoi(count)
		require.NoError(t, err)
		require.LessOrEqual(t, n, fleet.JobsPerFork, "process %s went beyond its quota", proc)
	}
	// A process may retire up to a fifth before its quota, so that the processes do not all
	// retire at once.
	least := jobs / fleet.JobsPerFork
	require.GreaterOrEqual(t, len(byProc), least)
	require.LessOrEqual(t, len(byProc), least*3/2+fleet.Workers)
	t.Logf("%d jobs by %d processes", jobs, len(byProc))

	s := d.Snapshot()
	require.Equal(t, harness.Snapshot{Processed: int64(jobs)}, s)
	d.Signal(syscall.SIGQUIT)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

func TestEachJobRunsOnce(t *testing.T) {
	t.Parallel()
	t.Run("through a handler in Go", func(t *testing.T) {
		t.Parallel()
		jobs := harness.Load()
		o := fleet
		o.App = true
		o.Queues = "mail,*"
		d := harness.Start(t, o)
		// All jobs are queued before the first is taken, so that the number of visible jobs is
		// known at every instant.
		d.Signal(syscall.SIGUSR2)
		d.AwaitStatus("paused")
		d.Push("mail", "Count", harness.Range(1, jobs/2)...)
		d.Push("low", "Count", harness.Range(jobs/2+1, jobs)...)
		stop := d.Conserve(int64(jobs))
		began := time.Now()
		d.Signal(syscall.SIGCONT)
		d.AwaitProcessed(int64(jobs), 2*time.Minute)
		took := time.Since(began)
		looked := stop()
		require.Positive(t, looked)
		t.Logf("%.0f jobs/s; %d samples", float64(jobs)/took.Seconds(), looked)
		drained(t, d, jobs, d.Noted("ran"), d.Noted("ran-by"))
	})

	t.Run("through a command, pushed by redis-cli", func(t *testing.T) {
		t.Parallel()
		jobs := 1_000
		if harness.Full() {
			jobs = 20_000
		}
		o := fleet
		server := redistest.Shared(t)
		out := filepath.Join(t.TempDir(), "ran")
		// The shell alone: each job costs one process.
		o.Config = noteTo(out)
		d := harness.Start(t, o)
		began := time.Now()
		redisCLI(t, server, d.Space, jobs)
		d.AwaitProcessed(int64(jobs), 5*time.Minute)
		t.Logf("%.0f jobs/s", float64(jobs)/time.Since(began).Seconds())
		ran, byProc := readNotes(t, out)
		drained(t, d, jobs, ran, byProc)
	})
}

// redisCLI pushes jobs by redis-cli, as an operator would: SADD, then one RPUSH after the
// other.
func redisCLI(t *testing.T, server *redistest.Server, space string, jobs int) {
	t.Helper()
	_, port, err := net.SplitHostPort(server.Addr)
	require.NoError(t, err)
	var script strings.Builder
	fmt.Fprintf(&script, "SADD %s:queues mail\n", space)
	for id := range jobs {
		fmt.Fprintf(&script, "RPUSH %s:queue:mail '{\"class\":\"Note\",\"args\":[%d]}'\n", space, id+1)
	}
	cmd := exec.Command("redis-cli", "-p", port)
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "ERR")
}

// readNotes counts, from the lines that the command wrote, how often each job ran and how many
// jobs each process ran.
func readNotes(t *testing.T, path string) (ran, byProc map[string]string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	jobs, procs := map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		proc, text, ok := strings.Cut(lines.Text(), " ")
		require.True(t, ok, "%q", lines.Text())
		var job struct {
			Args  []int  `json:"args"`
			Class string `json:"class"`
			Queue string `json:"queue"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &job), "%q", text)
		require.Equal(t, "Note", job.Class)
		require.Equal(t, "mail", job.Queue)
		jobs[strconv.Itoa(job.Args[0])]++
		procs[proc]++
	}
	require.NoError(t, lines.Err())
	return texts(jobs), texts(procs)
}

func texts(counts map[string]int) map[string]string {
	out := make(map[string]string, len(counts))
	for key, n := range counts {
		out[key] = strconv.Itoa(n)
	}
	return out
}

package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/test/system/harness"
)

// unregistered returns the threads of living resqued processes that are not registered as
// workers of Resque, at one instant. The dead have the lease 0 while they are recovered.
var unregistered = redis.NewScript(`
local p, missing = ARGV[1] .. ':', {}
for _, proc in ipairs(redis.call('ZRANGEBYSCORE', p .. 'resqued:procs', '(0', '+inf')) do
  local ids = redis.call('HGET', p .. 'resqued:proc:' .. proc, 'workers')
  for id in string.gmatch(ids or 'none of ' .. proc, '[^\n]+') do
    if redis.call('SISMEMBER', p .. 'workers', id) == 0 or redis.call('EXISTS', p .. 'worker:' .. id .. ':started') == 0 then
      missing[#missing + 1] = id
    end
  end
end
return missing`)

// watched checks repeatedly, until stop is called, that every thread of resqued is registered
// and no job has failed. stop returns the number of checks.
func watched(t *testing.T, d *harness.Daemon) (stop func() int) {
	t.Helper()
	quit, looked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { looked <- n }()
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			missing, err := unregistered.Run(context.Background(), d.Client, nil, d.Space).StringSlice()
			failed := d.Client.LRange(context.Background(), d.Key("failed"), 0, -1).Val()
			if err != nil || len(missing) > 0 || len(failed) > 0 {
				t.Errorf("no longer registered: %v; failed: %v (%v)", missing, failed, err)
				<-quit
				return
			}
			n++
		}
	}()
	return sync.OnceValue(func() int {
		close(quit)
		return <-looked
	})
}

// shown checks the output of "resqued workers": the daemon with its processes, no dead
// processes, and otherwise only foreign workers, which it returns.
func shown(t *testing.T, d *harness.Daemon) (foreign []string) {
	t.Helper()
	out, stderr, code := d.Run("workers", "show", "-o", "json", "--config", d.ConfigFile)
	require.Zero(t, code, stderr)
	var list struct {
		Items []struct {
			Worker, Kind, State string
			Processes           []struct {
				PID   int
				State string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list), out)
	var pids []int
	for _, w := range list.Items {
		if w.Kind == "foreign" {
			foreign = append(foreign, w.Worker)
			continue
		}
		require.Equal(t, "running", w.State, out)
		for _, p := range w.Processes {
			require.Equal(t, "running", p.State, out)
			pids = append(pids, p.PID)
		}
	}
	require.ElementsMatch(t, d.WorkerPIDs(), pids, out)
	return foreign
}

// rubyChurn counts what Ruby workers that come and go have done.
type rubyChurn struct {
	mu     sync.Mutex
	starts int
	pruned []string
	killed map[string]bool
	err    error
}

// churnRuby runs n loops that start and end workers until stop is called. Each start prunes,
// each worker works a few jobs of every queue but spare, and every third ends as if it was
// killed.
func churnRuby(t *testing.T, d *harness.Daemon, n int, spare ...string) (stop func() *rubyChurn) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &rubyChurn{killed: map[string]bool{}}
	var lanes sync.WaitGroup
	for range n {
		lanes.Go(func() {
			for ctx.Err() == nil {
				if err := c.round(d, spare); err != nil {
					c.mu.Lock()
					c.err = err
					c.mu.Unlock()
					return
				}
			}
		})
	}
	stop = sync.OnceValue(func() *rubyChurn {
		cancel()
		lanes.Wait()
		return c
	})
	t.Cleanup(func() { stop() })
	return stop
}

func (c *rubyChurn) round(d *harness.Daemon, spare []string) error {
	ctx := context.Background()
	r, err := startRuby(ctx, d.Client, d.Space, true, "*")
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := r.once(ctx, spare...); err != nil {
			r.die()
			return err
		}
	}
	c.mu.Lock()
	c.starts++
	c.pruned = append(c.pruned, r.pruned...)
	killed := c.starts%3 == 0
	if killed {
		c.killed[r.id] = true
	}
	c.mu.Unlock()
	if killed {
		r.die()
		return nil
	}
	return r.stop(ctx)
}

// judge requires that the workers have pruned, dead workers of their own among others, and none
// of resqued's.
func (c *rubyChurn) judge(t *testing.T) {
	t.Helper()
	require.NoError(t, c.err)
	dead := map[string]bool{}
	for _, id := range c.pruned {
		name, err := wire.ParseWorkerID(id)
		require.NoError(t, err)
		require.False(t, name.Ours, "a worker of resqued was pruned: %s", id)
		if c.killed[id] {
			dead[id] = true
		}
	}
	t.Logf("%d Ruby workers were started, %d of %d dead ones pruned", c.starts, len(dead), len(c.killed))
	require.NotEmpty(t, dead, "no worker was pruned, so nothing was shown")
}

// feed pushes jobs from first to last: short ones, and some that run long enough for resqued to
// publish them in worker:<id>.
func feed(d *harness.Daemon, first, last int) {
	for id := first; id <= last; id++ {
		queue := []string{"mail", "low"}[id%2]
		if id%10 == 0 {
			d.PushRaw(queue, fmt.Sprintf(`{"class":"Sleep","args":[%d,%d]}`, id, 300))
		} else {
			d.Push(queue, "Count", id)
		}
	}
}

// onceByBoth requires that each job ran once, some in resqued and some in the other system.
func onceByBoth(t *testing.T, d *harness.Daemon, jobs int, other string) {
	t.Helper()
	noted := d.Noted("ran")
	require.Len(t, noted, jobs)
	for id, times := range noted {
		require.Equal(t, "1", times, "job %s", id)
	}
	by := d.Noted("ran-by")
	t.Logf("jobs by: %v", by)
	require.NotEmpty(t, by[other], "they had no share in the work")
	require.Greater(t, len(by), 1, "resqued had no share in the work")
	require.Empty(t, d.Failures())
}

func TestRubyWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	jobs := harness.Jobs(2_000)
	o := harness.Options{App: true, Workers: 2, Threads: 3, Namespace: redistest.Namespace(t)}
	d := harness.Start(t, o)
	// resqued has long jobs in hand all the time.
	d.Push("long", "Gate", harness.Range(900_001, 900_002)...)
	d.AwaitNoted("started", 2)
	unwatch := watched(t, d)
	defer unwatch()
	stop := churnRuby(t, d, 2, "long")
	feed(d, 1, jobs/2)
	d.AwaitProcessed(int64(jobs/2), 2*time.Minute)
	d.AwaitStatus("running, 2 workers")
	shown(t, d)

	// The worker processes are replaced, then the daemon.
	old := d.WorkerPIDs()
	d.Signal(hup)
	d.Open()
	proctest.Await(t, patience, func() bool { return !slices.ContainsFunc(old, proctest.Alive) }, "the end of the old ones")
	d.Signal(quit)
	require.Zero(t, d.Exit())
	d.Shut()
	next := harness.Start(t, o)
	next.Push("long", "Gate", 900_003)
	proctest.Await(t, patience, func() bool { return next.Noted("started")["900003"] == "1" }, "a long job")
	// The jobs of a killed daemon are recovered by the next one, which starts while Ruby
	// prunes, and not by Ruby.
	next.KillTree()
	next.ForgetMasters()
	last := harness.Start(t, o)
	last.ForgetMasters()
	proctest.Await(t, patience, func() bool { return last.Noted("started")["900003"] == "2" }, "its second start")
	feed(last, jobs/2+1, jobs)
	last.Open()
	last.AwaitProcessed(int64(jobs+3), 2*time.Minute)

	stop().judge(t)
	require.Positive(t, unwatch())
	onceByBoth(t, last, jobs+3, "ruby")
	r := ruby(t, last, true, "*") // prunes who was killed last
	require.Equal(t, []string{r.id}, shown(t, last))
	require.NoError(t, r.stop(t.Context()))
	last.Signal(quit)
	require.Zero(t, last.Exit())
	require.Empty(t, last.Residue())
}

// nodeChurn is the report of churn.js.
type nodeChurn struct {
	Rounds, Jobs int
	// Nameless counts the workers whose job was too old but which could not be cleaned up:
	// records of resqued do not name their worker.
	Nameless        int
	Cleaned, Errors []string
}

// churnNode runs churn.js until stop is called.
func churnNode(t *testing.T, d *harness.Daemon) (stop func() nodeChurn) {
	t.Helper()
	dir, err := nodeDir()
	if err != nil {
		t.Skipf("no node-resque: %v", err)
	}
	_, port, err := net.SplitHostPort(redistest.Shared(t).Addr)
	require.NoError(t, err)
	cmd := exec.Command("node", filepath.Join(dir, "churn.js"), port, d.Space)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	end := sync.OnceValue(func() error {
		_ = stdin.Close()
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		return cmd.Wait()
	})
	t.Cleanup(func() { _ = end() })
	return func() (done nodeChurn) {
		t.Helper()
		require.NoError(t, end(), errs.String())
		require.NoError(t, json.Unmarshal(out.Bytes(), &done), out.String())
		return done
	}
}

func TestNodeWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	jobs := harness.Jobs(2_000)
	o := harness.Options{App: true, Workers: 2, Threads: 3, Namespace: redistest.Namespace(t)}
	d := harness.Start(t, o)
	d.Push("long", "Gate", harness.Range(900_001, 900_002)...)
	d.AwaitNoted("started", 2)
	proctest.Await(t, patience, func() bool { return len(busyWorkers(t, d)) == 2 }, "worker:<id> of the long jobs")
	unwatch := watched(t, d)
	defer unwatch()
	stop := churnNode(t, d)
	proctest.Await(t, 2*patience, func() bool {
		return slices.ContainsFunc(d.Client.SMembers(t.Context(), d.Key("workers")).Val(), func(id string) bool {
			name, err := wire.ParseWorkerID(id)
			return err == nil && !name.Ours
		})
	}, "the first of them, which takes node a while")
	feed(d, 1, jobs/2)
	d.AwaitProcessed(int64(jobs/2), 2*time.Minute)
	d.AwaitStatus("running, 2 workers")
	shown(t, d)
	require.Len(t, busyWorkers(t, d), 2)

	d.Open()
	d.AwaitProcessed(int64(jobs/2+2), patience)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	next := harness.Start(t, o)
	feed(next, jobs/2+1, jobs)
	next.AwaitProcessed(int64(jobs+2), 2*time.Minute)

	done := stop()
	t.Logf("node: %+v", done)
	require.Greater(t, done.Rounds, 4)
	require.Empty(t, done.Errors)
	require.Empty(t, done.Cleaned)
	require.Positive(t, done.Nameless, "it saw no old job, so nothing was shown")
	require.Positive(t, unwatch())
	onceByBoth(t, next, jobs+2, "node")
	require.Empty(t, shown(t, next))
	next.Signal(quit)
	require.Zero(t, next.Exit())
	require.Empty(t, next.Residue())
}

// busyWorkers returns the ids of resqued's workers that show a job.
func busyWorkers(t *testing.T, d *harness.Daemon) (ids []string) {
	t.Helper()
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, key := range d.Keys("worker:" + host + "~resqued:*") {
		if !strings.HasSuffix(key, ":started") {
			ids = append(ids, key)
		}
	}
	return ids
}

package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

func longClient(t *testing.T, d *harness.Daemon) *longjob.Client {
	t.Helper()
	c, err := longjob.NewClient(longjob.ClientOptions{URL: d.URL, Namespace: d.Space})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestALongJobSurvivesEverything deploys the daemon again and again, kills its worker processes
// and crashes its Redis while a long job runs. Each unit is done, one after the other, and only
// units that were cut off by a kill are repeated.
func TestALongJobSurvivesEverything(t *testing.T) {
	t.Parallel()
	units, crashes := 400, 1
	if harness.Full() {
		units, crashes = 2000, 2
	}
	server := redistest.Start(t, durable)
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2, JobsPerFork: 3, Redis: server})
	c := longClient(t, d)
	res, err := c.EnqueueUnique(t.Context(), "Long", []any{units, 15}, longjob.Queue("long"))
	require.NoError(t, err)

	troubled, peace := context.WithCancel(t.Context())
	defer peace()
	deploys, killed, troubles := 0, 0, make(chan struct{})
	go func() { // a deploy every three seconds or so, the first at once, and two deaths between them
		defer close(troubles)
		for n := 1; ; n++ {
			select {
			case <-troubled.Done():
				return
			case <-time.After(time.Duration(500+rand.IntN(1000)) * time.Millisecond):
			}
			if n%3 == 1 {
				deploys++
				_ = syscall.Kill(d.PID, syscall.SIGHUP)
			} else if pids := d.WorkerPIDs(); len(pids) > 0 {
				killed++
				_ = syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL)
			}
		}
	}()
	done := func() int64 {
		n, _ := d.Client.LLen(t.Context(), d.Key("test:units")).Result()
		return n
	}
	for i := range crashes {
		proctest.Await(t, 2*time.Minute, func() bool { return done() > int64(units*(i+1)/(crashes+1)) }, "progress")
		server.Kill()
		server.Restart()
	}
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run, err := c.Wait(limit, res.UUID)
	peace()
	<-troubles
	require.NoError(t, err)
	require.Positive(t, deploys)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	require.Equal(t, map[string]string{"0": "1"}, d.Noted("once"))
	require.Empty(t, d.Failures())
	require.EqualValues(t, units, run.Steps[1].Done)

	last, repeated := struct {
		unit  int
		fence int64
	}{}, 0
	for _, entry := range d.Client.LRange(t.Context(), d.Key("test:units"), 0, -1).Val() {
		var unit int
		var fence int64
		_, err := fmt.Sscan(entry, &unit, &fence)
		require.NoError(t, err)
		require.GreaterOrEqual(t, fence, last.fence, "two slices at once, at unit %d", unit)
		if unit == last.unit {
			repeated++
		} else {
			require.Equal(t, last.unit+1, unit)
		}
		last.unit, last.fence = unit, fence
	}
	require.Equal(t, units, last.unit)
	require.LessOrEqual(t, repeated, killed+crashes)
	t.Logf("%d units in %d slices; %d deploys, %d processes killed, %d crashes of Redis; %d units repeated, %s of work in %s",
		units, run.Slices, deploys, killed, crashes, repeated, run.Ran, run.Ended.Sub(run.Begun))
}

// TestALongJobAndAnOlderRedis restarts Redis without its last writes. With no data the run is
// gone without an error; with an older snapshot it goes on from there.
func TestALongJobAndAnOlderRedis(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (server *redistest.Server, d *harness.Daemon, units func() []int) {
		t.Helper()
		server = redistest.Start(t, redistest.Options{})
		others := redistest.Shared(t) // what is done is noted where nothing is forgotten
		d = harness.Start(t, harness.Options{App: true, Workers: 2, Redis: server, Config: shortLease, Env: []string{"RESQUED_TEST_REDIS=" + others.URL()}})
		client := others.Client(t)
		return server, d, func() (list []int) {
			for _, entry := range client.LRange(t.Context(), d.Key("test:units"), 0, -1).Val() {
				var unit int
				_, err := fmt.Sscan(entry, &unit)
				require.NoError(t, err)
				list = append(list, unit)
			}
			return list
		}
	}
	const total = 300

	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		server, d, units := start(t)
		c := longClient(t, d)
		res, err := c.EnqueueUnique(t.Context(), "Long", []any{total, 15}, longjob.Queue("long"))
		require.NoError(t, err)
		proctest.Await(t, patience, func() bool { return len(units()) > 20 }, "units")
		server.Kill()
		server.Restart()
		_, err = c.Get(t.Context(), res.UUID)
		require.ErrorIs(t, err, longjob.ErrNotFound)
		again, err := c.EnqueueUnique(t.Context(), "Long", []any{total, 15}, longjob.Queue("long"))
		require.NoError(t, err)
		require.Equal(t, longjob.OutcomeNew, again.Outcome)
		limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		run, err := c.Wait(limit, again.UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		require.EqualValues(t, total, run.Steps[1].Done)
		require.Empty(t, d.Failures())
		_, err = c.Get(t.Context(), res.UUID)
		require.ErrorIs(t, err, longjob.ErrNotFound, "its last slice has saved nothing")
	})

	t.Run("an older snapshot", func(t *testing.T) {
		t.Parallel()
		server, d, units := start(t)
		c := longClient(t, d)
		res, err := c.EnqueueUnique(t.Context(), "Long", []any{total, 15}, longjob.Queue("long"))
		require.NoError(t, err)
		proctest.Await(t, patience, func() bool { return len(units()) > 20 }, "units")
		require.NoError(t, d.Client.Save(t.Context()).Err())
		list := units()
		saved := list[len(list)-1]
		proctest.Await(t, patience, func() bool { return len(units()) > 150 }, "further slices")
		server.Kill()
		server.Restart()
		limit, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		run, err := c.Wait(limit, res.UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		require.Empty(t, d.Failures())
		last, back := 0, 0
		for _, unit := range units() {
			require.LessOrEqual(t, unit, last+1, "none is left out")
			if unit <= last {
				back++
				require.GreaterOrEqual(t, unit, saved-2, "what the snapshot has is not done again")
			}
			last = unit
		}
		require.Equal(t, total, last)
		t.Logf("%d units, of which the snapshot had %d; %d times back", total, saved, back)
	})
}

// TestALongJobLetsItsProcessGo checks that a drain does not wait for a long job, and that a
// kill is not a failure of it.
func TestALongJobLetsItsProcessGo(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{App: true, Config: "resque_term_timeout: 5s\n"})
			c := longClient(t, d)
			res, err := c.Enqueue(t.Context(), "Long", []any{100000, 20}, longjob.Queue("long"))
			require.NoError(t, err)
			proctest.Await(t, patience, func() bool {
				return d.Client.LLen(t.Context(), d.Key("test:units")).Val() > 3
			}, "units")
			d.Signal(sig)
			require.Zero(t, d.Exit())
			run, err := c.Get(t.Context(), res.UUID)
			require.NoError(t, err)
			require.Equal(t, longjob.StatusQueued, run.Status)
			require.Less(t, run.Steps[1].Done, int64(1000), "it has ended long before the work was done")
			require.Empty(t, d.Failures())

			out, _, code := d.Run("longjobs", "-o", "json")
			require.Zero(t, code)
			var list struct {
				Items []struct{ UUID, Status string }
			}
			require.NoError(t, json.Unmarshal([]byte(out), &list))
			require.Len(t, list.Items, 1)
			require.Equal(t, "queued", list.Items[0].Status)
			out, _, code = d.Run("longjobs")
			require.Zero(t, code)
			require.Contains(t, out, "/100000")
			out, _, code = d.Run("longjobs", "show", res.UUID[:8])
			require.Zero(t, code)
			require.Contains(t, out, "step each")
			require.Contains(t, out, "state sum")
			_, _, code = d.Run("longjobs", "requeue", res.UUID)
			require.Equal(t, 1, code, "it is not over")
			out, _, code = d.Run("longjobs", "cancel", res.UUID)
			require.Zero(t, code)
			require.Equal(t, "cancelled 1 long job\n", out)
			_, _, code = d.Run("longjobs", "requeue", res.UUID[:8])
			require.Zero(t, code)
			_, _, code = d.Run("longjobs", "show", "nobody")
			require.Equal(t, 4, code)
		})
	}
}

// TestAStoppedSliceSavesNothing stops a worker process past its lease, so that another machine
// finds it dead or its own master ends it. When it is continued it saves nothing.
func TestAStoppedSliceSavesNothing(t *testing.T) {
	t.Parallel()
	first := harness.Start(t, harness.Options{App: true, Host: "first", Config: shortLease})
	c := longClient(t, first)
	res, err := c.Enqueue(t.Context(), "Long", []any{40, 100}, longjob.Queue("long"))
	require.NoError(t, err)
	proctest.Await(t, patience, func() bool {
		return first.Client.LLen(t.Context(), first.Key("test:units")).Val() > 3
	}, "units")
	first.Stop()
	_ = harness.Start(t, harness.Options{App: true, Host: "second", Config: shortLease, Namespace: first.Space})
	before := first.Client.HGet(t.Context(), first.Key("resqued:longjob:run:"+res.UUID), "fence").Val()
	proctest.Await(t, time.Minute, func() bool {
		return first.Client.HGet(t.Context(), first.Key("resqued:longjob:run:"+res.UUID), "fence").Val() != before
	}, "another slice")
	first.Continue()
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := c.Wait(limit, res.UUID)
	require.NoError(t, err)
	require.Equal(t, longjob.StatusCompleted, run.Status)
	require.EqualValues(t, 40, run.Steps[1].Done)
	require.Empty(t, first.Failures())
}

// TestTenantsTakeTurns kills worker processes while runs of two tenants take turns. A tenant
// never has more runs at once than its class allows, and all runs end.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 4})
	c := longClient(t, d)
	runs := map[string][]string{}
	for i := range 8 {
		tenant := []string{"a", "a", "a", "b"}[i%4]
		// The arguments differ because equal ones would be one run.
		res, err := c.Enqueue(t.Context(), "Long", []any{30 + i, 20}, longjob.Queue("long"), longjob.Tenant(tenant))
		require.NoError(t, err)
		runs[tenant] = append(runs[tenant], res.UUID)
	}
	random, next, kills := rand.New(rand.NewPCG(3, 4)), time.Now().Add(time.Second), 0
	proctest.Await(t, 3*time.Minute, func() bool {
		list, err := c.List(t.Context(), longjob.Filter{Class: "Long"})
		require.NoError(t, err)
		over := 0
		for _, r := range list {
			if r.Status.Over() {
				over++
			}
		}
		for tenant := range runs {
			n, err := d.Client.SCard(t.Context(), d.Key("resqued:longjob:busy:"+tenant)).Result()
			require.NoError(t, err)
			require.LessOrEqual(t, n, int64(1), tenant)
		}
		if pids := d.WorkerPIDs(); len(pids) > 0 && time.Now().After(next) && kills < 3 {
			kills++
			_ = syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL)
			next = time.Now().Add(time.Second)
		}
		return over == 8
	}, "the end of all")
	for _, uuids := range runs {
		for _, uuid := range uuids {
			run, err := c.Get(t.Context(), uuid)
			require.NoError(t, err)
			require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		}
	}
	require.Positive(t, kills)
	require.Empty(t, d.Failures())
	require.Empty(t, d.Client.Keys(t.Context(), d.Key("resqued:longjob:[bl][ui][sn][ye]:*")).Val())
	require.Zero(t, d.Client.Exists(t.Context(), d.Key("resqued:longjob:tenants")).Val())
}

// TestARecurringLongJob has two daemons keep a recurring long job, and kills one of them. Each
// shop has its turn about once per interval.
func TestARecurringLongJob(t *testing.T) {
	t.Parallel()
	env := []string{"RESQUED_TEST_RECUR=1"}
	harness.App(t)
	began := time.Now()
	d := harness.Start(t, harness.Options{App: true, Env: env, Threads: 2})
	other := harness.Start(t, harness.Options{App: true, Env: env, Threads: 2, Namespace: d.Space})
	d.AwaitNoted("shops", 6)
	other.KillTree()
	proctest.Await(t, time.Minute, func() bool {
		for _, n := range d.Noted("shops") {
			if n == "1" {
				return false
			}
		}
		return true
	}, "one more turn of each")
	most := 3 + int(time.Since(began)/(5*time.Second)) // to the nearest tick
	for shop, n := range d.Noted("shops") {
		turns, err := strconv.Atoi(n)
		require.NoError(t, err)
		require.LessOrEqual(t, turns, most, shop)
	}
	require.Empty(t, d.Failures())
	for key, want := range map[string]string{"longjobs recurring": "Shop ", "schedule": "Shop.recurring"} {
		out, _, code := d.Run(strings.Fields(key)...)
		require.Zero(t, code)
		require.Contains(t, out, want)
	}
	_, _, code := d.Run("longjobs", "recurring", "pause", "Nobody")
	require.Equal(t, 4, code)
	out, _, code := d.Run("longjobs", "recurring", "pause", "Shop")
	require.Zero(t, code)
	require.Equal(t, "paused Shop\n", out)
	last := func() string { return d.Client.HGet(t.Context(), d.Key("resqued:cron"), "Shop.recurring").Val() }
	noted := func() (sum int) {
		for _, n := range d.Noted("shops") {
			turns, _ := strconv.Atoi(n)
			sum += turns
		}
		return sum
	}
	settle := last() // what was started before
	proctest.Await(t, time.Minute, func() bool { return last() != settle }, "a tick")
	proctest.Await(t, time.Minute, func() bool { s := d.Snapshot(); return s.Queued+s.InFlight == 0 }, "the last run")
	sum := noted()
	for range 4 {
		before := last()
		proctest.Await(t, time.Minute, func() bool { return last() != before }, "a tick")
	}
	require.Equal(t, sum, noted(), "paused")
	_, _, code = d.Run("longjobs", "recurring", "resume", "Shop")
	require.Zero(t, code)
	proctest.Await(t, time.Minute, func() bool { return noted() > sum+3 }, "more turns")
}

// TestTheExampleOfALongJob runs the example program.
func TestTheExampleOfALongJob(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "longjob")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/resqued/resqued/examples/longjob").CombinedOutput()
	require.NoError(t, err, "%s", out)
	d := harness.Start(t, harness.Options{Binary: binary})
	start := exec.Command(binary, "start", "north")
	start.Env = append(os.Environ(), "REDIS_URL="+d.URL, "RESQUE_NAMESPACE="+d.Space)
	out, err = start.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.HasPrefix(string(out), "new "), "%s", out)
	d.AwaitLog("north: 20 invoices sent in ")
}

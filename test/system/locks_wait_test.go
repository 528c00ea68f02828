package system_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// same returns n equal payloads, which exclude each other.
func same(n int, payload string) []string { return slices.Repeat([]string{payload}, n) }

// TestLockedJobsDoNotStarveOthers checks that a high queue with ten thousand locked jobs, to which
// more are added, does not keep the jobs of the lowest queue waiting.
func TestLockedJobsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	const locked = 10_000
	for name, o := range map[string]struct {
		class string
		keys  int
	}{
		"behind one lock":                               {"Gate", 1},
		"behind twenty locks":                           {"Gate", 20},
		"behind a lock whose holders come and go":       {"Sleep", 1},
		"behind twenty locks whose holders come and go": {"Sleep", 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o.class == "Sleep" && !harness.Full() {
				t.Skip("too much for the tests that run beside it: make system")
			}
			during := 3 * time.Second
			if harness.Full() {
				during = time.Minute
			}
			server := redistest.Start(t, redistest.Options{})
			d := harness.Start(t, harness.Options{
				App: true, Workers: 2, Threads: o.keys/2 + 4, Queues: "high,middle,low", Trace: t.TempDir(), Redis: server,
			})
			payloads := make([]string, locked)
			for i := range payloads {
				payloads[i] = fmt.Sprintf(`{"class":"Gate","args":[%d]}`, i%o.keys)
				if o.class == "Sleep" {
					payloads[i] = fmt.Sprintf(`{"class":"Sleep","args":[%d,20]}`, i%o.keys)
				}
			}
			d.PushRaw("high", payloads...)
			d.AwaitNoted("started", o.keys)

			before := measure(t, d)
			pushed, stall := probe(d, during, payloads)
			used := measure(t, d).since(before)
			proctest.Await(t, patience, func() bool {
				return len(readTrace(t, d.Trace)) > 0 && len(delays(t, d.Trace, pushed)) == len(pushed)
			}, "the start of all probes")
			waits := delays(t, d.Trace, pushed)
			t.Logf("%d jobs of the lowest queue waited %s (median), %s (most), the test itself %s; %s",
				len(waits), waits[len(waits)/2], waits[len(waits)-1], stall, used)
			require.Less(t, waits[len(waits)-1], harness.Speed(250*time.Millisecond)+stall)

			require.NoError(t, d.Client.Del(context.Background(), d.Key("queue:high")).Err())
			d.Open()
			proctest.Await(t, patience, func() bool { s := d.Snapshot(); return s.InFlight+s.Queued == 0 }, "the end of all jobs")
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

// TestLines: jobs of a few locks run in the order of their pushes, while worker processes are
// used up or killed. Jobs whose process was killed run alone, so others of their line may run
// before them; but none is lost.
func TestLines(t *testing.T) {
	t.Parallel()
	const locks, each = 3, 150
	for name, kills := range map[string]int{"recycled": 0, "killed": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{
				App: true, Workers: 3, Threads: 4, JobsPerFork: 40, Queues: "q,r", Trace: t.TempDir(),
				Config: "max_deaths: 50\njob_lock_key: '{{args.0}}'\n",
			})
			pushed := map[string][]string{}
			for i := range each {
				for key := range locks {
					queue := []string{"q", "r"}[key%2]
					id := fmt.Sprintf("%d-%d", key, i)
					d.PushRaw(queue, fmt.Sprintf(`{"class":"Hold","args":[%d,2000],"id":%q}`, key, id))
					pushed[strconv.Itoa(key)] = append(pushed[strconv.Itoa(key)], id)
				}
			}
			stop := sync.OnceValue(d.Conserve(locks * each))
			t.Cleanup(func() { stop() })
			for i := range kills {
				reached := int64(30 * (i + 1))
				proctest.Await(t, patience, func() bool { return d.Snapshot().Processed >= reached && len(d.WorkerPIDs()) > 0 }, "more jobs")
				if pids := d.WorkerPIDs(); len(pids) > 0 {
					_ = syscall.Kill(pids[i%len(pids)], syscall.SIGKILL)
				}
			}
			d.AwaitProcessed(locks*each, patience)
			require.Positive(t, stop())
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())

			ended := map[string][]string{}
			for _, n := range readTrace(t, d.Trace) {
				if n.kind == "end" {
					key, _, _ := strings.Cut(n.id, "-")
					ended[key] = append(ended[key], n.id)
				}
			}
			for key, ids := range ended {
				if kills > 0 {
					slices.Sort(pushed[key])
					slices.Sort(ids)
					ids = slices.Compact(ids) // the end may have been noted right before the kill
				}
				require.Equal(t, pushed[key], ids, "jobs of lock %s", key)
			}
		})
	}
}

// probe pushes a job into the lowest queue every 50 ms, and a locked one into the highest every
// 10 ms. It returns when each of the former was pushed, by its id, and the longest delay of its
// own pushes, which shows how overloaded the machine was.
func probe(d *harness.Daemon, during time.Duration, locked []string) (pushed map[string]time.Duration, stall time.Duration) {
	pushed = map[string]time.Duration{}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	last := began
	for i := 0; time.Since(began) < during; i++ {
		<-tick.C
		stall, last = max(stall, time.Since(last)), time.Now()
		d.PushRaw("high", locked[i%len(locked)])
		if i%5 == 0 {
			id := "probe" + strconv.Itoa(i)
			pushed[id] = procfs.BootTime()
			d.PushRaw("low", fmt.Sprintf(`{"class":"Hold","args":[%d,0],"id":%q}`, 1000+i, id))
		}
	}
	return pushed, stall
}

// delays returns how long the jobs have waited for their start, in increasing order.
func delays(t *testing.T, trace string, pushed map[string]time.Duration) []time.Duration {
	t.Helper()
	var waits []time.Duration
	for _, n := range readTrace(t, trace) {
		if at, ok := pushed[n.id]; ok && n.kind == "begin" {
			waits = append(waits, n.at-at)
		}
	}
	slices.Sort(waits)
	return waits
}

// cost is what a Redis server and the daemons' processes have used.
type cost struct {
	at      time.Time
	calls   map[string]float64
	redis   float64 // seconds of processor time
	daemons time.Duration
	over    time.Duration // of a difference
}

// measure returns the costs so far.
func measure(t *testing.T, daemons ...*harness.Daemon) cost {
	t.Helper()
	c := cost{at: time.Now(), calls: map[string]float64{}}
	info, err := daemons[0].Client.Info(context.Background(), "commandstats", "cpu").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch command, ok := strings.CutPrefix(name, "cmdstat_"); {
		case ok:
			n, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			calls, err := strconv.ParseFloat(n, 64)
			require.NoError(t, err)
			c.calls[command] = calls
		case name == "used_cpu_sys" || name == "used_cpu_user":
			seconds, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			c.redis += seconds
		}
	}
	for _, d := range daemons {
		for _, p := range d.Processes() {
			c.daemons += proctest.CPUTime(p.PID)
		}
	}
	return c
}

// since returns the costs between two measurements.
func (c cost) since(before cost) cost {
	c.over = c.at.Sub(before.at)
	for command, n := range before.calls {
		c.calls[command] -= n
	}
	c.redis -= before.redis
	c.daemons -= before.daemons
	return c
}

// rate returns how many calls of the commands were made per second.
func (c cost) rate(commands ...string) float64 {
	n := 0.0
	for _, command := range commands {
		n += c.calls[command]
	}
	return n / c.over.Seconds()
}

func (c cost) String() string {
	return fmt.Sprintf("%.0f scripts/s, %.0f lpop and rpush/s, redis %.1f %% of a core, daemons %.1f %%",
		c.rate("evalsha", "eval"), c.rate("lpop", "rpush"),
		100*c.redis/c.over.Seconds(), 100*c.daemons.Seconds()/c.over.Seconds())
}

// TestWaitingForALock checks that a thousand locked jobs cost next to nothing while they wait,
// and that the first of them starts at once when the lock is free, whatever freed it.
func TestWaitingForALock(t *testing.T) {
	t.Parallel()
	for lines, counted := range map[string]string{"auto": "resqued:lined", "off": "locket:queue_lock_counters"} {
		t.Run("lines "+lines, func(t *testing.T) {
			t.Parallel()
			waitForALock(t, lines, counted)
		})
	}
}

// waitForALock does that with a setting of lines; counted is the hash that counts the waiting
// jobs.
func waitForALock(t *testing.T, lines, counted string) {
	t.Helper()
	const waiting = 1000
	ctx := context.Background()
	server := redistest.Start(t, redistest.Options{})
	o := harness.Options{App: true, Workers: 2, Threads: 4, Queues: "mail", Redis: server, Trace: t.TempDir(), Config: "lines: '" + lines + "'\n"}
	d := harness.Start(t, o)
	o.Namespace, o.Queues = d.Space, "other"
	other := harness.Start(t, o)

	lock := d.Key("locket:job_locks:Hold[1,0]")
	processed := int64(0)
	// wait makes a thousand jobs wait for a lock and checks that they are known to wait.
	wait := func(payload string) {
		t.Helper()
		d.PushRaw("mail", same(waiting, payload)...)
		proctest.Await(t, patience, func() bool {
			return d.Client.HGet(ctx, d.Key(counted), "mail").Val() == strconv.Itoa(waiting)
		}, "a look at all jobs")
	}
	// began waits until the first job has started and all others wait again, and logs how long
	// after an instant it has started.
	began := func(how string, free func() time.Duration) {
		t.Helper()
		notes := len(readTrace(t, d.Trace))
		at := free()
		proctest.Await(t, patience, func() bool { return len(readTrace(t, d.Trace)) > notes }, "the start of a job")
		if at == 0 { // when its holder ended
			at = readTrace(t, d.Trace)[notes].at
			proctest.Await(t, patience, func() bool { return len(readTrace(t, d.Trace)) > notes+1 }, "the start of a job")
			notes++
		}
		took := readTrace(t, d.Trace)[notes].at - at
		t.Logf("%s: the first job starts after %s", how, took)
		require.Less(t, took, harness.Speed(5*time.Second))
		processed += waiting
		d.AwaitProcessed(processed, 2*time.Minute)
		requireNoLocks(t, d)
	}

	require.NoError(t, d.Client.Set(ctx, lock, "", time.Hour).Err())
	wait(`{"class":"Hold","args":[1,0]}`)
	during := 5 * time.Second
	if harness.Full() {
		during = time.Minute
	}
	before := measure(t, d, other)
	<-time.After(during)
	used := measure(t, d, other).since(before)
	t.Logf("%d jobs waiting for %s: %s", waiting, during, used)
	require.Less(t, used.rate("evalsha", "eval"), 100.0)
	require.Less(t, used.rate("lpop", "rpush"), 100.0)
	began("deleted by a person", func() time.Duration {
		at := procfs.BootTime()
		require.NoError(t, d.Client.Del(ctx, lock).Err())
		return at
	})

	require.NoError(t, d.Client.Set(ctx, lock, "", time.Hour).Err())
	wait(`{"class":"Hold","args":[1,0]}`)
	began("released by a gem worker", func() time.Duration {
		at := procfs.BootTime()
		require.NoError(t, d.Client.Del(ctx, lock).Err())
		require.NoError(t, d.Client.Del(ctx, d.Key("locket:queue_lock_counters")).Err())
		return at
	})

	require.NoError(t, d.Client.Set(ctx, lock, "", time.Hour).Err())
	wait(`{"class":"Hold","args":[1,0]}`)
	began("expired", func() time.Duration {
		at := procfs.BootTime()
		require.NoError(t, d.Client.PExpire(ctx, lock, time.Second).Err())
		return at + time.Second
	})

	other.Push("other", "Gate", 1)
	d.AwaitNoted("started", 1)
	processed++
	wait(`{"class":"Gate","args":[1]}`)
	began("its job has ended in a daemon that does not work the queue", func() time.Duration {
		d.Open()
		return 0
	})

	for _, daemon := range []*harness.Daemon{d, other} {
		daemon.Signal(quit)
		require.Zero(t, daemon.Exit())
	}
	require.Empty(t, d.Residue())
}

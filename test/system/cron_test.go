package system_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// record returns the time from which a schedule counts and its last tick, in milliseconds.
func record(t *testing.T, client *redis.Client, space, name string) (from, last int64) {
	t.Helper()
	fields := strings.Fields(client.HGet(t.Context(), space+":resqued:cron", name).Val())
	if len(fields) < 5 {
		return 0, 0
	}
	from, err := strconv.ParseInt(fields[3], 10, 64)
	require.NoError(t, err)
	last, err = strconv.ParseInt(fields[4], 10, 64)
	require.NoError(t, err)
	return from, last
}

// TestCronUnderKills runs a tick a second with three masters, one of which is killed at random
// every few seconds. No tick is lost and none comes twice. It compares the jobs in a queue that
// no worker takes from with the ticks of the clock.
func TestCronUnderKills(t *testing.T) {
	t.Parallel()
	lasts, every := 20*time.Second, 2*time.Second
	if harness.Full() {
		lasts, every = 3*time.Minute, 5*time.Second
	}
	const schedule = `
schedule:
  second: {cron: "* * * * * *", timezone: UTC, class: Count, args: [1], queue: ticks, catch_up: all}
  interval: {every: 1s, class: Count, args: [2], queue: intervals, catch_up: all}
  worked: {cron: "*/2 * * * * *", timezone: UTC, class: Count, args: [3], queue: worked, catch_up: all}
`
	server, space := redistest.Shared(t), redistest.Namespace(t)
	client := server.Client(t)
	start := func() *harness.Daemon {
		return harness.Start(t, harness.Options{App: true, Namespace: space, Queues: "worked", Config: schedule, Unready: true})
	}
	daemons := []*harness.Daemon{start(), start(), start()}
	// A first tick may be over when its record is first seen.
	first, before := map[string]int64{}, map[string]int64{}
	for name, queue := range map[string]string{"second": "ticks", "interval": "intervals", "worked": "none"} {
		require.True(t, proctest.Within(time.Minute, func() bool {
			jobs := client.LLen(t.Context(), space+":queue:"+queue).Val()
			first[name], _ = record(t, client, space, name)
			before[name] = client.LLen(t.Context(), space+":queue:"+queue).Val()
			return first[name] > 0 && jobs == before[name]
		}))
	}
	kills := 0
	end, tick := time.After(lasts), time.NewTicker(every)
	defer tick.Stop()
loop:
	for {
		select {
		case <-end:
			break loop
		case <-tick.C:
			i := rand.IntN(len(daemons))
			daemons[i].Signal(unix.SIGKILL)
			daemons[i].Exit()
			for _, w := range daemons[i].Workers() {
				_ = unix.Kill(w.PID, unix.SIGKILL)
			}
			daemons[i] = start()
			kills++
		}
	}
	for _, d := range daemons {
		d.AwaitReady()
	}
	for _, name := range []string{"second", "interval"} {
		_, was := record(t, client, space, name)
		require.True(t, proctest.Within(time.Minute, func() bool {
			_, now := record(t, client, space, name)
			return now > was+2000 && now-first[name] >= lasts.Milliseconds()
		}))
	}
	for _, d := range daemons {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
	for name, queue := range map[string]string{"second": "ticks", "interval": "intervals"} {
		_, last := record(t, client, space, name)
		want := last/1000 - first[name]/1000
		if name == "interval" {
			want = (last - first[name]) / 1000
		}
		got := client.LLen(t.Context(), space+":queue:"+queue).Val() - before[name]
		t.Logf("%s: %d ticks, %d jobs, %d masters killed", name, want, got, kills)
		require.Equal(t, want, got, name)
		require.GreaterOrEqual(t, got, int64(lasts/time.Second)-2)
	}
	// The jobs of "worked" ran once for each tick: their lock allows one at a time, so a job
	// that is no longer queued has run, or was in hand when a master died.
	_, last := record(t, client, space, "worked")
	ran, _ := strconv.Atoi(client.HGet(t.Context(), space+":test:ran", "3").Val())
	waiting := client.LLen(t.Context(), space+":queue:worked").Val()
	want := last/2000 - first["worked"]/2000
	t.Logf("worked: %d ticks, %d ran, %d wait", want, ran, waiting)
	require.GreaterOrEqual(t, int64(ran)+waiting, want)
	require.LessOrEqual(t, int64(ran)+waiting, want+int64(kills)+1, "a job runs again only when its process died")
}

// TestScheduleChanges changes and removes a schedule in its file and in Redis while the daemon
// runs.
func TestScheduleChanges(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Config: `
persistent_schedules: true
schedule:
  one: {every: 1s, class: Count, args: [1], queue: q}
  never: {cron: "0 0 1 1 *", class: Count, args: [2], queue: q, timezone: UTC}
`})
	d.AwaitNoted("ran", 1)
	out, errs, code := d.Run("schedule", "-c", d.ConfigFile)
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^one +every 1s .*(ok <?\d+s) +Count +q$`, out)
	require.Regexp(t, `(?m)^never +0 0 1 1 \* UTC +\d+[dh] +— +Count +q$`, out)

	// In Redis, in Ruby's format.
	set := func(name, definition string) {
		t.Helper()
		require.NoError(t, d.Client.HSet(t.Context(), d.Key("persistent_schedules"), name, definition).Err())
		require.NoError(t, d.Client.SAdd(t.Context(), d.Key("schedules_changed"), name).Err())
	}
	set("ruby", `{"class":"Count","every":["1s",{"first_in":"1s"}],"args":[3],"queue":"q"}`)
	d.AwaitNoted("ran", 2)
	require.NotEmpty(t, d.Noted("ran")["3"])
	require.Regexp(t, `^20\d\d-`, d.Client.HGet(t.Context(), d.Key("delayed:last_enqueued_at"), "ruby").Val())
	set("ruby", `{"class":"Count","every":"1s","args":[4],"queue":"q"}`)
	d.AwaitNoted("ran", 3)
	ran := d.Noted("ran")["3"]
	_, errs, code = d.Run("schedule", "rm", "ruby", "-c", d.ConfigFile)
	require.Zero(t, code, errs)
	// Jobs enqueued by the schedule may still wait; they run before this one.
	d.Push("q", "Count", 40)
	d.AwaitNoted("ran", 4)
	fours := d.Noted("ran")["4"]

	// Another schedule replaces the first.
	d.Configure(`
schedule:
  two: {every: 1s, class: Count, args: [5], queue: q}
`)
	old := d.WorkerPIDs()
	d.Signal(hup)
	d.AwaitNoted("ran", 5)
	awaitOthers(t, d, old, 1) // which may have had one of the first in hand
	ones := d.Noted("ran")["1"]
	fives, _ := strconv.Atoi(d.Noted("ran")["5"])
	require.True(t, proctest.Within(time.Minute, func() bool { n, _ := strconv.Atoi(d.Noted("ran")["5"]); return n > fives+3 }))
	require.Equal(t, ran, d.Noted("ran")["3"], "the old definition is gone")
	require.Equal(t, fours, d.Noted("ran")["4"], "it was removed")
	require.Equal(t, ones, d.Noted("ran")["1"])
	_, _, code = d.Run("schedule", "run", "two", "-c", d.ConfigFile)
	require.Zero(t, code)
	d.Signal(quit)
	require.Zero(t, d.Exit())
}

// TestSchedulerLock checks that resqued enqueues nothing while a Ruby scheduler holds the
// master lock. Afterwards one of resqued's masters takes it, and releases it on exit.
func TestSchedulerLock(t *testing.T) {
	t.Parallel()
	space := redistest.Namespace(t)
	client := redistest.Shared(t).Client(t)
	lock := fmt.Sprintf("%s:%s:resque_scheduler_master_lock", space, space)
	require.NoError(t, client.Set(t.Context(), lock, "ruby-host:4242", time.Hour).Err())
	config := `
scheduler_lock: resque-scheduler
schedule:
  one: {every: 1s, class: Count, args: [1], queue: q}
`
	a := harness.Start(t, harness.Options{App: true, Namespace: space, Config: config})
	b := harness.Start(t, harness.Options{App: true, Namespace: space, Config: config})
	a.AwaitLog("another scheduler is in charge")
	b.AwaitLog("another scheduler is in charge")
	require.Empty(t, b.Noted("ran"))
	require.NoError(t, client.Del(t.Context(), lock).Err()) // as Ruby does when it leaves
	b.AwaitNoted("ran", 1)
	holder := client.Get(t.Context(), lock).Val()
	require.Contains(t, []string{strconv.Itoa(a.PID), strconv.Itoa(b.PID)}, holder[strings.LastIndex(holder, ":")+1:])
	require.True(t, strings.HasPrefix(holder, "resqued:"))
	if strings.HasSuffix(holder, fmt.Sprint(":", b.PID)) {
		a, b = b, a
	}
	a.Signal(quit)
	require.Zero(t, a.Exit())
	require.True(t, proctest.Within(time.Minute, func() bool { return strings.HasSuffix(client.Get(t.Context(), lock).Val(), fmt.Sprint(":", b.PID)) }))
	ran := b.Noted("ran")["1"]
	require.True(t, proctest.Within(time.Minute, func() bool { return b.Noted("ran")["1"] != ran }))
	b.Signal(quit)
	require.Zero(t, b.Exit())
	require.Zero(t, client.Exists(t.Context(), lock).Val())
}

package store_test

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// atSize is how many entries the tests have that want very many. RESQUED_TEST_FULL=1 makes
// them a million.
func atSize() int {
	if os.Getenv("RESQUED_TEST_FULL") != "" {
		return 1_000_000
	}
	return 100_000
}

// crowded is a fixture on a server of its own.
type crowded struct {
	*fixture
	server *redistest.Server
	n      int
}

func crowd(t *testing.T) crowded {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	return crowded{fixture: setup(t, server), server: server, n: atSize()}
}

// fill adds what format makes of the numbers from 0 to n to a key.
func (c crowded) fill(command, key, format string, n int) {
	c.t.Helper()
	script := redis.NewScript(`for i = tonumber(ARGV[3]), ARGV[4] - 1, 100 do
		local t = {}
		for k = i, math.min(i + 99, ARGV[4] - 1) do t[#t + 1] = string.format(ARGV[2], k) end
		redis.call(ARGV[1], KEYS[1], unpack(t))
	end
	return 1`)
	for from := 0; from < n; from += 20_000 {
		require.NoError(c.t, script.Run(c.t.Context(), c.redis, []string{c.key(key)}, command, format, from, min(from+20_000, n)).Err())
	}
}

// unique makes q a unique queue of c.n jobs.
func (c crowded) unique() {
	c.t.Helper()
	for _, key := range []string{"queue:q", "queue:q:uniqueue", "queue:q:start_at"} {
		command, format := "RPUSH", `{"class":"A","args":[%d]}`
		if strings.HasSuffix(key, "uniqueue") {
			command = "SADD"
		} else if strings.HasSuffix(key, "start_at") {
			format = "1700000000"
		}
		c.fill(command, key, format, c.n)
	}
}

// command is one that a script has carried out.
type command []string

// number is an argument of it, by the word in front of it.
func (c command) number(word string) (int, bool) {
	i := slices.Index(c, word)
	if i < 0 || i+1 >= len(c) {
		return 0, false
	}
	n, err := strconv.Atoi(c[i+1])
	return n, err == nil
}

var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// cpu returns the time (s) of its processor that the server has used, and for how many scripts.
func (c crowded) cpu() (seconds float64, scripts int) {
	c.t.Helper()
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(c.redis.Info(c.t.Context(), "cpu").Val(), -1) {
		part, err := strconv.ParseFloat(m[1], 64)
		require.NoError(c.t, err)
		seconds += part
	}
	scripts, _ = commandStat(c.t, c.redis, "evalsha")
	return seconds, scripts
}

// watch returns the commands that scripts carry out meanwhile. It logs how long they take, to
// which a busy machine adds, so that nothing depends on it.
func (c crowded) watch(do func()) (out []command) {
	c.t.Helper()
	ctx := c.t.Context()
	seconds, scripts := c.cpu()
	monitor, err := net.Dial("unix", c.server.Socket)
	require.NoError(c.t, err)
	defer func() { _ = monitor.Close() }()
	_, err = monitor.Write([]byte("MONITOR\r\n"))
	require.NoError(c.t, err)
	lines := bufio.NewReader(monitor)
	line, err := lines.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, "+OK\r\n", line)
	done := make(chan []command)
	go func() {
		var seen []command
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, `"the end of it"`) {
				done <- seen
				return
			}
			if !strings.Contains(line, " lua] ") {
				continue
			}
			var words command
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				words = append(words, m[1])
			}
			words[0] = strings.ToUpper(words[0])
			seen = append(seen, words)
		}
	}()
	do()
	require.NoError(c.t, c.redis.Echo(ctx, "the end of it").Err())
	out = <-done
	after, all := c.cpu()
	c.t.Logf("%d scripts, %.1f ms of the server's processor in all", all-scripts, 1000*(after-seconds))
	return out
}

// looked is how many elements the commands look at when they look for something.
func looked(t *testing.T, all []command) (elements int) {
	t.Helper()
	for _, c := range all {
		switch c[0] {
		case "LPOS":
			most, ok := c.number("MAXLEN")
			require.True(t, ok, "without a bound: %v", c)
			elements += most
		case "LRANGE":
			from, _ := strconv.Atoi(c[2])
			to, _ := strconv.Atoi(c[3])
			require.Equal(t, from < 0, to < 0, "without a bound: %v", c)
			elements += to - from + 1
		case "SMEMBERS", "HGETALL", "HKEYS", "HVALS", "LINSERT":
			require.NotContains(t, c[1], "persistent_schedules")
			elements++
		}
	}
	return elements
}

// Jobs that come back to a long unique queue, deep in which equal ones wait, are looked for
// no further than a script may look. None is lost, and a repair drops the second ones.
func TestEqualJobsInALongQueue(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	c.unique()
	const due = 100 // as many as a call moves
	middle := c.n / 2
	for i := range due {
		payload := job("A", fmt.Sprintf("[%d]", middle+i))
		member := redis.Z{Score: 1, Member: fmt.Sprintf("later:x#%d 1u q%s", i, payload)}
		require.NoError(t, c.redis.ZAdd(t.Context(), c.key("resqued:delayed"), member).Err())
	}
	work := c.watch(func() {
		moved, err := c.MoveDue(t.Context(), "", func(string) bool { return true })
		require.NoError(t, err)
		require.Equal(t, due, moved.Moved+moved.Dropped)
		require.Empty(t, moved.Wrong)
	})
	require.Less(t, looked(t, work), 2*50_000+due*300)
	require.Less(t, len(work), 20*due)
	require.EqualValues(t, c.n+due, c.redis.LLen(t.Context(), c.key("queue:q")).Val(), "nothing is dropped on the word of the set")

	report, err := c.RepairUnique(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, due, report.Duplicates)
	c.inStep("q")
	require.True(t, slices.Equal(numbered(0, c.n), c.list("queue:q")), "the second ones were dropped")
}

// The commands of a repair are two for a job and two for a duplicate, besides the pages that it
// reads. It looks for nothing.
func TestRepairAtSize(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	c.unique()
	for _, i := range []int{5, c.n / 2, c.n / 2, c.n/2 + 1, c.n - 1} {
		c.redis.RPush(t.Context(), c.key("queue:q"), job("A", fmt.Sprintf("[%d]", i)))
	}
	work := c.watch(func() {
		report, err := c.RepairUnique(t.Context(), "q")
		require.NoError(t, err)
		require.EqualValues(t, 5, report.Duplicates)
	})
	require.Less(t, len(work), c.n+c.n/100+100)
	for _, w := range work {
		require.NotContains(t, []string{"LPOS", "LINSERT"}, w[0])
	}
	c.inStep("q")
	require.True(t, slices.Equal(numbered(0, c.n), c.list("queue:q")))
}

// Free jobs behind locked ones leave a long queue from its nearer end, together and in order.
func TestFreeBehindLockedAtSize(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]int{"few locked ones": 100, "very many locked ones": 30_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := crowd(t)
			free := c.n - locks
			c.push("q", job("L", "[0]"))
			require.Len(t, c.reserve(1, "q"), 1)
			c.fill("RPUSH", "queue:q", `{"class":"L","args":[0]}`, locks)
			// Somebody has looked at all of them.
			c.redis.HSet(t.Context(), c.key("locket:queue_lock_counters"), "q", locks)
			c.redis.Set(t.Context(), c.key("resqued:seen:q"), fmt.Sprintf("%d %d %[1]d 1", locks, time.Now().UnixMilli()), time.Minute)
			c.redis.SAdd(t.Context(), c.key("resqued:blocked:q"), c.key("locket:job_locks:L[0]"))
			c.fill("RPUSH", "queue:q", `{"class":"A","args":[%d]}`, free)

			var jobs []store.Reserved
			calls := 0
			work := c.watch(func() {
				for len(jobs) < 100 && calls < 2000 {
					jobs = append(jobs, c.exchange(store.ExchangeRequest{Wants: c.wants(50), Queues: locked("q")}).Jobs...)
					calls++
				}
			})
			for i, j := range jobs {
				require.Equal(t, job("A", fmt.Sprintf("[%d]", i)), string(j.Payload))
			}
			require.Len(t, jobs, 100)
			var removals []command
			for _, w := range work {
				if w[0] == "LREM" {
					removals = append(removals, w)
				}
			}
			if locks == 100 {
				require.Equal(t, 2, calls)
				require.Len(t, removals, calls)
				for _, w := range removals {
					require.Equal(t, "50", w[2], "from the head")
				}
			} else {
				require.Empty(t, removals, "they are far from both ends")
				require.Less(t, calls, locks/64+10)
			}
			require.EqualValues(t, c.n-100, c.redis.LLen(t.Context(), c.key("queue:q")).Val())
			var left []string
			for _, payload := range c.list("queue:q") {
				if payload != job("L", "[0]") {
					left = append(left, payload)
				}
			}
			require.True(t, slices.Equal(numbered(100, free), left), "the rest is as it was")
		})
	}
}

// A schedule looks for its jobs once, however many of its ticks are seen to.
func TestTicksLookOnce(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	c.fill("RPUSH", "queue:q", `{"class":"A","args":[%d]}`, c.n)
	for _, mode := range []string{"queue", "unique", "skip"} {
		s := &schedule{fixture: c.fixture, req: store.TickRequest{
			Name: "nightly-" + mode, Queue: "q", Payload: []byte(job("Report", strconv.Quote(mode))), Jobs: 100, IfRunning: mode,
			Tick: time.Now().Add(-time.Second).Truncate(time.Second), Print: "f-f",
		}}
		var reply store.TickReply
		work := c.watch(func() { reply = s.next() })
		require.Equal(t, 100, reply.Enqueued+reply.Skipped)
		if mode == "queue" {
			require.Equal(t, 100, reply.Enqueued)
		} else {
			require.Equal(t, 1, reply.Enqueued)
		}
		require.LessOrEqual(t, looked(t, work), 200_010)
		require.LessOrEqual(t, len(work), 300)
	}
}

// A job deep in a long queue keeps a schedule from adding another one.
func TestTicksLookDeep(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	deep := "[40000]"
	if !redistest.Knows(t, "LPOS") {
		deep = "[900]" // as docs/cron.md has it
	}
	c.fill("RPUSH", "queue:q", `{"class":"A","args":[%d]}`, 100_000)
	for _, mode := range []string{"unique", "skip"} {
		s := &schedule{fixture: c.fixture, req: store.TickRequest{
			Name: "nightly-" + mode, Queue: "q", Payload: []byte(job("A", deep)), Jobs: 1, IfRunning: mode,
			Tick: time.Now().Add(-time.Second).Truncate(time.Second), Print: "f-f",
		}}
		reply := s.next()
		require.Equal(t, 1, reply.Skipped, mode)
		require.Zero(t, reply.Enqueued, mode)
	}
}

// Very many records, schedules and processes that are none are read a part at a time.
func TestJunkAtSize(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	junk := c.n / 2
	c.fillHash("resqued:inflight:p1", junk)
	c.push("q", job("A", "[1]"))
	require.Len(t, c.reserve(1, "q"), 1)
	c.fillHash("persistent_schedules", junk)
	c.fillHash("resqued:longjob:locks", junk)

	work := c.watch(func() {
		held, bad, err := c.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.Len(t, bad, junk)
	})
	require.Less(t, looked(t, work), 10)

	var first, second store.SchedulesReply
	work = c.watch(func() {
		var err error
		first, err = c.Schedules(t.Context(), store.SchedulesRequest{Stored: true})
		require.NoError(t, err)
		require.Len(t, first.Stored, junk)
		second, err = c.Schedules(t.Context(), store.SchedulesRequest{Stored: true, Digest: first.Digest})
		require.NoError(t, err)
		require.Nil(t, second.Stored, "they are as known")
	})
	require.Less(t, looked(t, work), 10)

	work = c.watch(func() {
		_, err := longstore.New(c.Redis()).Forget(t.Context(), 100)
		require.NoError(t, err)
	})
	require.Less(t, looked(t, work), 10)
	require.Less(t, c.redis.HLen(t.Context(), c.key("resqued:longjob:locks")).Val(), int64(junk))
}

// fillHash gives a hash n fields.
func (c crowded) fillHash(key string, n int) {
	c.t.Helper()
	for from := 0; from < n; from += 10_000 {
		var fields []any
		for i := from; i < min(from+10_000, n); i++ {
			fields = append(fields, fmt.Sprintf("junk%d", i), "{}")
		}
		require.NoError(c.t, c.redis.HSet(c.t.Context(), c.key(key), fields...).Err())
	}
}

// Processes with unreadable records do not hide one that has died since.
func TestUnreadableRecordsHideNobody(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.beat("p1")
		var junk []redis.Z
		for i := range 500 {
			junk = append(junk, redis.Z{Member: fmt.Sprintf("junk%d", i), Score: cmp.Or(float64(-i%2), 0)})
		}
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:procs"), junk...).Err())
		f.register("late")
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Member: "late", Score: 1}).Err())
		procs, _, err := f.Orphans(t.Context())
		require.NoError(t, err)
		require.Contains(t, procs, "late")
		require.LessOrEqual(t, len(procs), 150)
		// A fenced process that was not recovered is found eventually.
		_, _, err = f.Fence(t.Context(), "late", true)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			procs, _, err := f.Orphans(t.Context())
			return err == nil && slices.Contains(procs, "late")
		}, 30*time.Second, time.Millisecond)
	})
}

// Jobs that wait for one second with very many others are removed a few at a time where they
// stand deep among them.
func TestUndelayAtSize(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	at := nextCentury.Unix()
	list := "delayed:" + strconv.FormatInt(at, 10)
	c.fill("RPUSH", list, `{"class":"A","args":[%d],"queue":"q"}`, c.n)
	require.NoError(t, c.redis.ZAdd(t.Context(), c.key("delayed_queue_schedule"), redis.Z{Score: float64(at), Member: at}).Err())
	jobs, _ := c.next(c.n)
	require.Len(t, jobs, c.n)
	for name, some := range map[string][]store.DelayedJob{"the last ones": jobs[c.n-100:], "the first ones": jobs[:100]} {
		length := c.redis.LLen(t.Context(), c.key(list)).Val()
		var marks string
		work := c.watch(func() { marks = c.undelay(false, some...) })
		require.Equal(t, strings.Repeat("r", 100), marks, name)
		require.Equal(t, length-100, c.redis.LLen(t.Context(), c.key(list)).Val())
		for _, w := range work {
			if w[0] == "LPOS" {
				most, ok := w.number("MAXLEN")
				require.True(t, ok && most <= 1000, w)
			}
		}
	}
}

// Very many queues and workers are listed by pages: no answer holds all their names, and no
// counter is read of a queue that is not listed.
func TestListsAtSize(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	ctx, n := t.Context(), c.n/20
	c.fill("SADD", "queues", "q%06d", n)
	c.fill("SADD", "workers", "ruby:%d:*", n)
	c.push("q000007", job("A", "[1]"), job("A", "[2]"))
	last := fmt.Sprintf("q%06d", n-1)
	require.NoError(t, c.redis.HSet(ctx, c.key("locket:queue_lock_counters"), last, 3, "gone", 4).Err())
	require.NoError(t, c.redis.HSet(ctx, c.key("resqued:lined"), last, 5).Err())
	require.NoError(t, c.redis.RPush(ctx, c.key("resqued:suspects:"+last), "{}").Err())
	_, _, err := c.Pause(ctx, last, store.PauseOptions{})
	require.NoError(t, err)
	require.NoError(t, c.redis.ConfigResetStat(ctx).Err())

	queues, err := c.QueueList(ctx)
	require.NoError(t, err)
	require.Equal(t, n, len(queues))
	require.True(t, slices.IsSortedFunc(queues, func(a, b store.QueueInfo) int { return cmp.Compare(a.Name, b.Name) }))
	require.Equal(t, store.QueueInfo{Name: "q000007", Size: 2}, queues[7])
	require.Equal(t, store.QueueInfo{
		Name: last, Size: 5, Lined: 5, Suspects: 1, Bounces: 8, Paused: true, Pauses: []*store.Pause{{Key: "pause:queue:" + last}},
	}, queues[n-1])
	workers, err := c.WorkerList(ctx)
	require.NoError(t, err)
	require.Equal(t, n+2, len(workers), "and those of p1")

	for _, all := range []string{"smembers", "hgetall"} {
		calls, _ := commandStat(t, c.redis, all)
		require.Zero(t, calls, all)
	}
	for command, most := range map[string]int{"sscan": 2 * (n/500 + 2), "hmget": 4 * (n/1000 + 1)} {
		calls, _ := commandStat(t, c.redis, command)
		require.LessOrEqual(t, calls, most, command)
		require.Positive(t, calls, command)
	}
}

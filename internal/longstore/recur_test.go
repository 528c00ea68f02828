package longstore_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

const minute = int64(60_000)

// fatal is a test, or one example of a property.
type fatal interface {
	require.TestingT
	Helper()
	Fatalf(format string, args ...any)
}

// recurring is a recurring long job with a clock of its own.
type recurring struct {
	t       *testing.T
	redis   *redis.Client
	url     string
	store   *store.Store
	long    *longstore.Store
	defects []storetest.Mutant
	ns      string
	now     int64 // ms

	every, interval int64 // ms
	backlog         int
	subjects        map[string]int64   // name → interval, ms
	starts          map[string][]int64 // of each subject, ms, as seen
	next            int
}

func newRecurring(t *testing.T, defects ...storetest.Mutant) *recurring {
	t.Helper()
	server := redistest.Shared(t)
	r := &recurring{
		t: t, defects: defects, redis: server.Client(t), url: server.URL(), ns: redistest.Namespace(t), now: 1_700_000_000_000, every: 5 * minute, interval: 1440 * minute, backlog: 1 << 20,
		subjects: map[string]int64{}, starts: map[string][]int64{},
	}
	r.store = r.open()
	r.long = longstore.New(r.store.Redis())
	r.advance(0)
	return r
}

// open returns a store whose scripts go by the clock of the test.
func (r *recurring) open() *store.Store {
	r.t.Helper()
	s, err := store.Open(store.Options{URL: r.url, Namespace: r.ns})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, s.Close()) })
	require.NoError(r.t, storetest.Alter(s.Redis(), "base", `call('TIME')`, fmt.Sprintf(`{call('GET', '%s:clock'), 0}`, r.ns)))
	for _, d := range r.defects {
		require.NoError(r.t, storetest.Alter(s.Redis(), d[1], d[2:]...))
	}
	return s
}

// findsDefects requires that a property fails with each of some defects.
func findsDefects(t *testing.T, mutants []storetest.Mutant, property func(t *testing.T, c *rapid.T, defects ...storetest.Mutant)) {
	t.Helper()
	defects := storetest.Defects{Mutants: mutants, Shortcuts: longShortcuts, Prepare: func(t *testing.T, m storetest.Mutant) func(*rapid.T) {
		t.Helper()
		return func(c *rapid.T) { property(t, c, m) }
	}}
	defects.Find(t)
}

func (r *recurring) advance(ms int64) {
	r.t.Helper()
	r.now += ms
	require.NoError(r.t, r.redis.Set(r.t.Context(), r.ns+":clock", fmt.Sprintf("%d.%03d", r.now/1000, r.now%1000), 0).Err())
}

func (r *recurring) run(name string) longstore.NewRun {
	r.next++
	return longstore.NewRun{UUID: strconv.Itoa(r.next), Kind: name, Class: "R", Args: []byte(`["` + name + `"]`), Queue: "q"}
}

func (r *recurring) recurrence() longstore.Recurrence {
	job := longstore.Recurrence{
		Class: "R", Every: time.Duration(r.every) * time.Millisecond, Interval: time.Duration(r.interval) * time.Millisecond, Backlog: r.backlog,
	}
	for name, interval := range r.subjects {
		job.Subjects = append(job.Subjects, longstore.Subject{Run: r.run(name), Interval: time.Duration(interval) * time.Millisecond})
	}
	return job
}

// tick is one of the job; it returns the subjects that it has started.
func (r *recurring) tick(t fatal) (longstore.RecurReply, []string) {
	t.Helper()
	before := r.active(t)
	reply, err := r.long.Recur(r.t.Context(), r.recurrence())
	require.NoError(t, err)
	var started []string
	for id, name := range r.active(t) {
		if before[id] == "" {
			started = append(started, name)
			r.starts[name] = append(r.starts[name], r.now)
		}
	}
	require.Len(t, started, reply.Started)
	return reply, started
}

// active returns the runs that wait or run, and wants one at most of each subject.
func (r *recurring) active(t fatal) map[string]string {
	t.Helper()
	runs, seen := map[string]string{}, map[string]bool{}
	require.NoError(t, r.long.Runs(r.t.Context(), func(run longstore.Record) bool {
		if status := run.Fields["status"]; status == "queued" || status == "running" {
			name := run.Fields["kind"]
			if seen[name] {
				t.Fatalf("two runs of %s", name)
			}
			seen[name] = true
			runs[run.UUID] = name
		}
		return true
	}))
	return runs
}

func (r *recurring) end(t fatal, uuid string) {
	t.Helper()
	require.NoError(t, r.long.Cancel(r.t.Context(), uuid, 0))
	_, err := r.long.Forget(r.t.Context(), 1000)
	require.NoError(t, err)
}

func (r *recurring) endAll(t fatal) {
	t.Helper()
	for id := range r.active(t) {
		r.end(t, id)
	}
}

func (r *recurring) add(n int) {
	for range n {
		r.next++
		r.subjects[fmt.Sprintf("s%d", r.next)] = r.interval
	}
}

// rate is how many runs an interval has room for in a time.
func (r *recurring) rate(ms int64) float64 {
	sum := 0.0
	for _, interval := range r.subjects {
		sum += float64(ms) / float64(interval)
	}
	return sum
}

func TestRecurring(t *testing.T) {
	t.Parallel()
	t.Run("many new subjects are spread over the interval", func(t *testing.T) {
		t.Parallel()
		r := newRecurring(t)
		r.add(10_000)
		reply, _ := r.tick(t)
		require.Equal(t, longstore.RecurReply{Started: 34, Waiting: 9966}, reply)
		require.EqualValues(t, 10_000, r.redis.HLen(t.Context(), r.ns+":resqued:longjob:subjects:R").Val())
	})

	t.Run("each has its turn once in an interval, for days", func(t *testing.T) {
		t.Parallel()
		r := newRecurring(t)
		r.interval = 100 * r.every
		r.add(250)
		total := 0
		for range 350 {
			_, started := r.tick(t)
			require.LessOrEqual(t, len(started), 3)
			total += len(started)
			r.endAll(t)
			r.advance(r.every + rand.Int64N(2000) - 1000)
		}
		require.InDelta(t, 875, total, 25)
		require.Len(t, r.starts, 250)
		for name, starts := range r.starts {
			require.Less(t, starts[0], r.now-249*r.every, name)
			for i := 1; i < len(starts); i++ {
				require.InDelta(t, r.interval, starts[i]-starts[i-1], float64(r.every), name)
			}
		}
	})

	t.Run("a few are spread, too, and one comes in between", func(t *testing.T) {
		t.Parallel()
		r := newRecurring(t)
		r.add(12)
		for range 288 {
			r.tick(t)
			r.endAll(t)
			r.advance(r.every)
		}
		require.Len(t, r.starts, 12)
		hours := map[int64]int{}
		for _, starts := range r.starts {
			hours[(starts[0]-1_700_000_000_000)/(120*minute)]++
		}
		require.Len(t, hours, 12, "one every two hours: %v", hours)
		r.subjects["late"] = r.interval
		for range 300 {
			r.tick(t)
			r.endAll(t)
			r.advance(r.every)
		}
		require.NotEmpty(t, r.starts["late"])
		for name, starts := range r.starts {
			for i := 1; i < len(starts); i++ {
				require.InDelta(t, r.interval, starts[i]-starts[i-1], float64(r.every), name)
			}
		}
	})

	t.Run("a run by hand counts, and one that runs is let be", func(t *testing.T) {
		t.Parallel()
		r := newRecurring(t)
		// Before the job is known at all.
		before := r.run("early")
		_, err := r.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{before})
		require.NoError(t, err)
		r.end(t, before.UUID)
		early := r.run("early")
		_, err = r.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{early})
		require.NoError(t, err)
		r.subjects["early"], r.subjects["a"] = r.interval, r.interval
		_, started := r.tick(t)
		require.Equal(t, []string{"a"}, started)
		r.advance(r.interval / 2)
		r.endAll(t)
		_, err = r.long.AddRuns(t.Context(), longstore.Unique, []longstore.NewRun{r.run("a")})
		require.NoError(t, err)
		r.advance(r.interval / 2)
		_, started = r.tick(t)
		require.Equal(t, []string{"early"}, started)
		r.advance(r.interval)
		_, started = r.tick(t)
		require.Empty(t, started, "both run still")
		r.endAll(t)
		r.advance(r.every)
		reply, _ := r.tick(t)
		require.Equal(t, 1, reply.Started)
		r.advance(r.every)
		reply, _ = r.tick(t)
		require.Equal(t, 1, reply.Started)
	})

	t.Run("paused, resumed, removed", func(t *testing.T) {
		t.Parallel()
		r := newRecurring(t)
		r.add(10)
		require.NoError(t, r.long.PauseRecur(t.Context(), "R", true))
		reply, _ := r.tick(t)
		require.Zero(t, reply.Started)
		require.NoError(t, r.long.PauseRecur(t.Context(), "R", false))
		r.advance(r.every)
		reply, _ = r.tick(t)
		require.Equal(t, 1, reply.Started)
		reply, _ = r.tick(t)
		require.Zero(t, reply.Started, "it is too early")
		all, err := r.long.Recurring(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.EqualValues(t, 1, all[0].Active)
		require.EqualValues(t, 9, all[0].Number("waiting"))
		require.NoError(t, r.long.RemoveRecur(t.Context(), "R"))
		require.Empty(t, r.redis.Keys(t.Context(), r.ns+":resqued:longjob:[rs][euts][cbar][ujr][re]*:R").Val())
		all, err = r.long.Recurring(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
	})

	t.Run("what is in the way is found before anything is written", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"resqued:longjob:starts:R", "resqued:longjob:recurring", "queue:q"} {
			r := newRecurring(t)
			r.add(3)
			require.NoError(t, r.redis.Set(t.Context(), r.ns+":"+key, "x", 0).Err())
			_, err := r.long.Recur(t.Context(), r.recurrence())
			require.ErrorContains(t, err, "TYPE", key)
			require.Empty(t, r.redis.Keys(t.Context(), r.ns+":resqued:longjob:re*:*").Val(), key)
		}
	})
}

// Three workers see to ticks at once: together they start what one would.
func TestRecurringTicksRace(t *testing.T) {
	t.Parallel()
	r := newRecurring(t)
	r.interval, r.backlog = 10*r.every, 60
	r.add(500)
	stores := []*store.Store{r.open(), r.open(), r.open()}
	total := 0
	for range 12 {
		jobs := []longstore.Recurrence{r.recurrence(), r.recurrence(), r.recurrence()}
		var all sync.WaitGroup
		for i, s := range stores {
			all.Go(func() {
				_, err := longstore.New(s.Redis()).Recur(t.Context(), jobs[i])
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		active := r.active(t)
		require.Len(t, active, 50)
		total += len(active)
		for _, name := range active {
			r.starts[name] = append(r.starts[name], r.now)
		}
		r.endAll(t)
		r.advance(r.every)
	}
	require.Equal(t, 600, total)
	require.Len(t, r.starts, 500, "all had their turn before any had its second")
}

// Whatever happens, no tick starts more than belong to it, no more wait or run than may, no
// subject is passed over for one that has waited less, and no room is left while any is due.
func TestRecurringProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(c *rapid.T) { recurs(t, c) })
}

// recurringDefects each break one promise of recurring long jobs.
var recurringDefects = []storetest.Mutant{
	{"a tick starts more than belong to it", "recur", `left, credit, active_ = left - 1,`, `left, credit, active_ = left,`},
	{"what has piled up starts at once", "recur", `passed = math.min(passed, most)`, ``},
	{"less time counts than has passed", "recur", `passed = math.min(passed, most)`, `passed = math.min(passed, every)`},
	{"more wait or run than may", "recur", `or active_ >= backlog then`, `then`},
	{"those that have ended count", "recur", `if begins and not active(`, `if false and not active(`},
	{"one that runs is started again", "recur", `elseif old and active(`, `elseif old and not active(`},
	{"the last start is not remembered", "longjob_runs", `if ofsubject(prefix, id, class, kind) then`, `if ofsubject(prefix, id, class, kind) and false then`},
	{"new ones that have waited for an interval need credit", "recur", `local fresh = n < 0 and ms < interval - n`, `local fresh = n < 0`},
	{"subjects that are no more are remembered", "subjects", `call('HDEL', KEYS[1], ARGV[i])`, ``},
}

func TestRecurringFindsDefects(t *testing.T) {
	t.Parallel()
	findsDefects(t, recurringDefects, recurs)
}

func recurs(t *testing.T, c *rapid.T, defects ...storetest.Mutant) {
	t.Helper()
	r := newRecurring(t, defects...)
	r.interval = r.every * rapid.Int64Range(3, 40).Draw(c, "ticks in an interval")
	r.backlog = rapid.SampledFrom([]int{3, 10, 1000}).Draw(c, "backlog")
	intervals := []int64{r.interval}
	if rapid.Bool().Draw(c, "own intervals") {
		intervals = append(intervals, 2*r.interval, 7*r.interval)
	}
	known := map[string]int64{} // since when a subject is known, or its last start
	fresh := map[string]bool{}
	last := int64(0)
	for range rapid.IntRange(5, 25).Draw(c, "ticks") {
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 5, 30}).Draw(c, "added") {
			r.next++
			r.subjects[fmt.Sprintf("s%d", r.next)] = rapid.SampledFrom(intervals).Draw(c, "interval")
		}
		for _, name := range slices.Sorted(maps.Keys(r.subjects)) {
			if len(r.subjects) > 3 && rapid.IntRange(0, 200).Draw(c, "removed") == 0 {
				delete(r.subjects, name)
				delete(known, name)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(r.active(c))) {
			if rapid.IntRange(0, 3).Draw(c, "ends") > 0 {
				r.end(c, id)
			}
		}
		before := r.active(c)
		running := map[string]bool{}
		for _, name := range before {
			running[name] = true
		}
		for name := range r.subjects {
			if known[name] == 0 {
				known[name], fresh[name] = r.now, true
				if running[name] { // it was removed, and has come back
					fresh[name] = false
				}
			}
		}
		reply, started := r.tick(c)
		require.EqualValues(c, len(r.subjects), r.redis.HLen(t.Context(), r.ns+":resqued:longjob:subjects:R").Val())
		passed := r.every
		if last != 0 {
			passed = min(r.now-last, max(2*r.every, r.interval/20))
		}
		room := int(math.Ceil(r.rate(passed) - 1e-6))
		require.LessOrEqual(c, len(started), room)
		require.LessOrEqual(c, len(started), max(0, r.backlog-len(before)))
		longest := int64(math.MinInt64) // the least urgent that was started
		for _, name := range started {
			longest = max(longest, known[name]+r.subjects[name])
			require.False(c, running[name])
		}
		isStarted := map[string]bool{}
		for _, name := range started {
			isStarted[name] = true
		}
		due := 0
		for name, interval := range r.subjects {
			at := known[name] + interval
			if isStarted[name] || running[name] || fresh[name] && r.now < at || at > r.now+r.every/2 {
				continue
			}
			due++
			if len(started) > 0 {
				require.GreaterOrEqual(c, at, longest, "%s has waited longer", name)
			}
		}
		if due > 0 {
			require.True(c, len(started) == room || len(started)+len(before) >= r.backlog, "%d due, %d started, room for %d", due, len(started), room)
		}
		require.GreaterOrEqual(c, reply.Waiting, due)
		for _, name := range started {
			known[name], fresh[name] = r.now, false
		}
		last = r.now
		if rapid.IntRange(0, 30).Draw(c, "standstill") == 0 {
			r.advance(r.every * rapid.Int64Range(2, 100).Draw(c, "for"))
		} else {
			r.advance(r.every + rapid.Int64Range(-1000, 1000).Draw(c, "jitter"))
		}
	}
}

package store_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// asRuby adds delayed items as resque-scheduler does.
func (f *fixture) asRuby(at int64, items ...string) {
	f.t.Helper()
	ctx, list := f.t.Context(), "delayed:"+strconv.FormatInt(at, 10)
	for _, item := range items {
		require.NoError(f.t, f.redis.RPush(ctx, f.key(list), item).Err())
		require.NoError(f.t, f.redis.SAdd(ctx, f.key("timestamps:"+item), list).Err())
		require.NoError(f.t, f.redis.ZAdd(ctx, f.key("delayed_queue_schedule"), redis.Z{Score: float64(at), Member: at}).Err())
	}
}

// delayed adds a member of resqued:delayed.
func (f *fixture) delayed(at time.Time, id, queue, payload string) {
	f.t.Helper()
	member := id + " " + strconv.Itoa(len(queue)) + " " + queue + payload
	require.NoError(f.t, f.redis.ZAdd(f.t.Context(), f.key("resqued:delayed"), redis.Z{Score: float64(at.UnixMilli()), Member: member}).Err())
}

func (f *fixture) due(unique ...string) store.Due {
	f.t.Helper()
	due, err := f.MoveDue(f.t.Context(), "", func(queue string) bool { return slices.Contains(unique, queue) })
	require.NoError(f.t, err)
	return due
}

func rubyItem(class, args, queue string) string {
	return `{"class":"` + class + `","args":` + args + `,"queue":"` + queue + `"}`
}

func TestDue(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("what Ruby has delayed goes to its queue, and nothing is left", func(t *testing.T) {
			f := setup(t, server)
			before := f.keys()
			f.asRuby(1000, rubyItem("A", "[1]", "q"), rubyItem("A", "[2]", "q"), rubyItem("A", "[1]", "q"))
			f.asRuby(1001, rubyItem("A", "[3]", "r"))
			require.Equal(t, store.Due{Moved: 4}, f.due())
			require.Equal(t, []string{job("A", "[1]"), job("A", "[2]"), job("A", "[1]")}, f.list("queue:q"))
			require.Equal(t, []string{job("A", "[3]")}, f.list("queue:r"))
			require.ElementsMatch(t, append(before, f.key("queues"), f.key("queue:q"), f.key("queue:r")), f.keys())
			require.ElementsMatch(t, []string{"q", "r"}, f.redis.SMembers(t.Context(), f.key("queues")).Val())
		})
		t.Run("the queue is taken out of an item, the rest stays byte for byte", func(t *testing.T) {
			for _, c := range []struct{ item, queue, payload string }{
				{rubyItem("A", `[1.0,"]}",{"queue":"no"}]`, "q"), "q", `{"class":"A","args":[1.0,"]}",{"queue":"no"}]}`},
				{`{"class":"A","queue":"q","args":[1]}`, "q", `{"class":"A","args":[1]}`}, // node-resque
				{`{"queue":"q","class":"A","args":[ 1 ]}`, "q", `{"class":"A","args":[ 1 ]}`},
				{`{ "queue" : "q" , "class" : "A" } `, "q", `{ "class" : "A" } `},
				{`{"class": "A", "args": [], "queue": "q" }`, "q", `{"class": "A", "args": [] }`},
				{`{"class":"A","args":[],"queue":"q","track_id":7}`, "q", `{"class":"A","args":[],"track_id":7}`},
				{`{"class":"A","x":{"queue":"no"},"qu\u0065ue":"\u0071\/\"","args":[]}`, `q/"`, `{"class":"A","x":{"queue":"no"},"args":[]}`},
				{`{"class":"A","args":[],"queue":"größe"}`, "größe", job("A", "[]")},
				{`{"queue":"q"}`, "q", `{}`},
			} {
				f := setup(t, server)
				f.asRuby(1000, c.item)
				require.Equal(t, store.Due{Moved: 1}, f.due(), c.item)
				require.Equal(t, []string{c.payload}, f.list("queue:"+c.queue), c.item)
				require.NotContains(t, f.keys(), f.key("timestamps:"+c.item))
			}
		})
		t.Run("what waits where only we know comes back as it was", func(t *testing.T) {
			f := setup(t, server)
			for i, payload := range delicate {
				f.delayed(time.Unix(1000, int64(i)*1e6), fmt.Sprintf("later:x#%d", i), "q q", payload)
			}
			require.Equal(t, store.Due{Moved: len(delicate)}, f.due())
			require.Equal(t, delicate, f.list("queue:q q"))
			require.Empty(t, f.waiting())
		})
		t.Run("nothing moves before its time, and the next time is told", func(t *testing.T) {
			f := setup(t, server)
			require.Equal(t, store.Due{}, f.due())
			now := f.redis.Time(t.Context()).Val()
			f.asRuby(now.Unix()+1000, rubyItem("A", "[1]", "q"))
			due := f.due()
			require.Zero(t, due.Moved)
			require.InDelta(t, 1000, due.Next.Seconds(), 10)
			f.delayed(now.Add(500*time.Second), "later:x#1", "q", job("A", "[2]"))
			require.InDelta(t, 500, f.due().Next.Seconds(), 10)
			f.asRuby(1000, rubyItem("A", "[3]", "q"))
			due = f.due()
			require.Equal(t, 1, due.Moved)
			require.InDelta(t, 500, due.Next.Seconds(), 10)
		})
		t.Run("a list that others have emptied is forgotten", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("delayed_queue_schedule"), redis.Z{Score: 1000, Member: 1000}).Err())
			require.Equal(t, store.Due{}, f.due())
			require.NotContains(t, f.keys(), f.key("delayed_queue_schedule"))
		})
		t.Run("many are moved a part at a time, large ones fewer", func(t *testing.T) {
			f := setup(t, server)
			for i := range 1234 {
				f.delayed(time.Unix(1000, 0), fmt.Sprintf("p#%d", i), "q", job("A", fmt.Sprintf("[%d]", i)))
				f.redis.RPush(t.Context(), f.key("delayed:1000"), rubyItem("B", fmt.Sprintf("[%d]", i), "q"))
			}
			f.asRuby(1000, rubyItem("B", "[1234]", "q"))
			calls := 0
			for due := (store.Due{More: true}); due.More; calls++ {
				due = f.due()
				require.LessOrEqual(t, due.Moved, 100)
			}
			require.Equal(t, 25, calls)
			require.Len(t, f.list("queue:q"), 2*1234+1)
			require.NotContains(t, f.keys(), f.key("delayed_queue_schedule"))
			big := rubyItem("B", `["`+strings.Repeat("x", 300_000)+`"]`, "big")
			f.asRuby(1000, slices.Repeat([]string{big}, 20)...)
			due := f.due()
			require.True(t, due.More)
			require.Less(t, due.Moved, 20)
		})
		t.Run("each is moved once, whoever moves them", func(t *testing.T) {
			f := setup(t, server)
			var want []string
			for i := range 3000 {
				f.redis.RPush(t.Context(), f.key(fmt.Sprintf("delayed:%d", 1000+i/400)), rubyItem("A", fmt.Sprintf("[%d]", i), "q"))
				want = append(want, job("A", fmt.Sprintf("[%d]", i)))
			}
			for i := range 8 {
				f.redis.ZAdd(t.Context(), f.key("delayed_queue_schedule"), redis.Z{Score: float64(1000 + i), Member: 1000 + i})
			}
			var forwarders sync.WaitGroup
			for range 4 {
				forwarders.Go(func() {
					for more := true; more; {
						due, err := f.MoveDue(t.Context(), "", nil)
						if err != nil {
							t.Error(err)
							return
						}
						more = due.More
					}
				})
			}
			forwarders.Wait()
			require.ElementsMatch(t, want, f.list("queue:q"))
		})
	})
}

func TestDueToUniqueQueues(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.pushUnique("u", job("A", "[1]"))
		f.asRuby(1000, rubyItem("A", "[1]", "u"), rubyItem("A", "[2]", "u"), rubyItem("A", "[2]", "u"), rubyItem("A", "[2]", "q"), rubyItem("A", "[2]", "q"))
		f.asRuby(1000, rubyItem("A", "[5]", "v"), rubyItem("A", "[5]", "v"))
		f.delayed(time.Unix(1000, 0), "p#1", "v", job("A", "[5]"))
		require.Equal(t, store.Due{Moved: 8, Dropped: 4}, f.due("u", "v"))
		require.Equal(t, []string{job("A", "[1]"), job("A", "[2]")}, f.list("queue:u"))
		require.Equal(t, []string{job("A", "[5]")}, f.list("queue:v"))
		require.Equal(t, []string{job("A", "[2]"), job("A", "[2]")}, f.list("queue:q"))
		f.inStep("u")
		f.inStep("v")
		require.NotContains(t, f.keys(), f.key("queue:q:uniqueue"))

		// A caller that does not know that it is unique leaves it in step, and drops nothing.
		for _, last := range []string{"[9]", "[1]"} {
			f.inStep("u")
			f.asRuby(1000, rubyItem("A", last, "u"))
			due, err := f.MoveDue(t.Context(), "", nil)
			require.NoError(t, err)
			require.Equal(t, store.Due{Moved: 1}, due)
		}
		require.Equal(t, []string{job("A", "[1]"), job("A", "[2]"), job("A", "[9]"), job("A", "[1]")}, f.list("queue:u"))
	})
}

func TestDueWithKeysInTheWay(t *testing.T) {
	t.Parallel()
	good := rubyItem("A", "[9]", "good")
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("a queue that is not a list holds up no others", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("queue:bad"), "x", 0).Err())
			f.asRuby(1000, rubyItem("A", "[1]", "bad"), `{"class":"A","queue":"bad","args":[2]}`, good)
			f.asRuby(1001, rubyItem("A", "[3]", "bad"), rubyItem("A", "[3]", "bad"))
			f.delayed(time.Unix(1000, 0), "p#1", "bad", job("A", "[4]"))
			due := f.due()
			require.Equal(t, 1, due.Moved)
			require.Equal(t, []string{f.key("queue:bad")}, due.Wrong)
			require.InDelta(t, 5, due.Next.Seconds(), 1)
			require.Equal(t, []string{job("A", "[9]")}, f.list("queue:good"))
			waiting := func(args string) string { return "3 bad" + job("A", args) }
			require.ElementsMatch(t, []string{waiting("[1]"), waiting("[2]"), waiting("[3]"), waiting("[3]"), waiting("[4]")}, f.waiting())
			// When the key is gone they come.
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:bad")).Err())
			for _, m := range f.redis.ZRange(t.Context(), f.key("resqued:delayed"), 0, -1).Val() {
				require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:delayed"), redis.Z{Score: 1, Member: m}).Err())
			}
			require.Equal(t, store.Due{Moved: 5}, f.due())
		})
		for key, reported := range map[string]bool{"delayed:1000": true, "resqued:delayed": true, "timestamps:" + good: false, "queues": false} {
			t.Run("other keys: "+key, func(t *testing.T) {
				f := setup(t, server)
				f.asRuby(1001, good)
				require.NoError(t, f.redis.Del(t.Context(), f.key(key)).Err())
				require.NoError(t, f.redis.Set(t.Context(), f.key(key), "x", 0).Err())
				require.NoError(t, f.redis.ZAdd(t.Context(), f.key("delayed_queue_schedule"), redis.Z{Score: 1000, Member: 1000}).Err())
				due := f.due()
				require.Equal(t, 1, due.Moved)
				require.Equal(t, reported, slices.Contains(due.Wrong, f.key(key)))
				require.Equal(t, []string{job("A", "[9]")}, f.list("queue:good"))
			})
		}
		t.Run("a schedule that is none", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("delayed_queue_schedule"), "x", 0).Err())
			f.delayed(time.Unix(1000, 0), "p#1", "q", job("A", "[4]"))
			require.Equal(t, store.Due{Moved: 1, Wrong: []string{f.key("delayed_queue_schedule")}}, f.due())
		})
		t.Run("neither a place to wait in nor the queue", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("queue:bad"), "x", 0).Err())
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:delayed"), "x", 0).Err())
			f.asRuby(1000, rubyItem("A", "[1]", "bad"), good)
			require.Equal(t, 1, f.due().Moved)
			require.Equal(t, []string{rubyItem("A", "[1]", "bad")}, f.list("delayed:1000"))
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:bad")).Err())
			require.Equal(t, 1, f.due().Moved)
		})
	})
}

func TestDueMalformed(t *testing.T) {
	t.Parallel()
	bad := []string{
		"", "garbage \xff\x00", "[]", "7", "{}", `{"class":"A","args":[1]}`, `{"class":"A","args":[1],"queue":""}`, `{"class":"A","args":[1],"queue":null}`,
		`{"class":"A","args":[1],"queue":7}`, `{"class":"A","args":[1],"queue":["q"]}`, `{"class":"A","args":[1],"queue":"q"`, `{"class":"A","args":[1],"queue":"q`,
		`{"class":"A","args":[1,"queue":"q"}`, `{"class":"A","args":[1],"queue":"q"} x`, `{"class":"A","x":{"queue":"q"}}`, `{"class":"A","args":[1],"queue":"q:start_at"}`, `{"queue":"q:uniqueue","class":"A","args":[1]}`, `{"queue":"q",}`, `{"class" "queue":"q"}`,
	}
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.asRuby(1000, bad...)
		f.asRuby(1000, rubyItem("A", "[9]", "good"))
		f.asRuby(1001, rubyItem("A", "[10]", "good"))
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:delayed"), redis.Z{Score: 1, Member: "nonsense"}).Err())
		unique := fmt.Sprintf("later:x#1 %du %s%s", len("q:uniqueue"), "q:uniqueue", job("A", "[1]"))
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:delayed"), redis.Z{Score: 1, Member: unique}).Err())
		due := f.due()
		require.Equal(t, 2, due.Moved, "others are not held up")
		require.Equal(t, []string{job("A", "[9]"), job("A", "[10]")}, f.list("queue:good"))
		var items []string
		for _, m := range due.Malformed {
			items = append(items, string(m.Item))
		}
		require.ElementsMatch(t, append([]string{"nonsense", unique}, bad...), items)
		require.ElementsMatch(t, bad, f.list("delayed:1000"), "they stay until they are filed")

		record := func(item []byte, _ string) store.FiledFailure { return store.Record(append([]byte("F"), item...)) }
		n, err := f.FailMalformed(t.Context(), due.Malformed, false, record)
		require.NoError(t, err)
		require.Equal(t, len(bad)+2, n)
		n, err = f.FailMalformed(t.Context(), due.Malformed, false, record)
		require.NoError(t, err)
		require.Zero(t, n, "each once")
		require.Len(t, f.list("failed"), len(bad)+2)
		require.Equal(t, store.Due{}, f.due())
		for _, key := range f.keys() {
			require.NotContains(t, key, "delayed")
			require.NotContains(t, key, "timestamps")
		}
	})
}

// A scheduler of Ruby's watches a list, reads it and moves it in a transaction: where the
// jobs were moved meanwhile, the transaction comes to nothing.
func TestDueBesideARubyScheduler(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	one := rubyItem("A", "[1]", "q")
	f.asRuby(1000, one)
	err := f.redis.Watch(t.Context(), func(tx *redis.Tx) error {
		if _, err := tx.LRange(t.Context(), f.key("delayed:1000"), 0, 99).Result(); err != nil {
			return err
		}
		require.Equal(t, 1, f.due().Moved)
		_, err := tx.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
			pipe.SRem(t.Context(), f.key("timestamps:"+one), "delayed:1000")
			pipe.SAdd(t.Context(), f.key("queues"), "q")
			pipe.RPush(t.Context(), f.key("queue:q"), job("A", "[1]"))
			pipe.LTrim(t.Context(), f.key("delayed:1000"), 100, -1)
			return nil
		})
		return err
	}, f.key("delayed:1000"))
	require.ErrorIs(t, err, redis.TxFailedErr)
	require.Equal(t, []string{job("A", "[1]")}, f.list("queue:q"))
}

func TestDueOnAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.asRuby(1000, rubyItem("A", "[1]", "q"), rubyItem("A", "[1]", "u"))
	f.delayed(time.Unix(1000, 0), "p#1", "q", job("A", "[4]"))
	f.delayed(time.Unix(1, 0), "p#2", "bad", job("A", "[5]"))
	require.NoError(t, f.redis.Set(t.Context(), f.key("queue:bad"), "x", 0).Err())
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Equal(t, 3, f.due("u").Moved)
	replies := f.EnqueueLater(t.Context(), []store.LaterJob{{Queue: "q", Payload: []byte(job("A", "[1]")), At: nextCentury}})
	require.True(t, rdb.Unexecuted(replies[0].Err), "%v", replies[0].Err)
	require.Len(t, f.list("queue:q"), 2)
}

// dueTimes returns when the jobs are due that wait.
func (f *fixture) dueTimes(t *testing.T) (due []time.Time, err error) {
	t.Helper()
	for j, err := range f.DelayedJobs(t.Context()) {
		if err != nil {
			return nil, err
		}
		due = append(due, j.Due)
	}
	return due, nil
}

// Times that are not times of people, such as those of a program that has taken ms for
// seconds: nothing is moved, nothing overflows, and pages can show them.
func TestDueInAges(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, at := range []float64{1.7672256e12, 9e15, 1e17, 1e300, math.Inf(1)} {
			f := setup(t, server)
			list := strconv.FormatFloat(at, 'f', -1, 64)
			require.NoError(t, f.redis.RPush(t.Context(), f.key("delayed:"+list), rubyItem("A", "[1]", "q")).Err())
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("delayed_queue_schedule"), redis.Z{Score: at, Member: list}).Err())
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:delayed"), redis.Z{Score: at * 1000, Member: "x#1 1 q" + job("A", "[2]")}).Err())
			due := f.due()
			require.Zero(t, due.Moved)
			require.False(t, due.More)
			require.True(t, due.Next == 0 || due.Next >= time.Hour, "%v: next in %s", at, due.Next)
			times, err := f.dueTimes(t)
			require.NoError(t, err)
			require.Len(t, times, 2)
			for _, due := range times {
				require.Equal(t, 9999, due.UTC().Year())
				_, err := json.Marshal(due.UTC())
				require.NoError(t, err)
			}
		}
	})
}

// TestDueTurns: while one caller has many jobs to move, the others leave the server alone; none waits for a
// caller that has died, or for a key that no caller has written.
func TestDueTurns(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		const jobs = 350
		many := func(t *testing.T) *fixture {
			f := setup(t, server)
			for i := range jobs {
				f.delayed(time.UnixMilli(int64(i+1)), fmt.Sprintf("later:%d#1", i), "q", job("A", fmt.Sprintf("[%d]", i)))
			}
			return f
		}
		var began time.Time // the last call that may have taken a turn
		move := func(f *fixture, caller string) store.Due {
			f.t.Helper()
			if caller == "one" {
				began = time.Now()
			}
			due, err := f.MoveDue(f.t.Context(), caller, nil)
			require.NoError(f.t, err)
			return due
		}
		rest := func(f *fixture, due store.Due) {
			f.t.Helper()
			if time.Since(began) > 400*time.Millisecond {
				f.t.Skip("the machine stood still for as long as a turn lasts")
			}
			require.Zero(f.t, due.Moved)
			require.False(f.t, due.More)
			require.LessOrEqual(f.t, due.Next, 500*time.Millisecond)
			require.Positive(f.t, due.Next)
		}
		t.Run("one goes on, and the last call ends its turn", func(t *testing.T) {
			f := many(t)
			moved := 0
			for due := (store.Due{More: true}); due.More; {
				due = move(f, "one")
				moved += due.Moved
				require.LessOrEqual(t, due.Moved, 100)
				if due.More {
					rest(f, move(f, "other"))
				}
			}
			require.Equal(t, jobs, moved)
			require.Len(t, f.list("queue:q"), jobs)
			require.False(t, f.exists("resqued:mover"))
			f.delayed(time.UnixMilli(1), "later:x#1", "q", job("A", "[]"))
			require.Equal(t, store.Due{Moved: 1}, move(f, "other"))
			require.False(t, f.exists("resqued:mover"), "few need no turn")
		})
		t.Run("one without a name moves in any case, and takes no turn", func(t *testing.T) {
			f := many(t)
			require.Positive(t, move(f, "").Moved)
			require.False(t, f.exists("resqued:mover"))
			require.Positive(t, move(f, "one").Moved)
			require.Positive(t, move(f, "").Moved)
			rest(f, move(f, "other"))
		})
		t.Run("a helper moves some between turns", func(t *testing.T) {
			f := many(t)
			due := move(f, store.Helper)
			require.Equal(t, 100, due.Moved)
			require.True(t, due.More)
			require.False(t, f.exists("resqued:mover"), "what it leaves is not a forwarder's yet")
			require.Equal(t, 100, move(f, "one").Moved)
			rest(f, move(f, store.Helper))
			require.Equal(t, 100, move(f, "one").Moved)
		})
		t.Run("a turn ends by itself", func(t *testing.T) {
			f := many(t)
			require.True(t, move(f, "one").More)
			left := f.redis.PTTL(t.Context(), f.key("resqued:mover")).Val()
			require.Positive(t, left)
			require.LessOrEqual(t, left, 500*time.Millisecond)
			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:mover")).Err())
			require.Positive(t, move(f, "other").Moved)
		})
		t.Run("keys that are no turn", func(t *testing.T) {
			f := many(t)
			f.put("resqued:mover", "one")
			require.Positive(t, move(f, "other").Moved, "for ever")
			f.put("resqued:mover", "one", time.Hour)
			require.Positive(t, move(f, "other").Moved, "for an hour")
			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:mover")).Err())
			require.NoError(t, f.redis.RPush(t.Context(), f.key("resqued:mover"), "x").Err())
			require.Positive(t, move(f, "other").Moved, "a list")
		})
	})
}

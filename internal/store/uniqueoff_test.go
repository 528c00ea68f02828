package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// moves are the ways in which a job gets into queue q from elsewhere, for a caller for whom the
// queue is not unique.
var moves = []struct {
	name string
	do   func(f *fixture, payload string)
}{
	{"due, of Ruby's", func(f *fixture, payload string) {
		f.asRuby(1000, payload[:len(payload)-1]+`,"queue":"q"}`)
		require.Equal(f.t, store.Due{Moved: 1}, f.due())
	}},
	{"due", func(f *fixture, payload string) {
		f.delayed(time.Unix(1000, 0), redistest.Unique()+"#1", "q", payload)
		require.Equal(f.t, store.Due{Moved: 1}, f.due())
	}},
	{"due, enqueued by one for whom the queue is unique", func(f *fixture, payload string) {
		member := redistest.Unique() + "#1 1u q" + payload
		require.NoError(f.t, f.redis.ZAdd(f.t.Context(), f.key("resqued:delayed"), redis.Z{Score: 1000, Member: member}).Err())
		due, err := f.MoveDue(f.t.Context(), "", nil)
		require.NoError(f.t, err)
		require.Equal(f.t, store.Due{Moved: 1}, due)
	}},
	{"pushed before its time", func(f *fixture, payload string) {
		f.later(store.LaterJob{Queue: "q", Payload: []byte(payload), At: nextCentury})
		jobs, _ := f.next(1)
		require.Equal(f.t, "r", f.undelay(true, jobs...))
	}},
	{"retried", func(f *fixture, payload string) {
		f.fail("record")
		edit := func([]byte) store.FailedEdit {
			return store.FailedEdit{Remove: true, Queue: "q", Payload: []byte(payload)}
		}
		require.Equal(f.t, []toldEdit{{"record", store.FailedDone}}, f.edit(all(f.t, f.Store), true, edit))
	}},
}

// companions are the numbers of members and of times of queue q.
func (f *fixture) companions() (members, times int) {
	return len(f.members("q")), len(f.list("queue:q:start_at"))
}

// TestUniqueTurnedOff: what is left of a queue that was unique once keeps no job from it, and
// does not grow.
func TestUniqueTurnedOff(t *testing.T) {
	t.Parallel()
	plain := store.Queue{Name: "q"}
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, m := range moves {
			t.Run(m.name, func(t *testing.T) {
				f := setup(t, server)
				three := []string{job("A", "[0]"), job("A", "[1]"), job("A", "[2]")}
				f.pushUnique("q", three...)
				m.do(f, three[1]) // while the keys match still
				require.Equal(t, append(three, three[1]), f.list("queue:q"))
				m.do(f, three[1])
				require.Len(t, f.want(9, store.TakeSuspects, plain).Jobs, 5)
				for i := range 20 {
					m.do(f, job("A", fmt.Sprintf("[%d]", i%7)))
					m.do(f, job("A", fmt.Sprintf("[%d]", i%5)))
					require.Len(t, f.want(2, store.TakeSuspects, plain).Jobs, 2)
				}
				members, times := f.companions()
				require.LessOrEqual(t, members, 3)
				require.LessOrEqual(t, times, 3)
			})
			t.Run(m.name+", into a queue that others keep unique", func(t *testing.T) {
				f := setup(t, server)
				f.pushUnique("q", job("A", "[0]"))
				m.do(f, job("A", "[1]"))
				require.Len(t, f.list("queue:q"), 2)
				f.inStep("q")
			})
			t.Run(m.name+", beside keys of another type", func(t *testing.T) {
				f := setup(t, server)
				f.put("queue:q:uniqueue", "text")
				m.do(f, job("A", "[1]"))
				require.Len(t, f.list("queue:q"), 1)
			})
		}
		t.Run("slices of long jobs", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", job("A", "[0]"))
			require.Len(t, f.want(9, store.TakeSuspects, plain).Jobs, 1)
			for i := range 20 {
				id := fmt.Sprint(i)
				_, err := longstore.New(f.Redis()).AddRuns(t.Context(), longstore.Always, []longstore.NewRun{{UUID: id, Kind: id, Class: "L", Args: []byte("[]"), Queue: "q"}})
				require.NoError(t, err)
				require.Len(t, f.want(9, store.TakeSuspects, plain).Jobs, 1)
			}
			members, times := f.companions()
			require.LessOrEqual(t, members, 1)
			require.LessOrEqual(t, times, 1)
		})
	})
}

// TestUniqueTurnedOn: a queue that was unique, was not for a while, and is again, is repaired;
// jobs that are there twice only are dropped.
func TestUniqueTurnedOn(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for name, leave := range map[string]func(f *fixture){
			"keys left":        func(*fixture) {},
			"keys removed":     func(f *fixture) { require.NoError(f.t, f.ForgetUnique(f.t.Context(), "q")) },
			"lengths that fit": func(f *fixture) { f.redis.LTrim(f.t.Context(), f.key("queue:q"), 0, 2) },
		} {
			t.Run(name, func(t *testing.T) {
				f := setup(t, server)
				f.pushUnique("q", job("A", "[0]"), job("A", "[1]"), job("A", "[2]"))
				require.Len(t, f.want(2, store.TakeSuspects, store.Queue{Name: "q"}).Jobs, 2)
				f.push("q", job("A", "[0]"), job("A", "[3]"), job("A", "[3]"))
				leave(f)
				waits := f.list("queue:q")
				if name == "lengths that fit" {
					require.Equal(t, []bool{false, true}, f.pushUnique("q", job("A", "[0]"), job("A", "[4]")).Pushed)
				}
				_, err := f.RepairUnique(t.Context(), "q")
				require.NoError(t, err)
				f.inStep("q")
				require.Subset(t, f.list("queue:q"), waits)
				require.Equal(t, []bool{false, true}, f.pushUnique("q", job("A", "[0]"), job("A", "[1]")).Pushed)
				var got []string
				for jobs := f.reserveUnique(1); len(jobs) > 0; jobs = f.reserveUnique(1) {
					got = append(got, payloads(jobs)...)
				}
				require.Subset(t, got, waits)
				require.False(t, f.exists("queue:q:uniqueue"))
				require.False(t, f.exists("queue:q:start_at"))
			})
		}
	})
}

func (f *fixture) reserveUnique(n int) []store.Reserved {
	f.t.Helper()
	return f.want(n, store.TakeSuspects, store.Queue{Name: "q", Unique: true}).Jobs
}

// TestUniqueLeftovers: what is left of unique queues is removed where nothing waits any more,
// and elsewhere by request.
func TestUniqueLeftovers(t *testing.T) {
	t.Parallel()
	none := func(string) bool { return false }
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("of empty queues", func(t *testing.T) {
			f := setup(t, server)
			for _, queue := range []string{"q", "kept", "busy"} {
				f.pushUnique(queue, job("A", "[0]"), job("A", "[1]"))
				f.redis.LPop(t.Context(), f.key("queue:"+queue))
			}
			f.redis.Del(t.Context(), f.key("queue:q"), f.key("queue:kept"))
			queues, next, err := f.DropLeftovers(t.Context(), func(queue string) bool { return queue == "kept" }, 0)
			require.NoError(t, err)
			require.Equal(t, []string{"q"}, queues)
			require.Zero(t, next)
			require.False(t, f.exists("queue:q:uniqueue"))
			require.False(t, f.exists("queue:q:start_at"))
			for _, queue := range []string{"kept", "busy"} {
				require.True(t, f.exists("queue:"+queue+":uniqueue"), queue)
				require.True(t, f.exists("queue:"+queue+":start_at"), queue)
			}
		})
		t.Run("of many queues a part at a time", func(t *testing.T) {
			f := setup(t, server)
			for i := range 3000 {
				require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), fmt.Sprint(i)).Err())
			}
			f.redis.SAdd(t.Context(), f.key("queue:2345:uniqueue"), "x")
			looks := 0
			for cursor := uint64(0); looks == 0 || cursor != 0; looks++ {
				var err error
				_, cursor, err = f.DropLeftovers(t.Context(), none, cursor)
				require.NoError(t, err)
			}
			require.False(t, f.exists("queue:2345:uniqueue"))
		})
		t.Run("of a queue in which jobs wait", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", job("A", "[0]"), job("A", "[1]"))
			f.push("q", job("A", "[0]"))
			waits := f.list("queue:q")
			require.NoError(t, f.ForgetUnique(t.Context(), "q"))
			require.Equal(t, waits, f.list("queue:q"))
			require.False(t, f.exists("queue:q:uniqueue"))
			require.False(t, f.exists("queue:q:start_at"))
		})
	})
}

// TestUniqueInPartOfAFleet: during a deploy one daemon knows that a queue is unique and another
// does not. Whatever they do, no job is lost: what is dropped has an equal one that waits.
func TestUniqueInPartOfAFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		f := &fixture{t: t, ns: redistest.Namespace(t), redis: client}
		var err error
		f.Store, err = store.Open(store.Options{URL: server.URL(), Namespace: f.ns, Lease: time.Hour})
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		f.register("p1")
		// owed are the jobs that were acknowledged and did not run: of equal ones one at least.
		owed := map[string]bool{}
		queue := func() store.Queue {
			return store.Queue{Name: "q", Unique: rapid.Bool().Draw(rt, "unique there")}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				payload := job("A", fmt.Sprintf("[%d]", rapid.IntRange(0, 4).Draw(rt, "job")))
				if queue().Unique {
					f.pushUnique("q", payload) // if it is a duplicate, an equal one waits
				} else {
					f.push("q", payload)
				}
				owed[payload] = true
			},
			"due": func(rt *rapid.T) {
				payload := job("A", fmt.Sprintf("[%d]", rapid.IntRange(0, 4).Draw(rt, "job")))
				f.asRuby(1000, payload[:len(payload)-1]+`,"queue":"q"}`)
				unique := queue().Unique
				due, err := f.MoveDue(t.Context(), "", func(string) bool { return unique })
				require.NoError(rt, err)
				require.True(rt, unique || due.Dropped == 0)
				owed[payload] = true
			},
			"take": func(*rapid.T) {
				for _, j := range f.want(1, store.TakeSuspects, queue()).Jobs {
					if !slices.Contains(f.list("queue:q"), string(j.Payload)) {
						delete(owed, string(j.Payload))
					}
					f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(j)}})
				}
			},
			"sweep": func(*rapid.T) {
				_, _, err := f.DropLeftovers(t.Context(), func(string) bool { return false }, 0)
				require.NoError(rt, err)
			},
			"": func(rt *rapid.T) {
				waits := f.list("queue:q")
				for payload := range owed {
					require.Contains(rt, waits, payload)
				}
				members, _ := f.companions()
				require.LessOrEqual(rt, members, 5, "no more than there are payloads")
			},
		})
	})
}

package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// The end of a job that cannot be written where it belongs is parked, and goes there when
// that is repaired.
func TestParkedEnds(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, c := range []struct {
			name, key string
			end       store.Completion
			there     func(f *fixture) []string
		}{
			{
				"a failure", "failed",
				store.Completion{Kind: store.Failed, Failure: store.Record([]byte(`{"a":1}`))},
				func(f *fixture) []string { return f.list("failed") },
			},
			{
				"a failure with a large payload", "failed",
				store.Completion{Kind: store.Failed, Failure: store.FiledFailure{Text: []byte(`{"p":,"b":1}`), Gap: 5, Reference: []byte("r")}},
				func(f *fixture) []string { return f.list("failed") },
			},
			{
				"a job that runs again", "queue:q",
				store.Completion{Kind: store.Requeued},
				func(f *fixture) []string { return f.list("queue:q") },
			},
			{
				"a job that was never started", "queue:q",
				store.Completion{Kind: store.Returned},
				func(f *fixture) []string { return f.list("queue:q") },
			},
			{
				"a retry whose count cannot be kept", "resque-retry:A",
				store.Completion{Kind: store.Retried, Count: &store.Count{Key: "resque-retry:A", Value: 2, Lifetime: time.Hour}},
				func(f *fixture) []string {
					if f.redis.Get(f.t.Context(), f.key("resque-retry:A")).Val() != "2" {
						return nil
					}
					return f.list("queue:q")
				},
			},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				f := setup(t, server)
				payload := job("A", "[1]")
				f.push("q", payload)
				held := f.reserve(1, "q")
				require.NoError(t, f.redis.HSet(t.Context(), f.key(c.key), "x", "y").Err())
				c.end.Job = &held[0]
				reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{c.end}})
				require.NotEmpty(t, reply.Stuck[0], "it may be repaired soon")
				require.Empty(t, reply.Parked)

				c.end.Park = true
				reply = f.exchange(store.ExchangeRequest{Completions: []store.Completion{c.end}})
				require.Equal(t, []bool{true}, reply.Applied)
				require.Empty(t, reply.Stuck)
				require.Contains(t, reply.Parked[0], f.key(c.key))
				require.False(t, f.exists("resqued:inflight:p1"))
				require.False(t, f.exists(held[0].LockKey))
				late := f.exchange(store.ExchangeRequest{Completions: []store.Completion{c.end}})
				require.Equal(t, []bool{false}, late.Applied)

				id := "p1#" + held[0].Token
				jobs, total, err := f.Parked(t.Context(), 10)
				require.NoError(t, err)
				require.EqualValues(t, 1, total)
				require.Equal(t, id, jobs[0].ID)
				require.Equal(t, "q", jobs[0].Queue)
				require.Contains(t, jobs[0].Reason, f.key(c.key))
				require.EqualValues(t, len(payload), jobs[0].Size)
				require.WithinDuration(t, time.Now(), jobs[0].At, time.Minute)
				kept, err := f.ParkedBytes(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, payload, string(kept))

				moved, err := f.Unpark(t.Context())
				require.NoError(t, err)
				require.Zero(t, moved)
				require.ErrorContains(t, f.Replace(t.Context(), id), f.key(c.key))
				require.NoError(t, f.redis.Del(t.Context(), f.key(c.key)).Err())
				moved, err = f.Unpark(t.Context())
				require.NoError(t, err)
				require.Zero(t, moved, "it is not its turn")
				require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:parking"), redis.Z{Score: 1, Member: id}).Err())
				moved, err = f.Unpark(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, moved)
				want := payload
				if c.end.Kind == store.Failed {
					want = strings.Replace(string(c.end.Failure.Text), `:,`, ":"+payload+",", 1)
				}
				require.Equal(t, []string{want}, c.there(f))
				for _, key := range []string{"resqued:parked", "resqued:parked:" + id, "resqued:parking"} {
					require.False(t, f.exists(key), key)
				}
				processed, failed, err := f.Stats(t.Context())
				require.NoError(t, err)
				n := int64(0)
				if c.end.Kind == store.Failed || c.end.Kind == store.Retried {
					n = 1
				}
				require.Equal(t, []int64{n, n}, []int64{processed, failed})
			})
		}

		t.Run("one that goes back unrun is the next of its line, and of all tenants", func(t *testing.T) {
			t.Parallel()
			for name, queues := range map[string][]store.Queue{"lines": lined("q"), "turns": fair(byArg, "q")} {
				for _, dead := range []bool{false, true} {
					f := setup(t, server)
					jobs := jobsOf("a", 0, 3)
					if name == "lines" {
						jobs = lockmates("A", 3)
					}
					f.push("q", jobs...)
					held := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: queues}).Jobs
					if len(f.list("queue:q")) > 0 { // a call that has taken what it wanted looks at no more
						require.Empty(t, f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: queues}).Jobs)
					}
					require.Empty(t, f.list("queue:q"))
					require.NoError(t, f.redis.Set(t.Context(), f.key("queue:q"), "x", 0).Err())
					if dead {
						_, _, err := f.Fence(t.Context(), "p1", true)
						require.NoError(t, err)
						require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue, Park: true}}))
						f.register("p1")
					} else {
						reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &held[0], Kind: store.Returned, Park: true}}})
						require.Len(t, reply.Parked, 1)
					}
					require.NoError(t, f.redis.Del(t.Context(), f.key("queue:q")).Err())
					moved, err := f.Unpark(t.Context())
					require.NoError(t, err)
					require.Equal(t, 1, moved)
					require.Equal(t, jobs, f.workAll(1, queues...), "%s, its process died: %v", name, dead)
					f.noTurns("q")
				}
			}
		})

		t.Run("jobs of a dead process are parked one by one", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			var verdicts []store.Verdict
			for i := range 250 {
				queue := "good"
				if i%50 == 0 {
					queue = "bad"
				}
				f.push(queue, job("A", fmt.Sprintf("[%d]", i)))
			}
			for _, j := range append(f.reserve(100, "good"), append(f.reserve(100, "good"), f.reserve(100, "good", "bad")...)...) {
				verdicts = append(verdicts, store.Verdict{Token: j.Token, Action: store.Requeue})
			}
			require.Len(t, verdicts, 250)
			require.NoError(t, f.redis.Set(t.Context(), f.key("queue:bad"), "x", 0).Err())
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.ErrorContains(t, f.Recover(t.Context(), "p1", verdicts), "5 records left")
			require.Len(t, f.list("queue:good"), 245, "those that cannot be moved hold up no others")
			for i := range verdicts {
				verdicts[i].Park = true
			}
			require.NoError(t, f.Recover(t.Context(), "p1", verdicts))
			require.False(t, f.exists("resqued:inflight:p1"))
			require.False(t, f.exists("resqued:proc:p1"))
			_, total, err := f.Parked(t.Context(), 0)
			require.NoError(t, err)
			require.EqualValues(t, 5, total)
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:bad")).Err())
			moved, err := f.Unpark(t.Context())
			require.NoError(t, err)
			require.Equal(t, 5, moved)
			require.Len(t, f.list("queue:bad"), 5)
		})

		t.Run("what somebody has removed is forgotten", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:parking"), redis.Z{Score: 1, Member: "p9#1"}).Err())
			moved, err := f.Unpark(t.Context())
			require.NoError(t, err)
			require.Zero(t, moved)
			require.False(t, f.exists("resqued:parking"))
			require.ErrorContains(t, f.Replace(t.Context(), "p9#1"), "nothing is parked under p9#1")
			gone, err := f.DropParked(t.Context(), "p9#1")
			require.NoError(t, err)
			require.False(t, gone)
		})
	})
}

// A payload that is too large for the record of its failure is kept apart, by the server,
// which has it. The record refers to it.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--proto-max-bulk-len", "1mb"}})
	payload := func(n int) string { return job("A", `["`+strings.Repeat("x", n)+`"]`) }
	record := func(reference string) store.FiledFailure {
		return store.FiledFailure{Text: []byte(`{"p":,"b":1}`), Gap: 5, Reference: []byte(`{"p":` + reference + `,"b":1}`)}
	}
	for _, c := range []struct {
		name  string
		bytes int
		kept  bool
	}{{"one that fits", 900_000, false}, {"one that does not", 1_040_000, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, recovered := range []bool{false, true} {
				f := setup(t, server)
				large := payload(c.bytes)
				f.push("q", large)
				held := f.reserve(1, "q")
				id := "p1#" + held[0].Token
				failure := record(`"` + id + `"`)
				if recovered {
					_, _, err := f.Fence(t.Context(), "p1", true)
					require.NoError(t, err)
					require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{
						{Token: held[0].Token, Action: store.Fail, Failure: failure, Payload: held[0].Payload},
					}))
					f.register("p1")
				} else {
					reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &held[0], Kind: store.Failed, Failure: failure}}})
					require.Equal(t, []bool{true}, reply.Applied)
				}
				require.False(t, f.exists("resqued:inflight:p1"))
				if !c.kept {
					require.Equal(t, []string{`{"p":` + large + `,"b":1}`}, f.list("failed"))
					require.False(t, f.exists("resqued:parked"))
					continue
				}
				require.Equal(t, []string{`{"p":"` + id + `","b":1}`}, f.list("failed"))
				kept, err := f.ParkedBytes(t.Context(), id)
				require.NoError(t, err)
				require.True(t, bytes.Equal([]byte(large), kept))
				moved, err := f.Unpark(t.Context())
				require.NoError(t, err)
				require.Zero(t, moved, "it waits for nothing")

				// Whoever takes the reference has the payload put in its place.
				f.push("q", `{"class":"R","args":["`+id+`"]}`, job("B", "[2]"))
				reference := f.reserve(1, "q")
				gone := store.Record([]byte("gone"))
				reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &reference[0], Kind: store.Restored, Parked: id, Failure: gone}}})
				require.Equal(t, []bool{true}, reply.Applied)
				require.Equal(t, []string{large, job("B", "[2]")}, f.list("queue:q"))
				require.False(t, f.exists("resqued:parked"))
				require.False(t, f.exists("resqued:parked:"+id))
				require.False(t, f.exists(reference[0].LockKey))
				require.Len(t, f.list("failed"), 1)

				f.reserve(2, "q")
				f.push("q", `{"class":"R","args":["`+id+`"]}`)
				reference = f.reserve(1, "q")
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &reference[0], Kind: store.Restored, Parked: id, Failure: gone}}})
				require.Equal(t, "gone", f.list("failed")[1])
			}
		})
	}

	t.Run("it does not join the line for the lock of its reference", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		large := payload(1_040_000)
		f.push("q", large)
		held := f.turn(1, nil, "q")
		id := "p1#" + held[0].Token
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &held[0], Kind: store.Failed, Failure: record(`"` + id + `"`)}}})
		reference := `{"class":"R","args":["` + id + `"]}`
		f.push("q", reference, reference)
		held = f.turn(2, nil, "q")
		require.Equal(t, []string{reference}, payloads(held))
		require.Empty(t, f.list("queue:q"))
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &held[0], Kind: store.Restored, Parked: id, Failure: store.Record([]byte("gone"))}}})
		require.Equal(t, []string{large}, f.list("queue:q"))
	})

	t.Run("one whose record has no place waits for it", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		large := payload(1_040_000)
		f.push("q", large)
		held := f.reserve(1, "q")
		id := "p1#" + held[0].Token
		require.NoError(t, f.redis.Set(t.Context(), f.key("failed"), "x", 0).Err())
		reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &held[0], Kind: store.Failed, Failure: record(`"` + id + `"`), Park: true}}})
		require.Len(t, reply.Parked, 1)
		require.NoError(t, f.redis.Del(t.Context(), f.key("failed")).Err())
		moved, err := f.Unpark(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, moved)
		require.Equal(t, []string{`{"p":"` + id + `","b":1}`}, f.list("failed"))
		require.False(t, f.exists("resqued:parking"))
		jobs, _, err := f.Parked(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, store.ParkedPayload, jobs[0].Kind)
		require.NoError(t, f.Replace(t.Context(), id))
		require.Equal(t, []string{large}, f.list("queue:q"))
		require.False(t, f.exists("resqued:parked"))
	})
}

package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestWalksWhileLinesFill: what waits during the whole call is met, though workers move it into lines
// meanwhile, of tenants or for locks.
func TestWalksWhileLinesFill(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		const jobs = 6000
		walks := map[string]func(f *fixture, look func(payload []byte) bool){
			"dequeue": func(f *fixture, look func([]byte) bool) {
				_, err := f.Dequeue(f.t.Context(), "q", look, nil)
				require.NoError(f.t, err)
			},
			"scan": func(f *fixture, look func([]byte) bool) {
				require.NoError(f.t, f.ScanQueue(f.t.Context(), "q", func(_ int64, payload []byte, _ string) bool {
					look(payload)
					return true
				}))
			},
			"move": func(f *fixture, look func([]byte) bool) {
				_, err := f.MoveJobs(f.t.Context(), store.MoveRequest{From: "q", To: "other", Pick: func(p []byte) (string, bool) { return "", look(p) }})
				require.NoError(f.t, err)
			},
			"move to the head": func(f *fixture, look func([]byte) bool) {
				_, err := f.MoveJobs(f.t.Context(), store.MoveRequest{From: "q", To: "other", Head: true, Pick: func(p []byte) (string, bool) { return "", look(p) }})
				require.NoError(f.t, err)
			},
			"transfer": func(f *fixture, look func([]byte) bool) {
				other := setup(f.t, server)
				_, err := f.Transfer(f.t.Context(), other.Store, store.TransferRequest{Queue: "q", Where: "b", Limit: jobs, Pick: look})
				require.NoError(f.t, err)
			},
		}
		for name, walk := range walks {
			for each, queues := range map[int][]store.Queue{101: fair(byArg, "q"), 3: lined("q")} {
				t.Run(fmt.Sprint(name, ", ", each), func(t *testing.T) {
					t.Parallel()
					f := setup(t, server)
					payloads := make([]string, jobs)
					for i := range payloads {
						payloads[i] = fmt.Sprintf(`{"class":"A","args":["%d"],"n":%d,"want":%d}`, i%each, i, i/each%2)
					}
					f.push("q", payloads...)
					looks, seen := 0, map[string]bool{}
					gone := map[string]bool{}
					walk(f, func(payload []byte) bool {
						if looks++; looks%150 == 0 {
							for _, j := range f.fairly(1, nil, queues...) {
								gone[string(j.Payload)] = true
							}
						}
						seen[string(payload)] = true
						return payload[len(payload)-2] == '1'
					})
					if name == "scan" {
						for _, p := range payloads {
							require.True(t, seen[p] || gone[p], p)
						}
						return
					}
					require.NoError(t, f.ScanQueue(t.Context(), "q", func(_ int64, payload []byte, _ string) bool {
						require.NotEqual(t, byte('1'), payload[len(payload)-2], string(payload))
						return true
					}))
				})
			}
		}
	})
}

// TestWalkAmongEquals: equal jobs do not hide one among them while the head is taken from and others are pushed.
func TestWalkAmongEquals(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	same := []any{job("Same", "[1]"), job("Same", "[2]")}
	rapid.Check(t, func(t *rapid.T) {
		ctx, key := f.t.Context(), f.key("queue:q")
		storetest.Must(t, f.redis.Del(ctx, key).Err())
		var payloads []any
		for n := range rapid.IntRange(10, 150).Draw(t, "jobs") {
			which := rapid.IntRange(0, 1).Draw(t, "which")
			payloads = append(payloads, slices.Repeat(same[which:which+1], rapid.IntRange(0, 40).Draw(t, "equal jobs"))...)
			payloads = append(payloads, job("One", fmt.Sprintf("[%d]", n)))
		}
		storetest.Must(t, f.redis.RPush(ctx, key, payloads...).Err())
		seen, looks := map[string]bool{}, 0
		every, taken, pushed := rapid.IntRange(20, 400).Draw(t, "looks"), rapid.IntRange(1, 250).Draw(t, "taken"), rapid.IntRange(1, 20).Draw(t, "pushed")
		storetest.Must(t, f.ScanQueue(ctx, "q", func(_ int64, payload []byte, _ string) bool {
			seen[string(payload)] = true
			if looks++; looks%every == 0 && looks < 3*len(payloads) {
				f.redis.LPopCount(ctx, key, taken)
				storetest.Must(t, f.redis.RPush(ctx, key, slices.Repeat(same[:1], pushed)...).Err())
			}
			return true
		}))
		for _, payload := range f.list("queue:q") {
			if !seen[payload] {
				t.Fatalf("not seen: %s", payload)
			}
		}
	})
}

// TestUnline: jobs in lines go back to the head of their queue, in their order, and nothing of lines is left.
func TestUnline(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		all := lockmates("A", 1500)
		f.push("q", all...)
		held := f.turn(2, nil, "q")
		for len(f.list("queue:q")) > 0 {
			require.Empty(t, f.turn(2, nil, "q"))
		}
		f.push("q", job("B", "[1]"))
		lined, err := f.DropMaster(t.Context(), "m") // the last one
		require.NoError(t, err)
		require.EqualValues(t, 1499, lined)
		n, err := f.Unline(t.Context(), "q")
		require.NoError(t, err)
		require.EqualValues(t, 1499, n)
		require.Equal(t, append(all[1:], job("B", "[1]")), f.list("queue:q"))
		f.noLines("q")
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[0])}})

		// Jobs that wait for turns go behind jobs that wait for a lock.
		f.push("r", jobsOf("a", 0, 3)...)
		f.push("r", jobsOf("b", 0, 3)...)
		queues := fair(byArg, "r")
		f.fairly(1, nil, queues...)
		require.Empty(t, f.list("queue:r"))
		n, err = f.Unline(t.Context(), "r")
		require.NoError(t, err)
		require.EqualValues(t, 5, n)
		require.Equal(t, append(jobsOf("b", 0, 3), jobsOf("a", 1, 2)...), f.list("queue:r"))
		f.noTurns("r")
		require.Len(t, f.reserve(5, "r"), 5)
	})
}

// TestUnlineLargePayloads: references in lines are replaced by the payloads that only resqued would find, and a call moves no
// more than a few megabytes.
func TestUnlineLargePayloads(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	large := job("A", `["`+strings.Repeat("x", 3<<20)+`"]`)
	reference := func(id string) string {
		return job("Resqued::LargePayload", fmt.Sprintf(`[%q,%d,"sum","A"]`, id, len(large)))
	}
	f.put("resqued:parked:p1#7", large)
	require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:parked"), "p1#7", "1 l 1700000000000 - 0 1 0 0\nq").Err())
	f.push("q", slices.Repeat([]string{reference("p1#7"), reference("p1#8"), large}, 2)...)
	held := f.turn(3, nil, "q")
	require.Len(t, held, 3)
	f.turn(3, nil, "q") // they wait in lines
	for range 5 {
		f.push("q", large)
	}
	f.turn(1, nil, "q")
	require.Empty(t, f.list("queue:q"))
	n, err := f.Unline(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, 8, n)
	list := f.list("queue:q")
	require.Len(t, list, 8)
	require.Len(t, slices.DeleteFunc(slices.Clone(list), func(p string) bool { return p == large }), 1)
	require.Contains(t, list, reference("p1#8"), "nothing is kept for this one")
	require.False(t, f.exists("resqued:parked"))
	require.False(t, f.exists("resqued:parked:p1#7"))
	f.noLines("q")
}

// TestPausedLineBehindAnEmptyQueue: the fast path has not looked for pauses of queues that are expected to be empty.
func TestPausedLineBehindAnEmptyQueue(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	f.push("q", lockmates("A", 2)...)
	held := f.turn(2, nil, "q")
	require.Len(t, held, 1)
	require.Empty(t, f.list("queue:q"))
	require.NoError(t, f.redis.Set(t.Context(), f.key("pause:queue:q"), "true", 0).Err())
	reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: lined("q"), Empty: 1, Completions: []store.Completion{done(held[0])}})
	require.Empty(t, reply.Jobs)
}

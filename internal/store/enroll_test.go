package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// pruned is what Ruby's pruner records.
func pruned(worker, payload string) string {
	return fmt.Sprintf(`{"failed_at":"2026/11/20 09:56:21 UTC","payload":%s,"exception":"Resque::DirtyExit","error":"Job still being processed","backtrace":[],"worker":"%s","queue":"q"}`,
		payload, worker)
}

func TestEnroll(t *testing.T) {
	t.Parallel()
	const first, second = "h/0.0:1:q", "h/0.1:1:q"
	remove := func(f *fixture, ids ...string) {
		f.t.Helper()
		for _, id := range ids {
			require.NoError(f.t, f.redis.SRem(f.t.Context(), f.key("workers"), id).Err())
			require.NoError(f.t, f.redis.Del(f.t.Context(), f.key("worker:"+id+":started"), f.key("stat:processed:"+id)).Err())
		}
	}
	threads := func(token string) store.Enrollment {
		return store.Enrollment{Proc: "p1", Started: "then", Queues: []string{"q"}, Threads: []store.EnrolledThread{
			{WorkerStat: store.WorkerStat{Worker: first, Processed: 7}, Token: token},
			{WorkerStat: store.WorkerStat{Worker: second}},
		}}
	}
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("a beat tells of a worker that is missing, and it comes back", func(t *testing.T) {
			f := setup(t, server)
			look := store.BeatRequest{Proc: "p1", Look: []string{first, second}}
			reply, err := f.Beat(t.Context(), look)
			require.NoError(t, err)
			require.False(t, reply.Missing)
			remove(f, second)
			reply, err = f.Beat(t.Context(), look)
			require.NoError(t, err)
			require.True(t, reply.Missing)
			again, unfailed, err := f.Enroll(t.Context(), threads(""))
			require.NoError(t, err)
			require.Equal(t, []int{1}, again)
			require.Zero(t, unfailed)
			require.True(t, f.redis.SIsMember(t.Context(), f.key("workers"), second).Val())
			require.Equal(t, "then", f.redis.Get(t.Context(), f.key("worker:"+second+":started")).Val())
			require.False(t, f.exists("stat:processed:"+first), "it was not missing")
			again, _, err = f.Enroll(t.Context(), threads(""))
			require.NoError(t, err)
			require.Empty(t, again)
		})

		t.Run("what a pruner has recorded is taken back, and nothing else", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			r := f.reserve(1, "q")[0]
			remove(f, first, second)
			ours, theirs := pruned(first, job("A", "[1]")), pruned("other:1:q", job("A", "[1]"))
			kept := []any{
				theirs,
				strings.Replace(ours, "Job still being processed", "Job was killed", 1),
				strings.Replace(ours, `"backtrace":[]`, `"backtrace":["a"]`, 1),
				strings.Replace(ours, `"queue":"q"}`, `"queue":"q","retried_at":"2026/11/20"}`, 1),
				// The job that failed is about the same words.
				fmt.Sprintf(`{"failed_at":"x","payload":{"class":"A","args":[%s]},"exception":"E","error":"no","backtrace":[],"worker":"%s","queue":"q"}`, ours, first),
				"", "junk",
			}
			idle := strings.Replace(pruned(second, job("B", "[]")), `DirtyExit","error":"Job still being processed"`,
				`PruneDeadWorkerDirtyExit","error":"Worker x did not gracefully exit while processing B"`, 1)
			require.NoError(t, f.redis.RPush(t.Context(), f.key("failed"), append(append([]any{ours}, kept...), idle)...).Err())
			require.NoError(t, f.redis.RPush(t.Context(), f.key("q_failed"), ours, theirs).Err())
			again, unfailed, err := f.Enroll(t.Context(), threads(r.Token))
			require.NoError(t, err)
			require.Equal(t, []int{0, 1}, again)
			require.Equal(t, 3, unfailed)
			var left []any
			for _, text := range f.list("failed") {
				left = append(left, text)
			}
			require.Equal(t, kept, left)
			require.Equal(t, []string{theirs}, f.list("q_failed"))
			require.Equal(t, "7", f.redis.Get(t.Context(), f.key("stat:processed:"+first)).Val())
			require.False(t, f.exists("stat:processed:"+second))
		})

		t.Run("the failure of a job without a record stays: it is all there is of it", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			r := f.reserve(1, "q")[0]
			remove(f, first)
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:inflight:p1"), r.Token).Err())
			require.NoError(t, f.redis.RPush(t.Context(), f.key("failed"), pruned(first, job("A", "[1]"))).Err())
			_, unfailed, err := f.Enroll(t.Context(), threads(r.Token))
			require.NoError(t, err)
			require.Zero(t, unfailed)
			require.Len(t, f.list("failed"), 1)
		})

		t.Run("a process that was given up does not come back", func(t *testing.T) {
			f := setup(t, server)
			remove(f, first)
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			again, _, err := f.Enroll(t.Context(), threads(""))
			require.NoError(t, err)
			require.Empty(t, again)
			require.False(t, f.redis.SIsMember(t.Context(), f.key("workers"), first).Val())
		})

		t.Run("keys of another type hold nothing up", func(t *testing.T) {
			f := setup(t, server)
			remove(f, first)
			require.NoError(t, f.redis.Set(t.Context(), f.key("failed"), "x", 0).Err())
			again, unfailed, err := f.Enroll(t.Context(), threads(""))
			require.NoError(t, err)
			require.Equal(t, []int{0}, again)
			require.Zero(t, unfailed)
			require.NoError(t, f.redis.Del(t.Context(), f.key("workers")).Err())
			require.NoError(t, f.redis.Set(t.Context(), f.key("workers"), "x", 0).Err())
			reply, err := f.Beat(t.Context(), store.BeatRequest{Proc: "p1", Look: []string{first}})
			require.NoError(t, err)
			require.False(t, reply.Missing)
		})
	})
}

// The work is bounded by the newest thousand failures, or one megabyte of them.
func TestEnrollLooksAtTheNewestFailures(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	const id = "h/0.0:1:q"
	e := store.Enrollment{Proc: "p1", Started: "then", Threads: []store.EnrolledThread{{WorkerStat: store.WorkerStat{Worker: id}}}}
	for _, tt := range []struct {
		behind  int
		payload string
		want    int
	}{{999, "{}", 1}, {1000, "{}", 0}, {20, `"` + strings.Repeat("x", 100<<10) + `"`, 0}} {
		require.NoError(t, f.redis.Del(t.Context(), f.key("failed")).Err())
		records := []any{pruned(id, "{}")}
		for range tt.behind {
			records = append(records, pruned("other:1:q", tt.payload))
		}
		require.NoError(t, f.redis.RPush(t.Context(), f.key("failed"), records...).Err())
		require.NoError(t, f.redis.SRem(t.Context(), f.key("workers"), id).Err())
		_, unfailed, err := f.Enroll(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, tt.want, unfailed, tt.behind)
	}
}

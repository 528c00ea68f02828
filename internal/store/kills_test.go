package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func runOf(job store.Reserved) store.RunName { return store.RunName{Proc: "p1", Token: job.Token} }

func (f *fixture) kill(job store.Reserved, r store.KillRequest) {
	f.t.Helper()
	outcome, err := f.RequestKill(f.t.Context(), runOf(job), r)
	require.NoError(f.t, err)
	require.Equal(f.t, store.KillAsked, outcome)
}

func (f *fixture) killState(job store.Reserved) store.KillState {
	f.t.Helper()
	states, err := f.KillStates(f.t.Context(), []store.RunName{runOf(job)})
	require.NoError(f.t, err)
	require.Len(f.t, states, 1)
	return states[0]
}

func (f *fixture) kills() map[string]store.KillRequest {
	f.t.Helper()
	kills, err := f.Kills(f.t.Context(), "p1")
	require.NoError(f.t, err)
	return kills
}

func TestRequestsToKillAJob(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		one := func(t *testing.T) (*fixture, store.Reserved) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			return f, f.reserve(1, "q")[0]
		}

		t.Run("a request waits for the process, and the last one counts", func(t *testing.T) {
			f, j := one(t)
			require.Empty(t, f.kills())
			f.kill(j, store.KillRequest{Grace: time.Hour})
			f.kill(j, store.KillRequest{Grace: 1500 * time.Millisecond, Requeue: true})
			require.Equal(t, map[string]store.KillRequest{j.Token: {Grace: 1500 * time.Millisecond, Requeue: true}}, f.kills())
			require.Equal(t, store.KillState{Running: true}, f.killState(j))
			require.Greater(t, f.redis.PTTL(t.Context(), f.key("resqued:kills:p1")).Val(), time.Hour, "the longer one")
			require.NoError(t, f.DropKills(t.Context(), "p1", j.Token))
			require.Len(t, f.kills(), 1, "its job still runs")
		})

		t.Run("a job that has ended cannot be asked for, nor one whose process is recovered", func(t *testing.T) {
			f, j := one(t)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(j)}})
			outcome, err := f.RequestKill(t.Context(), runOf(j), store.KillRequest{})
			require.NoError(t, err)
			require.Equal(t, store.KillGone, outcome)
			require.False(t, f.exists("resqued:kills:p1"))

			f.push("q", job("A", "[1]"))
			j = f.reserve(1, "q")[0]
			_, _, err = f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			outcome, err = f.RequestKill(t.Context(), runOf(j), store.KillRequest{})
			require.NoError(t, err)
			require.Equal(t, store.KillDead, outcome)
			require.False(t, f.exists("resqued:kills:p1"))
		})

		t.Run("the end of the job is the answer", func(t *testing.T) {
			for kind, want := range map[store.Kind]store.KillAnswer{
				store.Done:     {How: store.HowFinished},
				store.Failed:   {How: store.HowCancelled},
				store.Requeued: {How: store.HowCancelled, Requeued: true},
			} {
				f, j := one(t)
				f.kill(j, store.KillRequest{Grace: time.Second})
				c := store.Completion{Job: &j, Kind: kind, Killed: true, Failure: store.Record([]byte("{}"))}
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{c}})
				require.Equal(t, store.KillState{Answer: &want}, f.killState(j))
				require.False(t, f.exists("resqued:kills:p1"))

				// The answer is there for a while when the process has left.
				held, err := f.Unregister(t.Context(), "p1")
				require.NoError(t, err)
				require.Zero(t, held)
				require.NotNil(t, f.killState(j).Answer)
				ttl := f.redis.PTTL(t.Context(), f.key("resqued:killed:p1")).Val()
				require.Positive(t, ttl)
				require.LessOrEqual(t, ttl, time.Minute)
			}
		})

		t.Run("a request that came too late gets no answer, and is dropped", func(t *testing.T) {
			f, j := one(t)
			f.kill(j, store.KillRequest{Grace: time.Second})
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(j)}})
			require.Equal(t, store.KillState{}, f.killState(j))
			require.NoError(t, f.DropKills(t.Context(), "p1", j.Token, "unknown"))
			require.False(t, f.exists("resqued:kills:p1"))
		})

		t.Run("nobody asked, so nobody is answered", func(t *testing.T) {
			f, j := one(t)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &j, Kind: store.Done, Killed: true}}})
			require.False(t, f.exists("resqued:killed:p1"))
		})

		t.Run("what a beat says of the job is known", func(t *testing.T) {
			f, j := one(t)
			beat := store.BeatRequest{Proc: "p1", Info: map[string]string{store.InfoKilled: "x" + j.Token + " " + j.Token}}
			_, err := f.Beat(t.Context(), beat)
			require.NoError(t, err)
			require.Equal(t, store.KillState{Running: true, Told: true}, f.killState(j))
			beat.Info[store.InfoStubborn], beat.Info[store.InfoKilled] = j.Token, "x"+j.Token
			_, err = f.Beat(t.Context(), beat)
			require.NoError(t, err)
			require.Equal(t, store.KillState{Running: true, Stubborn: true}, f.killState(j))
		})

		t.Run("who recovers the process knows the request, and answers", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			jobs := f.reserve(3, "q")
			f.push("q", job("A", "[4]"))
			f.kill(jobs[0], store.KillRequest{Grace: time.Second})
			f.kill(jobs[1], store.KillRequest{Requeue: true})
			held, bad, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.Empty(t, bad)
			asked := map[string]*store.KillRequest{}
			for _, h := range held {
				asked[h.Token] = h.Kill
			}
			require.Equal(t, map[string]*store.KillRequest{
				jobs[0].Token: {Grace: time.Second}, jobs[1].Token: {Requeue: true}, jobs[2].Token: nil,
			}, asked)
			killed := store.KillAnswer{How: store.HowRecycled, SiblingsLost: 1}
			again := store.KillAnswer{How: store.HowRecycled, Requeued: true}
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{
				{Token: jobs[0].Token, Action: store.Fail, Failure: store.Record([]byte("{}")), Kill: &killed},
				{Token: jobs[1].Token, Action: store.Again, Kill: &again},
				{Token: jobs[2].Token, Action: store.Requeue},
			}))
			require.Equal(t, []string{job("A", "[3]"), job("A", "[4]"), job("A", "[2]")}, f.list("queue:q"))
			require.EqualValues(t, 1, f.redis.HLen(t.Context(), f.key("resqued:deaths:q")).Val(), "of the one that nobody wanted to end")
			require.Equal(t, store.KillState{Answer: &killed}, f.killState(jobs[0]))
			require.Equal(t, store.KillState{Answer: &again}, f.killState(jobs[1]))
			require.False(t, f.exists("resqued:proc:p1"))
			require.False(t, f.exists("resqued:kills:p1"))
			for _, j := range jobs {
				require.False(t, f.exists(j.LockKey))
			}
		})

		t.Run("a job of a unique queue goes back once", func(t *testing.T) {
			f := setup(t, server)
			queues := []store.Queue{{Name: "q", Locked: true, Unique: true}}
			f.push("q", job("A", "[1]"))
			j := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: queues}).Jobs[0]
			f.kill(j, store.KillRequest{Requeue: true})
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: j.Token, Action: store.Again}}))
			require.Equal(t, []string{job("A", "[1]")}, f.list("queue:q"))
			require.EqualValues(t, 1, f.redis.SCard(t.Context(), f.key("queue:q:uniqueue")).Val())
			require.EqualValues(t, 1, f.redis.LLen(t.Context(), f.key("queue:q:start_at")).Val())
		})

		t.Run("a key of the wrong type is told, and changed by nobody", func(t *testing.T) {
			f, j := one(t)
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:kills:p1"), "x", 0).Err())
			_, err := f.RequestKill(t.Context(), runOf(j), store.KillRequest{})
			require.ErrorContains(t, err, "is not a hash")
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &j, Kind: store.Done, Killed: true}}})
			require.Equal(t, "x", f.redis.Get(t.Context(), f.key("resqued:kills:p1")).Val())
		})
	})
}

func TestManyKillStates(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	for i := range 120 {
		f.push("q", job("A", "["+string(rune('0'+i%10))+string(rune('0'+i/10%10))+string(rune('1'+i/100))+"]"))
	}
	var runs []store.RunName
	for len(runs) < 120 {
		for _, j := range f.reserve(60, "q") {
			f.kill(j, store.KillRequest{})
			runs = append(runs, runOf(j))
		}
	}
	runs = append(runs, store.RunName{Proc: "p1", Token: "none"})
	states, err := f.KillStates(t.Context(), runs)
	require.NoError(t, err)
	require.Len(t, states, 121)
	for i, s := range states {
		require.Equal(t, i < 120, s.Running)
	}
}

package store_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		fallback := store.Policy{Fail: true, AtMostOnce: []string{"Fallback"}, Resumes: []string{"Fallback"}}
		policy := func(t *testing.T, f *fixture, proc string) store.Policy {
			t.Helper()
			p, err := f.PolicyOf(t.Context(), proc, fallback)
			require.NoError(t, err)
			return p
		}
		registered := func(t *testing.T, p store.Policy) *fixture {
			f := setup(t, server)
			info := p.Info()
			maps.Copy(info, map[string]string{"pid": "2"})
			require.NoError(t, f.Register(t.Context(), store.Registration{Proc: "p2", Workers: []string{"h/1.0:1:q"}, Info: info}))
			return f
		}

		t.Run("it is the one with which the process has registered", func(t *testing.T) {
			for _, p := range []store.Policy{
				{AtMostOnce: []string{}},
				{Fail: true, AtMostOnce: []string{}},
				{AtMostOnce: []string{}, MaxDeaths: 1},
				{AtMostOnce: []string{}, Resumes: []string{"Copy"}},
				{AtMostOnce: []string{"Pay", "My::Job, the\n \"second\""}},
			} {
				f := registered(t, p)
				require.Equal(t, p, policy(t, f, "p2"))
				// It is there for as long as a record is.
				f.push("q", job("Pay", "[1]"))
				f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(1), Queues: locked("q")})
				_, _, err := f.Fence(t.Context(), "p2", true)
				require.NoError(t, err)
				require.Equal(t, p, policy(t, f, "p2"))
			}
			require.Equal(t, store.Policy{AtMostOnce: []string{}}, policy(t, registered(t, store.Policy{}), "p2"))
		})

		t.Run("a beat does not change it", func(t *testing.T) {
			p := store.Policy{Fail: true, AtMostOnce: []string{"Pay"}}
			f := registered(t, p)
			_, err := f.Beat(t.Context(), store.BeatRequest{Proc: "p2", Info: map[string]string{"busy": "1"}})
			require.NoError(t, err)
			require.Equal(t, p, policy(t, f, "p2"))
		})

		t.Run("a beat says which jobs were killed", func(t *testing.T) {
			f := registered(t, store.Policy{})
			beat := func(fails string) {
				_, err := f.Beat(t.Context(), store.BeatRequest{Proc: "p2", Info: map[string]string{store.InfoFails: fails}})
				require.NoError(t, err)
			}
			beat("17 2")
			require.Equal(t, []string{"17", "2"}, policy(t, f, "p2").Fails)
			beat("")
			require.Empty(t, policy(t, f, "p2").Fails)
		})

		t.Run("what is gone or makes no sense comes from the fallback", func(t *testing.T) {
			f := registered(t, store.Policy{AtMostOnce: []string{"Pay"}})
			key := f.key("resqued:proc:p2")
			require.NoError(t, f.redis.HSet(t.Context(), key, "on_worker_death", "explode").Err())
			require.Equal(t, store.Policy{Fail: true, AtMostOnce: []string{"Pay"}, Resumes: fallback.Resumes}, policy(t, f, "p2"))
			for _, broken := range []string{"", "null", "Pay", `["Pay",1]`} {
				require.NoError(t, f.redis.HSet(t.Context(), key, "on_worker_death", "requeue", "at_most_once", broken, "max_deaths", broken).Err())
				require.Equal(t, store.Policy{AtMostOnce: fallback.AtMostOnce}, policy(t, f, "p2"), broken)
			}
			require.NoError(t, f.redis.Del(t.Context(), key).Err())
			require.Equal(t, fallback, policy(t, f, "p2"))
			require.NoError(t, f.redis.Set(t.Context(), key, "no hash", 0).Err())
			require.Equal(t, fallback, policy(t, f, "p2"))
		})
	})

	t.Run("a Redis that does not answer is not a reason for the fallback", func(t *testing.T) {
		t.Parallel()
		s, err := store.Open(store.Options{URL: "redis://127.0.0.1:1/0", Namespace: "x"})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.PolicyOf(t.Context(), "p", store.Policy{})
		require.Error(t, err)
	})
}

// A process's own words say what its death does to each of its jobs.
func TestOnDeath(t *testing.T) {
	t.Parallel()
	of := func(p store.Policy, class string, deaths, blame int) string {
		proc := store.ProcInfo{Fields: p.Info()}
		proc.Fields[store.InfoFails] = "7"
		return proc.OnDeath(store.Reserved{Token: "8", Payload: []byte(`{"class":"` + class + `","args":[]}`), Deaths: deaths, Blame: blame})
	}
	p := store.Policy{AtMostOnce: []string{"Once"}, Resumes: []string{"Long"}, MaxDeaths: 3}
	require.Equal(t, store.RunsAgain, of(p, "A", 1, 1))
	require.Equal(t, "fails: death 3 of 3", of(p, "A", 2, 2))
	require.Contains(t, of(p, "A", 11, 0), "of any cause")
	require.Equal(t, "fails: "+store.OnceOnly, of(p, "Once", 0, 0))
	require.Equal(t, store.RunsAgain, of(p, "Long", 11, 11))
	p.Fail = true
	require.Equal(t, "fails: "+store.FailsOnly, of(p, "A", 0, 0))
	proc := store.ProcInfo{Fields: store.Policy{MaxDeaths: 3}.Info()}
	proc.Fields[store.InfoFails] = "7 8"
	require.Equal(t, "fails: it was killed", proc.OnDeath(store.Reserved{Token: "8", Payload: []byte(`{"class":"A"}`)}))
	require.Empty(t, store.ProcInfo{}.OnDeath(store.Reserved{Deaths: 50, Blame: 50}), "its policy is not known")
}

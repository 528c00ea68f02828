package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// hosts is a fixture with the real lease, on which hosts can have been silent for any time.
type hosts struct{ *fixture }

const (
	fence1, fence2 = "web-1:b1:5-6:0.1", "web-1:b1:7-8:1.2" // of two masters of a host
	others         = "web-2:b2:5-6:0.1"
)

func setupHosts(t *testing.T, server *redistest.Server) hosts {
	t.Helper()
	h := hosts{setup(t, server, func(o *store.Options) { o.Lease = store.DefaultLease })}
	for _, proc := range []string{fence1, fence2, others} {
		h.register(proc)
		h.master(proc, 0)
	}
	require.NoError(t, h.redis.HSet(t.Context(), h.key("resqued:proc:"+fence2), store.InfoBootID, "0d6f", store.InfoAddress, "10.0.0.7").Err())
	return h
}

// now is the server's time.
func (h hosts) now() time.Time { return h.redis.Time(h.t.Context()).Val() }

// beaten has the last beat of a process be so long ago.
func (h hosts) beaten(proc string, ago time.Duration) {
	h.t.Helper()
	ends := h.now().Add(store.DefaultLease - ago)
	require.NoError(h.t, h.redis.ZAdd(h.t.Context(), h.key("resqued:procs"), redis.Z{Score: float64(ends.UnixMilli()), Member: proc}).Err())
}

// master has the master of a process have renewed its entry so long ago.
func (h hosts) master(proc string, ago time.Duration) {
	h.t.Helper()
	id := proc[:strings.LastIndexByte(proc, ':')]
	_, err := h.PutMaster(h.t.Context(), store.MasterInfo{ID: id, TTL: store.MasterTTL - ago, Fields: map[string]string{"host": "h"}})
	require.NoError(h.t, err)
}

// silence has the first host be silent for so long.
func (h hosts) silence(ago time.Duration) {
	h.t.Helper()
	for _, proc := range []string{fence1, fence2} {
		h.beaten(proc, ago)
		h.master(proc, min(ago, store.MasterTTL-time.Millisecond))
	}
}

func (h hosts) silent(change ...func(r *store.SilentRequest)) (places []string) {
	h.t.Helper()
	r := store.SilentRequest{Place: "asks:b", Most: 8, Turn: "me", For: time.Minute}
	for _, c := range change {
		c(&r)
	}
	found, now, err := h.SilentHosts(h.t.Context(), r)
	require.NoError(h.t, err)
	require.WithinDuration(h.t, h.now(), now, time.Minute)
	for _, one := range found {
		places = append(places, one.Place)
	}
	return places
}

func (h hosts) settle(change ...func(v *store.HostVerdict)) store.HostOutcome {
	h.t.Helper()
	v := store.HostVerdict{Place: "web-1:b1", Dead: true, Last: h.now(), Turn: "me", Pause: time.Minute}
	for _, c := range change {
		c(&v)
	}
	o, err := h.SettleHost(h.t.Context(), v)
	require.NoError(h.t, err)
	return o
}

func TestSilentHosts(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("one whose processes and masters are silent is told once", func(t *testing.T) {
			h := setupHosts(t, server)
			require.Empty(t, h.silent())
			h.silence(26 * time.Second)
			found, now, err := h.SilentHosts(t.Context(), store.SilentRequest{Place: "asks:b", Most: 8, Turn: "me", For: time.Minute})
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, "web-1:b1", found[0].Place)
			require.Equal(t, "web-1", found[0].Name())
			require.Equal(t, "b1", found[0].Boot())
			require.Equal(t, 2, found[0].Procs)
			require.Equal(t, "0d6f", found[0].BootID)
			require.Equal(t, "10.0.0.7", found[0].Address)
			require.WithinDuration(t, now.Add(-26*time.Second), found[0].Last, 10*time.Second)
			require.Empty(t, h.silent(), "it is the turn of one")
			require.Equal(t, time.Minute, h.redis.PTTL(t.Context(), h.key("resqued:asked:web-1:b1")).Val().Round(time.Minute))
		})
		for name, alive := range map[string]func(h hosts){
			"not for long enough":         func(h hosts) { h.silence(15 * time.Second) },
			"one of its processes beats":  func(h hosts) { h.beaten(fence2, 3*time.Second) },
			"one of its masters is heard": func(h hosts) { h.master(fence2, 3*time.Second) },
			"its leases have ended":       func(h hosts) { h.silence(36 * time.Second) },
			"it has been fenced": func(h hosts) {
				require.NoError(h.t, h.redis.ZAdd(h.t.Context(), h.key("resqued:procs"), redis.Z{Member: fence1}, redis.Z{Member: fence2}).Err())
			},
			"an older version does not say how it beats": func(h hosts) {
				require.NoError(h.t, h.redis.HDel(h.t.Context(), h.key("resqued:proc:"+fence1), "beat_ms").Err())
			},
			"no process could beat": func(h hosts) {
				ago := h.now().Add(-time.Hour).UnixMilli()
				require.NoError(h.t, h.redis.HSet(h.t.Context(), h.key("resqued:meta"), "beat", ago).Err())
			},
			"another asks already": func(h hosts) {
				require.NoError(h.t, h.redis.Set(h.t.Context(), h.key("resqued:asked:web-1:b1"), "other", time.Minute).Err())
			},
		} {
			t.Run("not where "+name, func(t *testing.T) {
				h := setupHosts(t, server)
				h.silence(26 * time.Second)
				alive(h)
				require.Empty(t, h.silent())
			})
		}
		t.Run("by whom, how many, and after which silence", func(t *testing.T) {
			h := setupHosts(t, server)
			h.silence(16 * time.Second)
			require.Empty(t, h.silent())
			require.Empty(t, h.silent(func(r *store.SilentRequest) { r.After, r.Place = 12*time.Second, "web-1:b1" }), "no host asks about itself")
			require.Empty(t, h.silent(func(r *store.SilentRequest) { r.After, r.Most = 12*time.Second, 0 }))
			require.Empty(t, h.silent(func(r *store.SilentRequest) { r.After = 20 * time.Second }))
			require.Equal(t, []string{"web-1:b1"}, h.silent(func(r *store.SilentRequest) { r.After = 12 * time.Second }))
		})
		t.Run("beside processes of a shorter lease, which beat more often", func(t *testing.T) {
			h := setupHosts(t, server)
			h.silence(16 * time.Second)
			short, err := store.Open(store.Options{URL: server.URL(), Namespace: h.ns, Lease: 7 * time.Second, BeatEvery: 2 * time.Second})
			require.NoError(t, err)
			t.Cleanup(func() { _ = short.Close() })
			for _, proc := range []string{"s-1:b:1-1:0.0", "s-2:b:1-1:0.0"} {
				require.NoError(t, short.Register(t.Context(), store.Registration{Proc: proc, Workers: []string{proc}}))
			}
			ends := float64(h.now().Add(1500 * time.Millisecond).UnixMilli()) // 5.5 s ago
			require.NoError(t, h.redis.ZAdd(t.Context(), h.key("resqued:procs"), redis.Z{Score: ends, Member: "s-2:b:1-1:0.0"}).Err())
			require.Equal(t, []string{"s-2:b"}, h.silent())
			h.silence(26 * time.Second)
			require.Equal(t, []string{"web-1:b1"}, h.silent())
		})
	})
}

func TestSettleHost(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		ask := func(t *testing.T) (hosts, time.Time) {
			t.Helper()
			h := setupHosts(t, server)
			h.silence(26 * time.Second)
			found, _, err := h.SilentHosts(t.Context(), store.SilentRequest{Place: "asks:b", Most: 8, Turn: "me", For: time.Minute})
			require.NoError(t, err)
			require.Len(t, found, 1)
			return h, found[0].Last
		}
		last := func(at time.Time) func(v *store.HostVerdict) {
			return func(v *store.HostVerdict) { v.Last = at }
		}
		t.Run("what is dead is fenced, and recovered by any master", func(t *testing.T) {
			h, at := ask(t)
			held := h.exchangeFor(fence1)
			require.Equal(t, store.HostOutcome{Outcome: store.HostFenced, Procs: []string{fence1, fence2}}, h.settle(last(at)))
			for _, proc := range []string{fence1, fence2} {
				_, err := h.Beat(t.Context(), store.BeatRequest{Proc: proc})
				require.ErrorIs(t, err, store.ErrFenced)
				_, err = h.Exchange(t.Context(), store.ExchangeRequest{Proc: proc, Completions: []store.Completion{{Job: &held, Kind: store.Done}}})
				require.ErrorIs(t, err, store.ErrFenced)
			}
			require.EqualValues(t, 1, h.redis.HLen(t.Context(), h.key("resqued:inflight:"+fence1)).Val(), "nothing that it says counts")
			_, err := h.Beat(t.Context(), store.BeatRequest{Proc: others})
			require.NoError(t, err)
			require.False(t, h.exists("resqued:asked:web-1:b1"))
			around, err := h.LookAround(t.Context(), "", "asks:b", "asks:b:1-1")
			require.NoError(t, err)
			orphans := around.Orphans
			require.ElementsMatch(t, []string{fence1, fence2}, orphans, "although its masters had an entry")
			for _, proc := range orphans {
				jobs, _, err := h.Fence(t.Context(), proc, false)
				require.NoError(t, err)
				var verdicts []store.Verdict
				for _, job := range jobs {
					verdicts = append(verdicts, store.Verdict{Token: job.Token, Action: store.Requeue})
				}
				require.NoError(t, h.Recover(t.Context(), proc, verdicts))
			}
			require.Equal(t, []string{string(held.Payload)}, h.redis.LRange(t.Context(), h.key("queue:q"), 0, -1).Val())
			require.Equal(t, store.HostUnknown, h.settle(func(v *store.HostVerdict) { v.Turn = "" }).Outcome)
		})
		t.Run("what was not proven is asked again after a pause", func(t *testing.T) {
			h, at := ask(t)
			require.Equal(t, store.HostFenced, h.settle(last(at), func(v *store.HostVerdict) { v.Dead, v.Pause = false, 40*time.Second }).Outcome)
			require.LessOrEqual(t, h.redis.PTTL(t.Context(), h.key("resqued:asked:web-1:b1")).Val(), 40*time.Second)
			require.Empty(t, h.silent())
			require.NoError(t, h.redis.Del(t.Context(), h.key("resqued:asked:web-1:b1")).Err())
			require.Equal(t, []string{"web-1:b1"}, h.silent())
		})
		for name, sign := range map[string]func(h hosts){
			"a beat":       func(h hosts) { h.beaten(fence2, 0) },
			"of a master":  func(h hosts) { h.master(fence1, 0) },
			"an old one":   func(h hosts) { h.beaten(fence2, 10*time.Second) },
			"of a new one": func(h hosts) { h.register("web-1:b1:9-9:0.0") },
		} {
			t.Run("whatever has given a sign of life since lives: "+name, func(t *testing.T) {
				for _, turn := range []string{"me", ""} {
					h, at := ask(t)
					sign(h)
					o := h.settle(last(at), func(v *store.HostVerdict) { v.Turn = turn })
					require.Equal(t, store.HostAlive, o.Outcome)
					require.Greater(t, o.Last, at.Add(5*time.Second))
					for _, proc := range []string{fence1, fence2} {
						_, err := h.Beat(t.Context(), store.BeatRequest{Proc: proc})
						require.NoError(t, err)
					}
				}
			})
		}
		t.Run("a turn that is another's decides nothing", func(t *testing.T) {
			h, at := ask(t)
			require.NoError(t, h.redis.Set(t.Context(), h.key("resqued:asked:web-1:b1"), "other", time.Minute).Err())
			for _, dead := range []bool{true, false} {
				require.Equal(t, store.HostNotOurs, h.settle(last(at), func(v *store.HostVerdict) { v.Dead = dead }).Outcome)
			}
			require.Equal(t, "other", h.get("resqued:asked:web-1:b1"))
			_, err := h.Beat(t.Context(), store.BeatRequest{Proc: fence1})
			require.NoError(t, err)
		})
		t.Run("a person needs no turn", func(t *testing.T) {
			h, at := ask(t)
			require.Equal(t, []string{fence1, fence2}, h.settle(last(at), func(v *store.HostVerdict) { v.Turn = "" }).Procs)
		})
		t.Run("what has another format keeps its lease", func(t *testing.T) {
			h, at := ask(t)
			require.NoError(t, h.redis.HSet(t.Context(), h.key("resqued:proc:"+fence1), "format", "99").Err())
			require.Equal(t, store.HostOutcome{Outcome: store.HostFenced, Procs: []string{fence2}, Left: 1}, h.settle(last(at)))
		})
		t.Run("hosts as people see them", func(t *testing.T) {
			h, at := ask(t)
			h.exchangeFor(fence1)
			all, _, err := h.Hosts(t.Context())
			require.NoError(t, err)
			require.Len(t, all, 2)
			require.Equal(t, "web-1:b1", all[0].Place)
			require.WithinDuration(t, at, all[0].Last, time.Minute)
			require.Equal(t, 2, all[0].Procs)
			require.Equal(t, 1, all[0].Jobs)
			require.Equal(t, "10.0.0.7", all[0].Address)
			require.Equal(t, 15*time.Second, all[0].Silence)
			require.Greater(t, all[1].Last, at.Add(10*time.Second))
		})
	})
}

// exchangeFor has a process take a job, whatever its lease is, and returns it.
func (h hosts) exchangeFor(proc string) store.Reserved {
	h.t.Helper()
	ctx := h.t.Context()
	payload := `{"class":"A","args":[1]}`
	require.NoError(h.t, h.redis.RPush(ctx, h.key("queue:q"), payload).Err())
	reply, err := h.Exchange(ctx, store.ExchangeRequest{
		Proc: others, Wants: []store.Want{{Token: "t", Worker: "h/0.0:1:q"}}, Queues: []store.Queue{{Name: "q"}}, Sending: 1,
	})
	require.NoError(h.t, err)
	require.Len(h.t, reply.Jobs, 1)
	require.NoError(h.t, h.redis.Rename(ctx, h.key("resqued:inflight:"+others), h.key("resqued:inflight:"+proc)).Err())
	return reply.Jobs[0]
}

package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// worksAt runs a job through every kind of script at a URL.
func worksAt(t *testing.T, opts store.Options) {
	t.Helper()
	s, err := store.Open(opts)
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.NoError(t, s.WaitReady(t.Context(), nil))
	ctx := t.Context()
	require.NoError(t, s.Register(ctx, store.Registration{Proc: "p", Workers: []string{"w:1:q"}, Started: "now"}))
	_, err = s.Push(ctx, "q", []byte(job("A", "[1]")))
	require.NoError(t, err)
	poll, err := s.Poll(ctx, store.PollRequest{All: true})
	require.NoError(t, err)
	require.Equal(t, []string{"q"}, poll.Reasons.With(store.Free))
	reply, err := s.Exchange(ctx, store.ExchangeRequest{
		Proc: "p", Master: "m", Wants: []store.Want{{Token: "1", Worker: "w:1:q"}},
		Queues: []store.Queue{{Name: "q", Locked: true, Cap: 1}},
	})
	require.NoError(t, err)
	require.Len(t, reply.Jobs, 1)
	require.NoError(t, s.WriteMirrors(ctx, "p", []store.Mirror{{Token: "1", Worker: "w:1:q", Value: []byte("{}")}}))
	_, err = s.Beat(ctx, store.BeatRequest{
		Proc: "p", Jobs: []store.Running{{Token: "1", LockKey: reply.Jobs[0].LockKey}},
		Stats: []store.WorkerStat{{Worker: "w:1:q", Processed: 1}},
	})
	require.NoError(t, err)
	_, err = s.Exchange(ctx, store.ExchangeRequest{Proc: "p", Master: "m", Completions: []store.Completion{
		{Job: &reply.Jobs[0], Kind: store.Requeued, Delay: time.Hour, Mirrored: true},
	}})
	require.NoError(t, err)
	_, err = s.Push(ctx, "q", []byte(job("A", "[2]")))
	require.NoError(t, err)
	reply, err = s.Exchange(ctx, store.ExchangeRequest{
		Proc: "p", Master: "m", Wants: []store.Want{{Token: "2", Worker: "w:1:q"}},
		Queues: []store.Queue{{Name: "q", Locked: true}},
	})
	require.NoError(t, err)
	require.Len(t, reply.Jobs, 1)
	_, _, err = s.Orphans(ctx)
	require.NoError(t, err)
	held, _, err := s.Fence(ctx, "p", true)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.NoError(t, s.Recover(ctx, "p", []store.Verdict{{Token: "2", Action: store.Fail, Failure: store.Record([]byte("{}"))}}))
	_, err = s.PutMaster(ctx, store.MasterInfo{ID: "m", Fields: map[string]string{"a": "b"}, TTL: time.Minute})
	require.NoError(t, err)
	_, err = s.DropMaster(ctx, "m")
	require.NoError(t, err)
	_, err = s.QueueList(ctx)
	require.NoError(t, err)
	_, err = s.WorkerList(ctx)
	require.NoError(t, err)
	_, err = s.ProcList(ctx)
	require.NoError(t, err)
	historyWorksAt(t, s)
	uniqueWorksAt(t, s)
	waitsAt(t, s)
	agesWorkAt(t, s)
}

// agesWorkAt looks at queues twice, so that it also searches payloads and reads counts.
func agesWorkAt(t *testing.T, s *store.Store) {
	t.Helper()
	for range 2 {
		for range 2 { // equal ones, so counts are read
			_, err := s.Push(t.Context(), "aged", []byte("{}"))
			require.NoError(t, err)
		}
		looked := func() bool {
			mine, err := s.LookAtAges(t.Context())
			require.NoError(t, err)
			return mine
		}
		proctest.Await(t, time.Minute, looked, "its turn to look")
	}
	queues, err := s.QueueList(t.Context())
	require.NoError(t, err)
	for _, q := range queues {
		if q.Name == "aged" {
			require.NotZero(t, q.Age.Pushed)
			return
		}
	}
	t.Fatal("no queue aged")
}

func TestPlacesToFindRedis(t *testing.T) {
	t.Parallel()

	t.Run("a unix socket", func(t *testing.T) {
		t.Parallel()
		worksAt(t, store.Options{URL: redistest.Shared(t).SocketURL(), Namespace: redistest.Namespace(t)})
	})

	t.Run("an ACL user with no more rights than the documented ones", func(t *testing.T) {
		t.Parallel()
		redistest.NeedsMajor(t, 6)
		doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "redis-keys.md"))
		require.NoError(t, err)
		_, rest, ok := strings.Cut(string(doc), "ACL SETUSER resqued ")
		require.True(t, ok, "docs/redis-keys.md shows the rights as an ACL SETUSER line")
		rule, _, _ := strings.Cut(rest, "\n")
		require.Contains(t, rule, ">SECRET")
		rule = strings.ReplaceAll(rule, ">SECRET", ">pw")
		server := redistest.Start(t, redistest.Options{})
		args := []any{"ACL", "SETUSER", "resqued"}
		for word := range strings.FieldsSeq(rule) {
			args = append(args, word)
		}
		require.NoError(t, server.Client(t).Do(t.Context(), args...).Err())
		worksAt(t, store.Options{URL: server.URLAs("resqued", "pw"), Namespace: "resque"})
	})

	t.Run("a server whose command ACL is renamed", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Without(t, "ACL"))
		worksAt(t, store.Options{URL: server.URL(), Namespace: "resque"})
	})

	t.Run("TLS with a certificate of one's own", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{TLS: true})
		ca, err := rdb.ReadCA(server.CAFile)
		require.NoError(t, err)
		worksAt(t, store.Options{URL: server.URL(), Namespace: "resque", CA: ca})

		// Certificates are replaced while a daemon runs.
		later, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
		require.NoError(t, err)
		defer func() { _ = later.Close() }()
		require.Error(t, later.Ping(t.Context()))
		require.ErrorContains(t, later.Use(store.Options{CA: "none"}), "no PEM certificate")
		require.Error(t, later.Use(store.Options{LockTTL: time.Millisecond}))
		require.NoError(t, later.Use(store.Options{URL: "redis://elsewhere", Namespace: "other", CA: ca}))
		require.NoError(t, later.WaitReady(t.Context(), nil))
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: "resque"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		err = s.Ping(t.Context())
		for errors.Is(err, context.DeadlineExceeded) { // a busy machine has not come to it
			err = s.Ping(t.Context())
		}
		require.ErrorContains(t, err, "certificate")
	})

	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		worksAt(t, store.Options{URL: "redis-sentinel://" + redistest.Sentinel(t, server, "main") + "/main/0", Namespace: "resque"})
	})

	t.Run("a Cluster, with a hash-tagged namespace", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
		client := server.Client(t)
		require.NoError(t, client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		require.Eventually(t, func() bool {
			return strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		}, 30*time.Second, 10*time.Millisecond)
		worksAt(t, store.Options{URL: "redis-cluster://" + server.Addr, Namespace: "{resque}"})
	})
}

// A connection that is made costs the server no error, and says whose it is.
func TestNewConnection(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, client *redis.Client, url string) {
		t.Helper()
		for range 2 {
			s, err := store.Open(store.Options{URL: url, Namespace: "{resque}", ClientName: "resqued-test"})
			require.NoError(t, err)
			require.NoError(t, s.Ping(t.Context()))
			require.Contains(t, client.ClientList(t.Context()).Val(), "name=resqued-test ")
			require.NoError(t, s.Close())
		}
		stats := client.Info(t.Context(), "commandstats", "errorstats").Val()
		require.NotContains(t, stats, "setinfo")
		require.NotContains(t, stats, "errorstat_")
	}
	// As redistest's own connections would make errors, too.
	quiet := func(t *testing.T, server *redistest.Server) *redis.Client {
		t.Helper()
		c := redis.NewClient(&redis.Options{
			Addr: server.Addr, DisableIdentity: true, ReadTimeout: time.Minute,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.ConfigResetStat(t.Context()).Err())
		return c
	}
	t.Run("TCP", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		check(t, quiet(t, server), server.URL())
	})
	t.Run("unix", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		check(t, quiet(t, server), server.SocketURL())
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		check(t, quiet(t, server), "redis-sentinel://"+redistest.Sentinel(t, server, "main")+"/main/0")
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
		client := quiet(t, server)
		require.NoError(t, client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		require.Eventually(t, func() bool {
			return strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		}, 30*time.Second, 10*time.Millisecond)
		check(t, client, "redis-cluster://"+server.Addr)
	})
}

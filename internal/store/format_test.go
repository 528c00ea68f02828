package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// newer is a format that this program does not read.
const newer = "99"

// Processes and masters note the format in which they write, and the namespace keeps the newest
// one for good.
func TestFormatIsSaid(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		meta := func() []any {
			return f.redis.HMGet(t.Context(), f.key("resqued:meta"), rdb.MetaFormat, rdb.MetaFormatBy).Val()
		}
		require.NoError(t, f.Register(t.Context(), store.Registration{Proc: "p2", Workers: []string{"w:7:q"}, Info: map[string]string{"version": "v1", "host": "web-1"}}))
		_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: "m", TTL: time.Minute})
		require.NoError(t, err)
		require.Equal(t, "1", meta()[0])
		for _, key := range []string{"resqued:proc:p2", "resqued:master:m"} {
			require.Equal(t, map[string]string{"format": "1", "reads": "1-1"}, pick(f.redis.HGetAll(t.Context(), f.key(key)).Val(), "format", "reads"), key)
		}
		require.NoError(t, f.CheckFormat(t.Context()))

		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), rdb.MetaFormat, newer, rdb.MetaFormatBy, "v9 on web-9\x1b").Err())
		err = f.CheckFormat(t.Context())
		require.ErrorContains(t, err, `has format "99", written by resqued v9 on web-9\x1b, and this program reads format 1`)
		require.ErrorContains(t, f.WaitReady(t.Context(), nil), `format "99"`, "a daemon does not start")
		f.register("p3") // a worker process is replaced
		require.Equal(t, newer, meta()[0], "the newest one stays")

		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), rdb.MetaFormat, "odd").Err())
		f.register("p3")
		require.Equal(t, "odd", meta()[0], "what cannot be compared stays")
		require.ErrorContains(t, f.CheckFormat(t.Context()), `format "odd"`)

		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), rdb.MetaFormat, "0").Err())
		require.Error(t, f.CheckFormat(t.Context()), "too old, too")
		f.register("p3")
		require.Equal(t, "1", meta()[0])

		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:meta")).Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:meta"), "text", 0).Err())
		require.NoError(t, f.CheckFormat(t.Context()), "what else is wrong others report")
	})
}

func pick(fields map[string]string, names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name] = fields[name]
	}
	return out
}

// The jobs and the settings of a process of another format are left alone.
func TestFormatUnread(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, format := range []string{newer, "0", "odd"} {
			f := setup(t, server, func(o *store.Options) { o.Namespace += format })
			f.register("p2")
			f.push("q", job("A", "[1]"))
			require.Len(t, f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(1), Queues: locked("q")}).Jobs, 1)
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:proc:p2"), "format", format, "version", "v9", "host", "web-9").Err())
			_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: "m", TTL: time.Minute, Fields: map[string]string{"shared": "other"}})
			require.NoError(t, err)
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:master:m"), "format", format).Err())
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Score: 1, Member: "p2"}).Err())
			before := f.redis.HGetAll(t.Context(), f.key("resqued:inflight:p2")).Val()

			around, err := f.LookAround(t.Context(), "mine", "", "")
			require.NoError(t, err)
			require.Empty(t, around.Orphans)
			require.Empty(t, around.Others, "its settings are not compared")
			require.ElementsMatch(t, []store.Unread{{ID: "m", Format: format}, {ID: "p2", Format: format, Version: "v9", Host: "web-9"}}, around.Unread)

			for _, force := range []bool{false, true} {
				_, _, err = f.Fence(t.Context(), "p2", force)
				var unread *rdb.FormatError
				require.ErrorAs(t, err, &unread)
				require.Equal(t, format, unread.Format)
				require.ErrorContains(t, err, "what p2 has left has format")
			}
			require.InDelta(t, 1, f.redis.ZScore(t.Context(), f.key("resqued:procs"), "p2").Val(), 0, "its lease stays as it is")
			require.Equal(t, before, f.redis.HGetAll(t.Context(), f.key("resqued:inflight:p2")).Val())
			require.Len(t, before, 1)

			// One that reads the format recovers it.
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:proc:p2"), "format").Err())
			around, err = f.LookAround(t.Context(), "mine", "", "")
			require.NoError(t, err)
			require.Equal(t, []string{"p2"}, around.Orphans, "who says nothing has written before there were numbers")
			held, _, err := f.Fence(t.Context(), "p2", false)
			require.NoError(t, err)
			require.Len(t, held, 1)
		}
	})
}

// However many processes of another format are dead, they do not hide those that can be recovered.
func TestFormatUnreadHidesNone(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		pipe := f.redis.Pipeline()
		for i := range 250 {
			proc := fmt.Sprintf("foreign%d", i)
			pipe.HSet(t.Context(), f.key("resqued:proc:"+proc), "format", newer)
			pipe.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Score: float64(1 + i), Member: proc})
		}
		pipe.HSet(t.Context(), f.key("resqued:proc:ours"), "format", "1")
		pipe.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Score: 1000, Member: "ours"})
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for range 1000 {
			around, err := f.LookAround(t.Context(), "", "", "")
			require.NoError(t, err)
			if slices.Contains(around.Orphans, "ours") {
				require.Equal(t, []string{"ours"}, around.Orphans)
				return
			}
		}
		require.Fail(t, "it is never found")
	})
}

// A record in flight of another format stays where it is, beside those that can be read.
func TestFormatOfRecords(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"))
		jobs := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: locked("q")}).Jobs
		require.Len(t, jobs, 2)
		inflight := f.key("resqued:inflight:p1")
		record := f.redis.HGet(t.Context(), inflight, jobs[0].Token).Val()
		for _, changed := range []string{
			"4" + strings.TrimPrefix(record, "3"),
			strings.Replace(record, " -\n", " 0 -\n", 1),
			strings.Replace(record, "\n", " 7\n", 1),
			"",
		} {
			require.NoError(t, f.redis.HSet(t.Context(), inflight, jobs[0].Token, changed).Err())
			held, bad, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.Len(t, held, 1)
			require.Equal(t, []string{jobs[0].Token}, bad)
			err = f.Recover(t.Context(), "p1", []store.Verdict{{Token: jobs[0].Token, Action: store.Requeue}})
			require.ErrorContains(t, err, "not one of ours")
			require.Equal(t, changed, f.redis.HGet(t.Context(), inflight, jobs[0].Token).Val())
		}
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: jobs[1].Token, Action: store.Requeue}}))
		require.Equal(t, []string{job("A", "[2]")}, f.list("queue:q"))
		require.True(t, f.exists("resqued:proc:p1"), "it waits for who reads the other one")
	})
}

// Entries parked in another format keep their place and their turn.
func TestFormatOfParked(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		for _, entry := range []string{"2 f 1795000000000 - 0 1 1 2\nqx{}", "1 z 1795000000000 - 0 1 1 2\nqx{}", "1 f 1795000000000 - 0 0 1 1 2\nqx{}"} {
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:parked"), "p#1", entry).Err())
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:parked:p#1"), job("A", "[1]"), 0).Err())
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:parking"), redis.Z{Score: 1, Member: "p#1"}).Err())
			moved, err := f.Unpark(t.Context())
			require.NoError(t, err)
			require.Zero(t, moved)
			require.ErrorContains(t, f.Replace(t.Context(), "p#1"), "nothing that this version of resqued has written")
			require.Equal(t, entry, f.redis.HGet(t.Context(), f.key("resqued:parked"), "p#1").Val())
			require.True(t, f.exists("resqued:parked:p#1"))
			require.Positive(t, f.redis.ZScore(t.Context(), f.key("resqued:parking"), "p#1").Val(), "who reads it looks again")
			require.False(t, f.exists("failed"))
			require.False(t, f.exists("queue:q"))
			jobs, total, err := f.Parked(t.Context(), 10)
			require.NoError(t, err)
			require.EqualValues(t, 1, total)
			require.Equal(t, "p#1", jobs[0].ID)
		}
	})
}

// A delayed job of another format is not a malformed one where that format is in use.
func TestFormatOfDelayed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		const odd = "v2|later:1|q|{}"
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:delayed"), redis.Z{Score: 1, Member: odd}).Err())
		fail := func() int {
			t.Helper()
			require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:delayed"), redis.Z{Score: 1, Member: odd}).Err())
			due, err := f.MoveDue(t.Context(), "", nil)
			require.NoError(t, err)
			require.Len(t, due.Malformed, 1)
			n, err := f.FailMalformed(t.Context(), due.Malformed, false, func([]byte, string) store.FiledFailure { return store.Record([]byte(`{}`)) })
			require.NoError(t, err)
			return n
		}
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), rdb.MetaFormat, newer).Err())
		require.Zero(t, fail())
		require.False(t, f.exists("failed"))
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), rdb.MetaFormat, "1").Err())
		require.Equal(t, 1, fail(), "else nobody could ever read it")
	})
}

// A request to end a job that says more than is known is not obeyed by halves.
func TestFormatOfKills(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		for token, request := range map[string]string{"1": "1000 1", "2": "1000 1 more", "3": "1000", "4": "2 1000 1", "5": "1000 2"} {
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:kills:p1"), token, request).Err())
		}
		kills, err := f.Kills(t.Context(), "p1")
		require.NoError(t, err)
		require.Equal(t, map[string]store.KillRequest{"1": {Grace: time.Second, Requeue: true}}, kills)
	})
}

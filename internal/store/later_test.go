package store_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

var nextCentury = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func (f *fixture) later(jobs ...store.LaterJob) []store.LaterReply {
	f.t.Helper()
	replies := f.EnqueueLater(f.t.Context(), jobs)
	require.Len(f.t, replies, len(jobs))
	for _, r := range replies {
		require.NoError(f.t, r.Err)
	}
	return replies
}

// waiting are the members of resqued:delayed, without their ids.
func (f *fixture) waiting() []string {
	f.t.Helper()
	members, err := f.redis.ZRange(f.t.Context(), f.key("resqued:delayed"), 0, -1).Result()
	require.NoError(f.t, err)
	for i, m := range members {
		_, members[i], _ = strings.Cut(m, " ")
	}
	return members
}

func (f *fixture) keys() []string {
	f.t.Helper()
	keys, err := f.redis.Keys(f.t.Context(), f.key("*")).Result()
	require.NoError(f.t, err)
	return keys
}

// The keys of resque-scheduler, key by key and byte by byte.
func TestLaterIsWhatRubyWrites(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		before := f.keys()
		payload := `{"class":"A","args":[1,"é\u0001 <&>",{"b":[1.0,  12345678901234567890]}]}`
		replies := f.later(
			store.LaterJob{Queue: "q", Payload: []byte(payload), At: nextCentury},
			store.LaterJob{Queue: "q", Payload: []byte(payload), At: nextCentury},
			store.LaterJob{Queue: "a b:c/d", Payload: []byte(job("Mod::B", "[]")), At: nextCentury.Add(time.Second)},
		)
		require.Equal(t, nextCentury, replies[0].Due.UTC())
		first, second := `{"class":"A","args":[1,"é\u0001 <&>",{"b":[1.0,  12345678901234567890]}],"queue":"q"}`, `{"class":"Mod::B","args":[],"queue":"a b:c/d"}`
		require.ElementsMatch(t, append(before,
			f.key("delayed_queue_schedule"), f.key("delayed:4102444800"), f.key("delayed:4102444801"),
			f.key("timestamps:"+first), f.key("timestamps:"+second)), f.keys())
		schedule, err := f.redis.ZRangeWithScores(t.Context(), f.key("delayed_queue_schedule"), 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, schedule, 2)
		for i, z := range schedule {
			require.Equal(t, strconv.Itoa(4102444800+i), z.Member)
			require.InDelta(t, 4102444800+i, z.Score, 0)
		}
		require.Equal(t, []string{first, first}, f.list("delayed:4102444800"))
		require.Equal(t, []string{second}, f.list("delayed:4102444801"))
		require.Equal(t, []string{"delayed:4102444800"}, f.redis.SMembers(t.Context(), f.key("timestamps:"+first)).Val())
		require.Equal(t, []string{"delayed:4102444801"}, f.redis.SMembers(t.Context(), f.key("timestamps:"+second)).Val())
	})
}

func TestLater(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("what Ruby would not give back as it was waits where only we know", func(t *testing.T) {
			for _, c := range []struct{ queue, payload string }{
				{"q", `{"class":"A","args":[1],"id":"x"}`},
				{"q", `{"class":"A","args":[1],"queue":"other"}`},
				{"q", `{"args":[1],"class":"A"}`},
				{"q", ` {"class":"A","args":[1]}`},
				{"q", `{"class":"A","args":[1]} `},
				{"q", `{"class":"A","args":[1] }`},
				{"q", `{"class":"A","args":null}`},
				{"q", `{"class":"\u0041","args":[1]}`},
				{"q", `{"class":"A"}`},
				{`q"`, job("A", "[]")},
				{`q\`, job("A", "[]")},
				{"q\n", job("A", "[]")},
				{"größe", job("A", "[]")},
			} {
				f := setup(t, server)
				reply := f.later(store.LaterJob{Queue: c.queue, Payload: []byte(c.payload), At: nextCentury})[0]
				require.Equal(t, nextCentury, reply.Due.UTC())
				require.Equal(t, []string{strconv.Itoa(len(c.queue)) + " " + c.queue + c.payload}, f.waiting())
				require.NotContains(t, f.keys(), f.key("delayed_queue_schedule"))
			}
		})
		t.Run("a short time is not rounded, a long one up", func(t *testing.T) {
			f := setup(t, server)
			short := f.later(store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: time.UnixMilli(time.Now().UnixMilli()/1000*1000 + 4500)})[0]
			require.EqualValues(t, 500, short.Due.UnixMilli()%1000)
			require.Len(t, f.waiting(), 1)
			asked := nextCentury.Add(time.Millisecond)
			long := f.later(store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: asked})[0]
			require.Equal(t, nextCentury.Add(time.Second), long.Due.UTC())
			require.Len(t, f.waiting(), 1)
		})
		t.Run("a time that has come is now", func(t *testing.T) {
			f := setup(t, server)
			replies := f.later(
				store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: time.Unix(5, 0)},
				store.LaterJob{Queue: "q", Payload: []byte(job("A", "[2]"))},
				store.LaterJob{Queue: "u", Payload: []byte(job("A", "[1]")), Unique: true},
				store.LaterJob{Queue: "u", Payload: []byte(job("A", "[1]")), Unique: true},
			)
			require.Equal(t, []store.LaterReply{{Pushed: true, Length: 1}, {Pushed: true, Length: 2}, {Pushed: true, Length: 1}, {}}, replies)
			require.Equal(t, []string{job("A", "[1]"), job("A", "[2]")}, f.list("queue:q"))
			require.ElementsMatch(t, []string{"q", "u"}, f.redis.SMembers(t.Context(), f.key("queues")).Val())
			f.inStep("u")
		})
		t.Run("a key of another type is named, and the others go on", func(t *testing.T) {
			for key, bad := range map[string]store.LaterJob{
				"queue:bad":              {Queue: "bad", At: nextCentury},
				"queue:bad:uniqueue":     {Queue: "bad", At: nextCentury, Unique: true},
				"delayed:4102444800":     {Queue: "bad", At: nextCentury},
				"delayed_queue_schedule": {Queue: "bad", At: nextCentury},
				"resqued:delayed":        {Queue: "bad", At: nextCentury},
			} {
				f := setup(t, server)
				require.NoError(t, f.redis.Set(t.Context(), f.key(key), "x", 0).Err())
				before := f.keys()
				bad.Payload = []byte(job("A", "[1]"))
				replies := f.EnqueueLater(t.Context(), []store.LaterJob{bad, {Queue: "good", Payload: bad.Payload, At: nextCentury.Add(time.Minute)}})
				require.ErrorIs(t, replies[0].Err, rdb.ErrRefused, key)
				require.ErrorContains(t, replies[0].Err, key)
				if strings.Contains(key, "bad") || key == "delayed:4102444800" {
					require.NoError(t, replies[1].Err)
					require.Len(t, f.list("delayed:4102444860"), 1)
				} else {
					require.ElementsMatch(t, before, f.keys())
				}
			}
		})
		t.Run("many at once", func(t *testing.T) {
			f := setup(t, server)
			var jobs []store.LaterJob
			for i := range 1234 {
				jobs = append(jobs, store.LaterJob{Queue: "q", Payload: []byte(job("A", "["+strconv.Itoa(i)+"]")), At: nextCentury})
			}
			f.later(jobs...)
			require.Len(t, f.list("delayed:4102444800"), 1234)
		})
	})
}

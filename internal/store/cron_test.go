package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// schedule asks for ticks as a master does.
type schedule struct {
	*fixture
	req store.TickRequest
}

func newSchedule(t *testing.T, server *redistest.Server) *schedule {
	t.Helper()
	f := setup(t, server)
	s := &schedule{f, store.TickRequest{
		Name: "nightly", Print: "f1-j1", Since: time.UnixMilli(1000), Queue: "q",
		Payload: []byte(`{"class":"Report","args":[]}`), IfRunning: "queue", Shown: `{"name":"nightly"}`,
	}}
	reply := s.ask(store.TickDone)
	require.Equal(t, store.TickNew, reply.Record.Outcome)
	require.Equal(t, reply.Now, reply.Record.From, "it begins now")
	require.Zero(t, reply.Record.Tick)
	require.Empty(t, s.list("queue:q"))
	s.req.Known, s.req.Jobs = reply.Record, 1
	s.req.Tick = reply.Now.Add(-time.Second)
	return s
}

func (s *schedule) ask(want string) store.TickReply {
	s.t.Helper()
	reply, err := s.Tick(s.t.Context(), s.req)
	require.NoError(s.t, err)
	require.Equal(s.t, want, reply.Status, reply.Reason)
	return reply
}

// next asks for the next tick and returns how many jobs were enqueued.
func (s *schedule) next() store.TickReply {
	s.t.Helper()
	reply := s.ask(store.TickDone)
	s.req.Known = reply.Record
	s.req.Tick = s.req.Tick.Add(time.Millisecond)
	return reply
}

func TestTick(t *testing.T) {
	t.Parallel()
	redistest.Both(t, testTick)
}

func testTick(t *testing.T, server *redistest.Server) {
	payload := `{"class":"Report","args":[]}`
	t.Run("of all that ask from the same record one is heard", func(t *testing.T) {
		s := newSchedule(t, server)
		reply := s.ask(store.TickDone)
		require.Equal(t, 1, reply.Enqueued)
		require.Equal(t, store.TickEnqueued, reply.Record.Outcome)
		require.Equal(t, s.req.Tick.UnixMilli(), reply.Record.Tick.UnixMilli())
		require.Equal(t, reply.Record.Tick, reply.Record.From)
		require.Equal(t, reply.Now, reply.Record.Seen)
		require.Equal(t, []string{payload}, s.list("queue:q"))
		require.Equal(t, []string{"q"}, s.redis.SMembers(t.Context(), s.key("queues")).Val())
		again := s.ask(store.TickChanged)
		require.Equal(t, reply.Record, again.Record)
		require.Len(t, s.list("queue:q"), 1)
		require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}$`, s.redis.HGet(t.Context(), s.key("delayed:last_enqueued_at"), "nightly").Val())
		require.Equal(t, `{"name":"nightly"}`, s.redis.HGet(t.Context(), s.key("resqued:schedules"), "nightly").Val())
	})

	t.Run("nobody is before the server's clock", func(t *testing.T) {
		s := newSchedule(t, server)
		s.req.Tick = time.Now().Add(time.Hour)
		reply := s.ask(store.TickEarly)
		require.WithinDuration(t, time.Now(), reply.Now, time.Minute)
		require.Empty(t, s.list("queue:q"))
	})

	t.Run("several ticks at once, or none that is still wanted", func(t *testing.T) {
		s := newSchedule(t, server)
		s.req.Jobs = 3
		require.Equal(t, 3, s.next().Enqueued)
		require.Len(t, s.list("queue:q"), 3)
		s.req.Jobs, s.req.Missed = 0, 7
		reply := s.next()
		require.Equal(t, store.TickMissed, reply.Record.Outcome)
		require.Regexp(t, " 7$", reply.Record.Raw)
		require.Len(t, s.list("queue:q"), 3)
	})

	t.Run("skip: not while a job waits or runs", func(t *testing.T) {
		s := newSchedule(t, server)
		s.req.IfRunning = "skip"
		s.req.Jobs = 2
		reply := s.next()
		require.Equal(t, [2]int{1, 1}, [2]int{reply.Enqueued, reply.Skipped})
		s.req.Jobs = 1
		require.Equal(t, store.TickSkipped, s.next().Record.Outcome)
		jobs := s.reserve(1, "q")
		require.Len(t, jobs, 1)
		require.Equal(t, store.TickSkipped, s.next().Record.Outcome)
		s.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}})
		require.Equal(t, store.TickEnqueued, s.next().Record.Outcome)
		// Behind many others it counts, too.
		for i := range 1500 {
			s.push("q", fmt.Sprintf(`{"class":"A","args":[%d]}`, i))
		}
		require.Equal(t, store.TickSkipped, s.next().Record.Outcome)
	})

	t.Run("unique: not while a job waits", func(t *testing.T) {
		s := newSchedule(t, server)
		s.req.IfRunning = "unique"
		require.Equal(t, store.TickEnqueued, s.next().Record.Outcome)
		require.Equal(t, store.TickSkipped, s.next().Record.Outcome)
		require.Len(t, s.reserve(1, "q"), 1)
		require.Equal(t, store.TickEnqueued, s.next().Record.Outcome)
	})

	t.Run("unique, skip: not while a job waits in a line, for its lock or its turn", func(t *testing.T) {
		free := fair(byArg, "q")
		free[0].Locked = false
		for _, mode := range []string{"unique", "skip"} {
			for kind, queues := range map[string][]store.Queue{"lock": lined("q"), "turn": free} {
				s := newSchedule(t, server)
				s.req.IfRunning, s.req.Payload = mode, []byte(job("Report", `["a"]`))
				for i := range 1100 {
					s.push("q", fmt.Sprintf(`{"class":"Report","args":["a"],"n":%d}`, i))
				}
				require.Equal(t, store.TickEnqueued, s.next().Record.Outcome, kind)
				for len(s.list("queue:q")) > 0 {
					s.fairly(1, nil, queues...)
				}
				require.Equal(t, store.TickSkipped, s.next().Record.Outcome, "%s, %s", mode, kind)
			}
		}
	})

	t.Run("a unique queue", func(t *testing.T) {
		s := newSchedule(t, server)
		s.req.Unique = true
		require.Equal(t, store.TickEnqueued, s.next().Record.Outcome)
		require.Equal(t, store.TickDuplicate, s.next().Record.Outcome)
		require.Equal(t, []string{payload}, s.redis.SMembers(t.Context(), s.key("queue:q:uniqueue")).Val())
		require.Len(t, s.list("queue:q:start_at"), 1)
		s.push("q", `{"class":"Other","args":[]}`)
		s.req.Strict = true
		require.Contains(t, s.ask(store.TickStuck).Reason, "locks repair q")
	})

	t.Run("what is in the way is told, and nothing is done", func(t *testing.T) {
		for key, want := range map[string]string{
			"queue:q": "not a list", "resqued:schedules": "not a hash", "delayed:last_enqueued_at": "not a hash", "queues": "not a set", "resqued:cron": "not a hash",
		} {
			s := newSchedule(t, server)
			require.NoError(t, s.redis.Set(t.Context(), s.key(key), "x", 0).Err())
			require.Contains(t, s.ask(store.TickStuck).Reason, want)
			if key != "queue:q" {
				require.Empty(t, s.list("queue:q"))
			}
			if key != "resqued:cron" {
				require.Equal(t, s.req.Known.Raw, s.redis.HGet(t.Context(), s.key("resqued:cron"), "nightly").Val())
			}
		}
	})

	t.Run("a schedule in Redis must be there still", func(t *testing.T) {
		s := newSchedule(t, server)
		s.req.Stored = `{"class":"Report"}`
		s.ask(store.TickGone)
		require.NoError(t, s.redis.HSet(t.Context(), s.key("persistent_schedules"), "nightly", s.req.Stored).Err())
		require.Equal(t, 1, s.next().Enqueued)
		removed, err := s.ForgetSchedule(t.Context(), "nightly")
		require.NoError(t, err)
		require.True(t, removed)
		s.req.Known = store.CronRecord{}
		s.ask(store.TickGone)
		require.Equal(t, []string{"nightly"}, s.redis.SMembers(t.Context(), s.key("schedules_changed")).Val())
		views, _, err := s.CronViews(t.Context())
		require.NoError(t, err)
		require.Empty(t, views)
		removed, err = s.ForgetSchedule(t.Context(), "nightly")
		require.NoError(t, err)
		require.False(t, removed)
	})

	t.Run("a Ruby scheduler in charge", func(t *testing.T) {
		s := newSchedule(t, server)
		lock := s.key(s.ns + ":resque_scheduler_master_lock") // the namespace twice
		require.NoError(t, s.redis.Set(t.Context(), lock, "ruby-host:42", time.Minute).Err())
		s.req.SchedulerLock = store.SchedulerLock{Me: "resqued:here:7"}
		require.Equal(t, "ruby-host:42", s.ask(store.TickHeld).Holder)
		require.Empty(t, s.list("queue:q"))
		require.NoError(t, s.ReleaseSchedulerLock(t.Context(), s.req.SchedulerLock), "it is not ours to leave")
		reply, err := s.Schedules(t.Context(), store.SchedulesRequest{SchedulerLock: s.req.SchedulerLock})
		require.NoError(t, err)
		require.False(t, reply.InCharge)
		require.NoError(t, s.redis.Del(t.Context(), lock).Err())
		require.Equal(t, 1, s.next().Enqueued)
		require.Equal(t, s.req.SchedulerLock.Me, s.redis.Get(t.Context(), lock).Val())
		require.InDelta(t, 180, s.redis.TTL(t.Context(), lock).Val().Seconds(), 5)
		require.NoError(t, s.ReleaseSchedulerLock(t.Context(), s.req.SchedulerLock))
		require.Zero(t, s.redis.Exists(t.Context(), lock).Val())
		s.req.SchedulerLock.Prefix = "team"
		require.Equal(t, 1, s.next().Enqueued)
		require.EqualValues(t, 1, s.redis.Exists(t.Context(), s.key(s.ns+":team:resque_scheduler_master_lock")).Val())
	})
}

// A definition takes the place of another one without a tick; the notes say who has it, and
// a schedule that no daemon has any more is forgotten unless another daemon has got it since.
func TestScheduleOwners(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		s := newSchedule(t, server)
		s.next()
		claim := s.req
		claim.Print, claim.Since, claim.Claim, claim.Shown = "f1-j2", time.UnixMilli(2000), true, `{"name":"nightly","queue":"p"}`
		claim.Tick, claim.Jobs = time.Time{}, 0
		reply, err := s.Tick(t.Context(), claim)
		require.NoError(t, err)
		want := s.req.Known
		want.Raw, want.Job, want.Since = strings.Replace(want.Raw, "1 f1-j1 1000 ", "1 f1-j2 2000 ", 1), "j2", time.UnixMilli(2000)
		require.Equal(t, want, reply.Record, "all else is as before")
		require.Len(t, s.list("queue:q"), 1)
		require.Equal(t, claim.Shown, s.redis.HGet(t.Context(), s.key("resqued:schedules"), "nightly").Val())
		s.ask(store.TickChanged)

		look := func(keeper, print string, renew time.Duration) map[string]store.KeptNote {
			t.Helper()
			reply, err := s.Schedules(t.Context(), store.SchedulesRequest{Names: []string{"x", "nightly"}, Prints: []string{"y", print}, Keeper: keeper, Renew: renew})
			require.NoError(t, err)
			return reply.Kept
		}
		look("", "f1-j2", 0)
		look("other", "f1-j1", 0)
		require.Empty(t, look("a", "f1-j2", time.Minute), "who keeps none, or another one, notes nothing")
		first := look("b", "f1-j2", time.Minute)["nightly"]
		require.Equal(t, "a", first.Keeper)
		require.Equal(t, first, look("b", "f1-j2", 0)["nightly"], "it was young")
		second := look("", "", 0)["nightly"]
		require.Equal(t, "b", second.Keeper)

		require.NoError(t, s.ForgetRemoved(t.Context(), map[string]store.KeptNote{"nightly": first}))
		require.True(t, s.redis.HExists(t.Context(), s.key("resqued:cron"), "nightly").Val())
		require.NoError(t, s.ForgetRemoved(t.Context(), map[string]store.KeptNote{"nightly": second}))
		for _, key := range []string{"resqued:cron", "resqued:schedules", "resqued:schedules:kept"} {
			require.Zero(t, s.redis.Exists(t.Context(), s.key(key)).Val(), key)
		}
		require.NoError(t, s.redis.Set(t.Context(), s.key("resqued:schedules:kept"), "x", 0).Err())
		_, err = s.Schedules(t.Context(), store.SchedulesRequest{})
		require.ErrorContains(t, err, "schedules:kept is not a hash")
	})
}

// The schedules in Redis are returned once, and again when they have changed.
func TestSchedules(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		s := newSchedule(t, server)
		ask := func(digest string) store.SchedulesReply {
			t.Helper()
			reply, err := s.Schedules(t.Context(), store.SchedulesRequest{Names: []string{"other", "nightly"}, Stored: true, Digest: digest})
			require.NoError(t, err)
			require.True(t, reply.InCharge)
			require.Len(t, reply.Records, 2)
			require.Empty(t, reply.Records[0].Raw)
			require.Equal(t, s.req.Known, reply.Records[1])
			return reply
		}
		first := ask("")
		require.Empty(t, first.Stored)
		require.Nil(t, ask(first.Digest).Stored)
		require.NoError(t, s.redis.HSet(t.Context(), s.key("persistent_schedules"), "a", "1", "b", "2").Err())
		second := ask(first.Digest)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, second.Stored)
		require.Nil(t, ask(second.Digest).Stored)
		require.NoError(t, s.redis.HSet(t.Context(), s.key("persistent_schedules"), "a", "3").Err())
		require.Equal(t, map[string]string{"a": "3", "b": "2"}, ask(second.Digest).Stored)
		s.next()
		reply, err := s.Schedules(t.Context(), store.SchedulesRequest{Names: []string{"nightly"}})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), reply.Last[0], time.Minute)
		require.NoError(t, s.redis.Del(t.Context(), s.key("persistent_schedules")).Err())
		require.NoError(t, s.redis.Set(t.Context(), s.key("persistent_schedules"), "x", 0).Err())
		_, err = s.Schedules(t.Context(), store.SchedulesRequest{Stored: true})
		require.ErrorContains(t, err, "is not a hash")
	})
}

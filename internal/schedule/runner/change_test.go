package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
)

func (r *rig) length(queue string) int {
	r.t.Helper()
	return int(r.redis.LLen(r.t.Context(), r.key("queue:"+queue)).Val())
}

func (r *rig) eventually(what func() bool) {
	r.t.Helper()
	require.Eventually(r.t, what, 2*time.Minute, 10*time.Millisecond)
}

// Of two definitions the one that was read last counts, until the other is read again.
func TestTheNewestDefinitionCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, stop := context.WithCancel(t.Context())
	old, recent := secondly("s"), secondly("s")
	old.Queue, recent.Queue, recent.Cron = "old", "recent", "*/1 * * * * *"
	oldRunner := New(&master{Store: r.open(), rig: r, rate: 1}, nopLogger())
	oldRunner.Set(Config{Schedules: []schedule.Definition{old}})
	done := make(chan struct{}, 2)
	go func() { oldRunner.Run(ctx); done <- struct{}{} }()
	r.eventually(func() bool { return r.length("old") > 0 })

	newRunner := New(&master{Store: r.open(), rig: r, rate: 1}, nopLogger())
	newRunner.Set(Config{Schedules: []schedule.Definition{recent}})
	go func() { newRunner.Run(ctx); done <- struct{}{} }()
	r.eventually(func() bool { return r.length("recent") > 0 })
	before := r.length("old")
	at := r.length("recent")
	r.eventually(func() bool { return r.length("recent") > at+1 })
	require.Equal(t, before, r.length("old"), "the older one waits")

	oldRunner.Set(Config{Schedules: []schedule.Definition{old}}) // HUP
	r.eventually(func() bool { return r.length("old") > before })
	at = r.length("recent")
	r.eventually(func() bool { return r.length("old") > before+2 })
	require.Equal(t, at, r.length("recent"))
	stop()
	<-done
	<-done
}

// begun starts a schedule whose ticks were not handled for a while, and returns what
// is enqueued at once.
func (r *rig) begun(s schedule.Definition, silence time.Duration, c Config) int {
	r.t.Helper()
	timing, err := s.Timing()
	require.NoError(r.t, err)
	from := time.Now().Add(-silence)
	record := fmt.Sprintf("1 %s 1000 %d 0 0 new 0 0", store.CronPrint(timing.Fingerprint(), ""), from.UnixMilli())
	require.NoError(r.t, r.redis.HSet(r.t.Context(), r.key("resqued:cron"), s.Name, record).Err())
	c.Schedules = []schedule.Definition{s}
	ctx, stop := context.WithCancel(r.t.Context())
	done := r.start(ctx, &master{Store: r.open()}, c)
	r.eventually(func() bool { return r.record(s.Name).From.After(time.Now().Add(-time.Minute - time.Second)) })
	stop()
	<-done
	return r.length(s.Queue)
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	for catchUp, want := range map[string][2]int{"none": {0, 2}, "last": {1, 3}, "all": {9, 12}} {
		r := newRig(t)
		s := schedule.Definition{Name: "m", Class: "M", Queue: "q", Args: json.RawMessage("[]"), Cron: "* * * * *", CatchUp: catchUp}
		n := r.begun(s, 10*time.Minute, Config{})
		require.GreaterOrEqual(t, n, want[0], catchUp)
		require.LessOrEqual(t, n, want[1], catchUp)
	}
}

// Jobs that a Ruby scheduler enqueued while it was in charge are not enqueued again.
func TestAfterARubyScheduler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := schedule.Definition{Name: "m", Class: "M", Queue: "q", Args: json.RawMessage("[]"), Cron: "* * * * *", CatchUp: schedule.CatchUpAll}
	last := time.Now().Add(-3 * time.Minute).Format("2006-01-02 15:04:05 -0700")
	require.NoError(t, r.redis.HSet(t.Context(), r.key("delayed:last_enqueued_at"), "m", last).Err())
	n := r.begun(s, time.Hour, Config{SchedulerLock: store.SchedulerLock{Me: "resqued:here:1"}})
	require.GreaterOrEqual(t, n, 2)
	require.LessOrEqual(t, n, 4)
}

// A schedule of resque-scheduler, and one that cannot be used beside it.
func TestStoredSchedules(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, r.redis.HSet(t.Context(), r.key("persistent_schedules"),
		"ruby", `{"class":"Tea","every":"1s","args":["green"],"queue":"kitchen"}`, "bad", `{"class":"Tea","every":"soon"}`,
		"test", `{"class":"Tea","every":"1s","queue":"test","rails_env":"test"}`, "mine", `{"class":"Theirs","every":"1s","queue":"theirs"}`).Err())
	ctx, stop := context.WithCancel(t.Context())
	mine := secondly("mine")
	done := r.start(ctx, &master{Store: r.open()}, Config{Stored: true, Schedules: []schedule.Definition{mine}, Defaults: schedule.Defaults{RailsEnv: "production"}})
	r.eventually(func() bool { return r.length("kitchen") > 0 && r.length("theirs") > 0 })
	require.Equal(t, `{"class":"Tea","args":["green"]}`, r.redis.LIndex(t.Context(), r.key("queue:kitchen"), 0).Val())
	require.Zero(t, r.length("test")+r.length("mine"))
	// A removed schedule enqueues nothing from that moment on.
	require.NoError(t, r.redis.HDel(t.Context(), r.key("persistent_schedules"), "ruby", "mine").Err())
	n := r.length("kitchen")
	// Nor is it known any more: added again it counts from then on.
	r.eventually(func() bool {
		return !r.redis.HExists(r.t.Context(), r.key("resqued:schedules"), "ruby").Val() && !r.redis.HExists(r.t.Context(), r.key("resqued:cron"), "ruby").Val()
	})
	// The configuration's own takes its place.
	r.eventually(func() bool {
		return r.redis.HExists(t.Context(), r.key("resqued:cron"), "mine").Val() && r.length("mine") > 1
	})
	require.Equal(t, n, r.length("kitchen"))
	stop()
	<-done
}

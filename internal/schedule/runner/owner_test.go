package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/schedule"
)

// host is a daemon that keeps schedules, with a log to look into. It looks often.
type host struct {
	*Runner
	log  *observer.ObservedLogs
	rig  *rig
	stop func()
}

func (r *rig) host(c Config) *host {
	r.t.Helper()
	core, log := observer.New(zap.DebugLevel)
	h := &host{Runner: New(&master{Store: r.open(), rig: r, rate: 1}, zap.New(core)), log: log, rig: r}
	h.lookEvery, h.away = 50*time.Millisecond, 2*time.Second
	if c.Keeper == "" {
		c.Keeper = "somewhere"
	}
	h.Set(c)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	h.stop = func() { cancel(); <-done }
	r.t.Cleanup(h.stop)
	return h
}

// A daemon that removes a schedule right after its first tick forgets it, too: that it has the schedule is noted with the
// record, not with the next look.
func TestKeptFromTheBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := New(&master{Store: r.open(), rig: r, rate: 1}, nopLogger())
	h.lookEvery = time.Hour
	h.Set(withKeeper(of(secondly("s"))))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	r.eventually(func() bool { return r.length("s") > 0 })
	cancel()
	<-done
	require.Regexp(t, `^\d+ somewhere$`, r.redis.HGet(t.Context(), r.key("resqued:schedules:kept"), "s").Val())
}

func (h *host) says(text string) {
	h.rig.t.Helper()
	h.rig.eventually(func() bool { return h.log.FilterMessageSnippet(text).Len() > 0 })
}

func of(all ...schedule.Definition) Config { return Config{Schedules: all} }

// When the daemons with the newest definition have left, that of the others counts again.
func TestAnOlderDefinitionCountsWhenTheNewerHasLeft(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*schedule.Definition){
		"other times": func(s *schedule.Definition) { s.Cron = "*/1 * * * * *" },
		"another job": func(*schedule.Definition) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			old, recent := secondly("s"), secondly("s")
			old.Queue, recent.Queue = "old", "recent"
			change(&recent)
			first := r.host(of(old))
			r.eventually(func() bool { return r.length("old") > 0 })
			second := r.host(of(recent))
			r.eventually(func() bool { return r.length("recent") > 0 })
			first.says("another daemon has a newer definition")
			n := r.length("old")
			at := r.length("recent")
			r.eventually(func() bool { return r.length("recent") > at+2 }) // longer than one that is away is waited for
			require.Equal(t, n, r.length("old"))
			second.stop()
			r.eventually(func() bool { return r.length("old") > n })
			first.says("have left")
			// It comes back: it is the newest again.
			third := r.host(of(recent))
			at = r.length("recent")
			r.eventually(func() bool { return r.length("recent") > at })
			third.stop()
			n = r.length("old")
			r.eventually(func() bool { return r.length("old") > n })
		})
	}
}

// A definition with the same times and another job does not move the ticks: each comes once,
// whichever of them counts.
func TestAnotherJobDoesNotMoveTheTicks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := secondly("s"), secondly("s")
	two.Args = json.RawMessage(`["two"]`)
	first := r.host(of(one))
	r.eventually(func() bool { return r.length("s") > 0 })
	second := r.host(of(two))
	for range 2 { // HUP here and there
		n := r.length("s")
		r.eventually(func() bool { return r.length("s") > n })
		first.Set(of(one))
		n = r.length("s")
		r.eventually(func() bool { return r.length("s") > n })
		second.Set(of(two))
	}
	first.stop()
	second.stop()
	r.exact(one, 4)
}

// Two definitions that were read in the same millisecond do not fight.
func TestDefinitionsOfTheSameTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := secondly("s"), secondly("s")
	b.Queue = "b"
	one, two := &entry{}, &entry{}
	for e, s := range map[*entry]schedule.Definition{one: a, two: b} {
		made, err := (&plan{}).entry(s)
		require.NoError(t, err)
		*e = *made
		e.since = time.UnixMilli(5000)
	}
	records := func(e *entry) string {
		return fmt.Sprintf("1 %s 5000 %d 0 0 new 0 0", e.print(), time.Now().UnixMilli())
	}
	older := 0
	for _, pair := range [][2]*entry{{one, two}, {two, one}} {
		require.NoError(t, r.redis.HSet(t.Context(), r.key("resqued:cron"), "s", records(pair[1])).Err())
		if pair[0].older(r.record("s")) {
			older++
		}
	}
	require.Equal(t, 1, older)
}

// A schedule that was removed and is added again counts from then on.
func TestAddedAgain(t *testing.T) {
	t.Parallel()
	s, other := secondly("s"), secondly("other")
	for name, remove := range map[string]func(*rig, *host) *host{
		"by HUP":                  func(_ *rig, h *host) *host { h.Set(withKeeper(of(other))); return h },
		"by a restart":            func(r *rig, h *host) *host { h.stop(); return r.host(of(other)) },
		"by a restart, the last":  func(r *rig, h *host) *host { h.stop(); return r.host(Config{}) },
		"by HUP, it was the last": func(_ *rig, h *host) *host { h.Set(withKeeper(Config{})); return h },
		"by a restart of one of two": func(r *rig, h *host) *host {
			h.stop()
			return r.host(of(other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			h := r.host(of(s, other))
			r.eventually(func() bool { return r.length("s") > 0 })
			h = remove(r, h)
			r.eventually(func() bool { return !r.redis.HExists(t.Context(), r.key("resqued:cron"), "s").Val() })
			h.says("no daemon has a schedule any more")
			require.False(t, r.redis.HExists(t.Context(), r.key("resqued:schedules"), "s").Val())
			require.False(t, r.redis.HExists(t.Context(), r.key("resqued:schedules:kept"), "s").Val())
			n := r.length("s")
			again := time.Now()
			h.Set(withKeeper(of(s, other)))
			r.eventually(func() bool { return r.length("s") > n })
			require.Less(t, r.length("s")-n, 3+int(time.Since(again)/time.Second))
		})
	}
}

func withKeeper(c Config) Config {
	c.Keeper = "somewhere"
	return c
}

// Schedules of another daemon are not forgotten: it may be down.
func TestSchedulesOfOthersAreNotForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	theirs := of(secondly("theirs"))
	theirs.Keeper = "elsewhere"
	them := r.host(theirs)
	r.eventually(func() bool { return r.length("theirs") > 0 })
	us := r.host(of(secondly("ours"), secondly("gone")))
	r.eventually(func() bool { return r.redis.HExists(t.Context(), r.key("resqued:schedules:kept"), "gone").Val() })
	them.stop()
	us.Set(withKeeper(of(secondly("ours"))))
	us.says("no daemon has a schedule any more")
	require.True(t, r.redis.HExists(t.Context(), r.key("resqued:cron"), "theirs").Val())
	require.False(t, r.redis.HExists(t.Context(), r.key("resqued:cron"), "gone").Val())
}

// The log names missed ticks: how many, from when to when, and why.
func TestMissedTicksAreNamed(t *testing.T) {
	t.Parallel()
	for catchUp, want := range map[string][2]int{"none": {9, 0}, "last": {9, 1}, "all": {9, 9}} {
		t.Run(catchUp, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := schedule.Definition{Name: "m", Class: "M", Queue: "q", Args: json.RawMessage("[]"), Every: "60s", CatchUp: catchUp}
			made, err := (&plan{}).entry(s)
			require.NoError(t, err)
			from := time.Now().Add(-10*time.Minute - 30*time.Second).Truncate(time.Millisecond)
			record := fmt.Sprintf("1 %s 1000 %d 0 0 new 0 0", made.print(), from.UnixMilli())
			require.NoError(t, r.redis.HSet(t.Context(), r.key("resqued:cron"), s.Name, record).Err())
			h := r.host(of(s))
			h.says("ticks of a schedule were missed")
			h.stop()
			entries := h.log.FilterMessageSnippet("missed").All()
			require.Len(t, entries, 1)
			fields := entries[0].ContextMap()
			require.Equal(t, "m", fields["schedule"])
			require.EqualValues(t, want[0], fields["missed"])
			require.EqualValues(t, want[1], fields["made_up"])
			require.WithinDuration(t, from.Add(time.Minute), fields["from"].(time.Time), 0)
			require.WithinDuration(t, from.Add(9*time.Minute), fields["to"].(time.Time), 0)
			require.Equal(t, "no daemon with this schedule ran", fields["why"])
		})
	}
}

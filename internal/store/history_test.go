package store_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

var (
	historyAt = time.Date(2026, 11, 24, 15, 7, 30, 0, time.UTC)
	historyOf = history.Name{Kind: history.Class, Name: "Mail"}
)

// counted are the sums of one minute: jobs of Mail and, if more are named, of these.
func counted(t *testing.T, runs int, classes ...string) []history.Series {
	t.Helper()
	var sums history.Sums
	host := history.NewCollector("vm")
	for _, class := range append(classes, "Mail") {
		for range runs {
			sums.Add(class, "out", history.Processed, 20*time.Millisecond, time.Second)
		}
	}
	for packet := sums.Take(); packet != nil; packet = sums.Take() {
		require.NoError(t, host.Add(historyAt, packet))
	}
	return host.Take()
}

// historyWorksAt writes and reads a history.
func historyWorksAt(t *testing.T, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	left, err := s.AddHistory(ctx, counted(t, 3))
	require.NoError(t, err)
	require.Empty(t, left)
	points, err := s.History(ctx, history.Query{Name: historyOf, From: historyAt, To: historyAt.Add(time.Second), Step: history.Hour})
	require.NoError(t, err)
	require.Len(t, points[0], 1)
	require.Positive(t, points[0][0].Run.Count())
	_, err = s.NoteLevels(ctx, time.Now())
	require.NoError(t, err)
	require.NoError(t, s.NoteEvent(ctx, store.Event{Kind: store.EventStarted}))
	events, err := s.Events(ctx, "", 1)
	require.NoError(t, err)
	require.Len(t, events, 1)
	names, err := s.HistoryNames(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, names)
	require.NoError(t, s.ForgetHistory(ctx, []history.Name{names[0].Name}))
}

func (f *fixture) total(name history.Name) history.Sum {
	f.t.Helper()
	sums, err := f.HistoryTotals(f.t.Context(), name)
	require.NoError(f.t, err)
	return sums[0]
}

func TestHistory(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)

	t.Run("what two masters have counted adds up, minute by minute, hour by hour and all in all", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		for range 2 {
			left, err := f.AddHistory(t.Context(), counted(t, 3, "Report"))
			require.NoError(t, err)
			require.Empty(t, left)
		}
		queries := []history.Query{
			{Name: historyOf, From: historyAt.Add(-time.Hour), To: historyAt.Add(time.Minute), Step: history.Minute},
			{Name: history.AllJobs(), From: historyAt.Add(-time.Hour), To: historyAt.Add(time.Minute), Step: history.FiveMinutes},
			{Name: history.Name{Kind: history.Queue, Name: "out"}, From: historyAt.Add(-48 * time.Hour), To: historyAt.Add(time.Minute), Step: history.Hour},
			{Name: history.Name{Kind: history.Class, Name: "None"}, From: historyAt, To: historyAt.Add(time.Minute), Step: history.Hour},
		}
		series, err := f.History(t.Context(), queries...)
		require.NoError(t, err)
		for i, runs := range []uint64{6, 12, 12, 0} {
			var all history.Sum
			for _, p := range series[i] {
				all.Merge(&p.Sum)
			}
			require.Equal(t, runs, all.Runs)
			require.Equal(t, runs*20_000, all.Micros)
			if queries[i].Step != history.Minute {
				require.Equal(t, runs, all.Run.Count())
				require.Equal(t, runs, all.Wait.Count())
			}
		}
		require.EqualValues(t, 12, f.total(history.Name{Kind: history.Host, Name: "vm"}).Runs)
		hour := f.key("resqued:hist:c:Mail:h" + fmt.Sprint(historyAt.Unix()/3600))
		require.EqualValues(t, 3264, f.redis.StrLen(t.Context(), hour).Val())
		require.InDelta(t, 26*3600, f.redis.TTL(t.Context(), hour).Val().Seconds(), 60)
		require.EqualValues(t, -1, f.redis.TTL(t.Context(), f.key("resqued:hist:c:Mail:total")).Val())
		names, err := f.HistoryNames(t.Context())
		require.NoError(t, err)
		require.Len(t, names, 5)
		require.Equal(t, store.NamedSeries{Name: historyOf, Last: historyAt.Truncate(time.Minute)}, names[0])

		require.NoError(t, f.ForgetHistory(t.Context(), []history.Name{historyOf}))
		require.Zero(t, f.total(historyOf))
		names, err = f.HistoryNames(t.Context())
		require.NoError(t, err)
		require.Len(t, names, 4)
	})

	t.Run("foreign values are in nobody's way", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		hour := fmt.Sprint(historyAt.Unix() / 3600)
		require.NoError(t, f.redis.RPush(t.Context(), f.key("resqued:hist:c:Mail:h"+hour), "x").Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:hist:t:all:h"+hour), strings.Repeat("\xff", 1<<20), 0).Err())
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key(history.KeyNames), redis.Z{Score: 1e300, Member: "x:\xff"}, redis.Z{Score: -1, Member: "q:old"}).Err())
		left, err := f.AddHistory(t.Context(), counted(t, 3, "Report"))
		require.ErrorContains(t, err, "WRONGTYPE")
		require.True(t, store.HistoryBroken(err))
		require.Empty(t, left)
		require.EqualValues(t, 3, f.total(historyOf).Runs)
		require.EqualValues(t, 3, f.total(history.Name{Kind: history.Class, Name: "Report"}).Runs)
		series, err := f.History(t.Context(), history.Query{Name: historyOf, From: historyAt, To: historyAt.Add(time.Minute), Step: history.FiveMinutes},
			history.Query{Name: history.AllJobs(), From: historyAt, To: historyAt.Add(time.Minute), Step: history.FiveMinutes})
		require.NoError(t, err)
		require.Zero(t, series[0][0].Runs)
		require.Positive(t, series[1][0].Runs)
		names, err := f.HistoryNames(t.Context())
		require.NoError(t, err)
		require.Len(t, names, 6)
		require.NoError(t, f.redis.Set(t.Context(), f.key(history.KeyNames+"2"), "x", 0).Err())
		require.NoError(t, f.redis.Rename(t.Context(), f.key(history.KeyNames+"2"), f.key(history.KeyNames)).Err())
		_, err = f.HistoryNames(t.Context())
		require.ErrorContains(t, err, "WRONGTYPE")
	})

	t.Run("a write whose answer is lost is not repeated, one that was not sent may be", func(t *testing.T) {
		t.Parallel()
		alone := redistest.Start(t, redistest.Options{})
		f := setup(t, alone)
		lost := &loseAnswers{}
		f.Redis().Write.AddHook(lost)
		lost.on = true
		many := counted(t, 1, manyClasses(250)...)
		left, err := f.AddHistory(t.Context(), many)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		lost.on = false
		sent := f.total(history.AllJobs()).Runs + uint64(len(left[0].Sums))
		require.EqualValues(t, len(many[0].Sums)-100, len(left[0].Sums), "of the first batch it is not known")
		require.Positive(t, sent)
		left, err = f.AddHistory(t.Context(), left)
		require.NoError(t, err)
		require.Empty(t, left)
		for _, class := range manyClasses(250) {
			require.EqualValues(t, 1, f.total(history.Name{Kind: history.Class, Name: class}).Runs, "once, as the first batch was written")
		}

		alone.Stop()
		left, err = f.AddHistory(t.Context(), many)
		require.Error(t, err)
		require.Len(t, left[0].Sums, len(many[0].Sums))
	})

	t.Run("one of many notes how long queues are", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		now := time.Now()
		f.push("old", fmt.Sprintf(`{"class":"A","args":[],"enqueued_at":%d}`, now.Add(-90*time.Second).Unix()), job("A", "[2]"))
		f.push("foreign", "no job at all")
		f.push("empty")
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), "empty", "odd", strings.Repeat("x", 300)).Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("queue:odd"), "x", 0).Err())
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("resqued:blocked:old"), "l1", "l2").Err())
		for i := range 3 {
			mine, err := f.NoteLevels(t.Context(), now)
			require.NoError(t, err)
			require.Equal(t, i == 0, mine)
		}
		level := func(queue string) history.Level {
			levels, err := f.QueueLevels(t.Context(), history.Levels{Queue: queue, From: now.Truncate(time.Minute), To: now.Truncate(time.Minute).Add(time.Minute)})
			require.NoError(t, err)
			require.Len(t, levels, 1)
			levels[0].At = time.Time{}
			return levels[0]
		}
		old := level("old")
		require.InDelta(t, 90, old.Oldest.Seconds(), 2)
		require.Equal(t, history.Level{Jobs: 2, Oldest: old.Oldest, Locked: 2}, old)
		require.Equal(t, history.Level{Jobs: 1, Oldest: history.Unknown}, level("foreign"))
		require.Zero(t, level("odd"))
		require.Zero(t, level("empty"))
		require.False(t, f.exists("resqued:hist:q:empty:g"+fmt.Sprint(now.Unix()/3600)))
	})
}

func manyClasses(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("Class%d", i))
	}
	return names
}

// loseAnswers loses the answer of each pipeline that writes a history.
type loseAnswers struct{ on bool }

func (l *loseAnswers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *loseAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *loseAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if !l.on || cmds[0].Name() != "zadd" {
			return err
		}
		for _, cmd := range cmds {
			cmd.SetErr(io.ErrUnexpectedEOF)
		}
		return io.ErrUnexpectedEOF
	}
}

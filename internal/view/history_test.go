package view_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// pastStore is a history of a few names; each has its sum in the last point of a query.
type pastStore struct {
	sums map[history.Name]*history.Sum
	last time.Time
	err  error
	read []history.Query
}

func (s *pastStore) HistoryNames(context.Context) (names []store.NamedSeries, err error) {
	for n := range s.sums {
		names = append(names, store.NamedSeries{Name: n, Last: s.last})
	}
	return names, s.err
}

func (s *pastStore) History(_ context.Context, queries ...history.Query) ([][]history.Point, error) {
	s.read = append(s.read, queries...)
	out := make([][]history.Point, len(queries))
	for i, q := range queries {
		out[i] = []history.Point{{At: q.From}, {At: q.From.Add(time.Duration(q.Step))}}
		if sum := s.sums[q.Name]; sum != nil {
			out[i][1].Sum = *sum
		}
	}
	return out, s.err
}

func (s *pastStore) HistoryTotals(_ context.Context, names ...history.Name) ([]history.Sum, error) {
	out := make([]history.Sum, len(names))
	for i, n := range names {
		out[i] = *s.sums[n]
	}
	return out, s.err
}

func (s *pastStore) QueueLevels(_ context.Context, q history.Levels) ([]history.Level, error) {
	return []history.Level{{At: q.From, Jobs: 3, Oldest: 90 * time.Second, Locked: 1}, {At: q.To, Jobs: 0, Oldest: 0}, {At: q.To, Jobs: 1 << 62, Oldest: history.Unknown}}, s.err
}

func sumOf(n int, each time.Duration) *history.Sum {
	s := &history.Sum{}
	for range n {
		s.Add(history.Processed, each, history.Unknown)
	}
	return s
}

func TestClasses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	s := &pastStore{last: now, sums: map[history.Name]*history.Sum{
		history.AllJobs(): sumOf(20, time.Second), {Kind: history.Class, Name: "Quick"}: sumOf(10, time.Millisecond), {Kind: history.Class, Name: "Slow"}: sumOf(10, time.Second),
		{Kind: history.Class, Name: "None"}: {}, {Kind: history.Queue, Name: "mail"}: sumOf(20, time.Second),
	}}
	classes, err := view.Classes(t.Context(), s, view.Spans[0], now)
	require.NoError(t, err)
	require.Len(t, classes, 2, "queues are not classes, and what did not run is left out")
	require.Equal(t, "Slow", classes[0].Class)
	require.InDelta(t, .5, classes[0].Share, .01)
	require.EqualValues(t, 10, classes[0].Runs)
	require.InDelta(t, 1000, *classes[0].P50, 300)
	require.Nil(t, classes[0].Wait)
	require.Equal(t, []int64{0, 10}, classes[0].Steps)
	require.EqualValues(t, 10, classes[0].Before.Runs)
	for _, q := range s.read {
		require.GreaterOrEqual(t, q.Step, history.FiveMinutes, "points of a minute know no percentiles")
	}

	s.last = now.Add(-3 * time.Hour)
	classes, err = view.Classes(t.Context(), s, view.Spans[0], now)
	require.NoError(t, err)
	require.Empty(t, classes, "names that were written last before the span are not read")
	s.err = errors.New("away")
	_, err = view.Classes(t.Context(), s, view.Spans[2], now)
	require.ErrorIs(t, err, s.err)
}

func TestSeriesName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]history.Name{
		"": history.AllJobs(), "all": history.AllJobs(), "class:A::B": {Kind: history.Class, Name: "A::B"}, "queue:mail": {Kind: history.Queue, Name: "mail"}, "host:web-1": {Kind: history.Host, Name: "web-1"},
	} {
		name, err := view.SeriesName(text)
		require.NoError(t, err)
		require.Equal(t, want, name)
		again, err := view.SeriesName(view.SeriesText(name))
		require.NoError(t, err)
		require.Equal(t, name, again)
	}
	for _, text := range []string{"mail", "class:", ":", "t:all", "c:Mail"} {
		_, err := view.SeriesName(text)
		require.Error(t, err, text)
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	levels, err := view.Levels(t.Context(), &pastStore{}, "mail", now.Add(-time.Hour), now)
	require.NoError(t, err)
	require.EqualValues(t, 90, *levels[0].OldestS)
	require.Nil(t, levels[1].OldestS, "an empty queue has no oldest job")
	require.Nil(t, levels[2].OldestS)
	require.Positive(t, levels[2].Jobs)
}

func TestDaemonText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "web-1:4700", view.DaemonText("web-1:b00t:4700-12"))
	require.Equal(t, "web-1:4700 #1", view.DaemonText("web-1:b00t:4700-12:1.25"))
	require.Equal(t, "queue mail", view.DaemonText("queue mail"))
	require.Equal(t, "ann@web-1", view.DaemonText("ann@web-1"))
}

package view

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/store"
)

// HistoryStore is what views of the history need of the store.
type HistoryStore interface {
	HistoryNames(ctx context.Context) ([]store.NamedSeries, error)
	History(ctx context.Context, queries ...history.Query) ([][]history.Point, error)
	HistoryTotals(ctx context.Context, names ...history.Name) ([]history.Sum, error)
	QueueLevels(ctx context.Context, q history.Levels) ([]history.Level, error)
}

// Span is a length of time up to now that people look at.
type Span struct {
	// Name is how it is asked for: "24h".
	Name   string
	Length time.Duration
	// Step is how far the points of a chart of it are apart.
	Step time.Duration
}

// Spans are those that the history in Redis reaches back.
var Spans = []Span{
	{"1h", time.Hour, time.Minute},
	{"24h", 24 * time.Hour, 5 * time.Minute},
	{"30d", 30 * 24 * time.Hour, time.Hour},
}

// SeriesError is returned for what names no series of the history.
type SeriesError struct{ Series string }

func (e *SeriesError) Error() string {
	return fmt.Sprintf("%q names no series of the history; use all, or class:, queue: or host: with a name", e.Series)
}

// kinds of series, as people write them.
var seriesKinds = map[string]history.Kind{"class": history.Class, "queue": history.Queue, "host": history.Host}

// SeriesName reads the name of a series: "all", "class:Mail", "queue:mail", "host:web-1".
func SeriesName(text string) (history.Name, error) {
	if text == "" || text == history.Everything {
		return history.AllJobs(), nil
	}
	word, name, _ := strings.Cut(text, ":")
	kind, ok := seriesKinds[word]
	if !ok || name == "" || len(name) > history.MaxName {
		return history.Name{}, &SeriesError{text}
	}
	return history.Name{Kind: kind, Name: name}, nil
}

// SeriesText is the opposite of SeriesName.
func SeriesText(name history.Name) string {
	for word, kind := range seriesKinds {
		if kind == name.Kind {
			return word + ":" + name.Name
		}
	}
	return history.Everything
}

// Point is what was counted from At on until the next point.
type Point struct {
	At time.Time `json:"at"`
	Tally
}

// Tally is what there is to say of jobs that have ended.
type Tally struct {
	// Runs are the jobs that Resque's counter of processed jobs counts, Failed those of them that
	// failed. NotRun went back to their queue as if they had not run, or were dropped; those that
	// were dropped are among Runs.
	Runs   int64 `json:"runs"`
	Failed int64 `json:"failed"`
	NotRun int64 `json:"not_run"`
	// Seconds is the time in handlers.
	Seconds float64 `json:"seconds"`
	// The times in milliseconds that a share of the jobs stayed within, to about 15 %; null where
	// that is not known: nothing was counted, or points are a minute apart.
	P50  *float64 `json:"p50_ms"`
	P95  *float64 `json:"p95_ms"`
	P99  *float64 `json:"p99_ms"`
	Wait *float64 `json:"wait_p95_ms"`
}

// TallyOf puts a sum into words that people use.
func TallyOf(s *history.Sum) Tally {
	ms := func(d time.Duration, ok bool) *float64 {
		if !ok {
			return nil
		}
		v := math.Round(float64(d)/float64(time.Millisecond)*10) / 10
		return &v
	}
	return Tally{
		Runs: whole(s.Runs), Failed: whole(s.Failed), NotRun: whole(s.Unrun), Seconds: float64(s.Micros) / 1e6,
		P50: ms(s.Run.Percentile(.5)), P95: ms(s.Run.Percentile(.95)), P99: ms(s.Run.Percentile(.99)), Wait: ms(s.Wait.Percentile(.95)),
	}
}

// whole returns a count that JSON and int64 hold: a foreign string may say anything.
func whole(n uint64) int64 { return int64(min(n, 1<<53)) }

// Series returns the points of a series from a time on until another, each of one step: a minute,
// five minutes or an hour.
func Series(ctx context.Context, s HistoryStore, name history.Name, from, to time.Time, step time.Duration) ([]Point, error) {
	read, err := s.History(ctx, history.Query{Name: name, From: from, To: to, Step: history.Step(step)})
	if err != nil {
		return nil, err
	}
	points := make([]Point, len(read[0]))
	for i, p := range read[0] {
		points[i] = Point{At: p.At, Tally: TallyOf(&p.Sum)}
	}
	return points, nil
}

// Level is how long a queue was at a time.
type Level struct {
	At   time.Time `json:"at"`
	Jobs int64     `json:"jobs"`
	// OldestS is for how many seconds the first job had waited; null = it does not tell.
	OldestS *int64 `json:"oldest_s"`
	// Locks is how many locks were in the way of its jobs.
	Locks int64 `json:"locks"`
}

// Levels returns how long a queue was, minute by minute; of the last day at most.
func Levels(ctx context.Context, s HistoryStore, queue string, from, to time.Time) ([]Level, error) {
	read, err := s.QueueLevels(ctx, history.Levels{Queue: queue, From: from, To: to})
	if err != nil {
		return nil, err
	}
	levels := make([]Level, len(read))
	for i, l := range read {
		levels[i] = Level{At: l.At, Jobs: whole(l.Jobs), Locks: whole(l.Locked)}
		if l.Oldest >= 0 && l.Jobs > 0 {
			age := seconds(l.Oldest)
			levels[i].OldestS = &age
		}
	}
	return levels, nil
}

// Class is what the jobs of a class have cost in a span.
type Class struct {
	Class string `json:"class"`
	Tally
	// Share is the part that Seconds are of those of all jobs, between 0 and 1.
	Share float64 `json:"share"`
	// Steps are the runs by time, in steps of the span, the newest last. Null in lists of JSON.
	Steps []int64 `json:"-"`
}

// Classes returns all classes of which something has run in a span up to now, those first that
// took most time. What has no place of its own in the history counts as "(other)".
func Classes(ctx context.Context, s HistoryStore, span Span, now time.Time) ([]Class, error) {
	names, err := s.HistoryNames(ctx)
	if err != nil {
		return nil, err
	}
	from := now.Add(-span.Length)
	names = slices.DeleteFunc(names, func(n store.NamedSeries) bool { return n.Kind != history.Class || n.Last.Before(from.Add(-time.Hour)) })
	// Points of a minute know no percentiles.
	q := history.Query{From: from, To: now, Step: max(history.Step(span.Step), history.FiveMinutes)}
	q.Name = history.AllJobs()
	queries := append(make([]history.Query, 0, len(names)+1), q)
	for _, n := range names {
		q.Name = n.Name
		queries = append(queries, q)
	}
	read, err := s.History(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var all history.Sum
	for _, p := range read[0] {
		all.Merge(&p.Sum)
	}
	var classes []Class
	for i, points := range read[1:] {
		var sum history.Sum
		c := Class{Class: names[i].Name.Name, Steps: make([]int64, len(points))}
		for j, p := range points {
			sum.Merge(&p.Sum)
			c.Steps[j] = whole(p.Runs)
		}
		if sum.Empty() {
			continue
		}
		c.Tally = TallyOf(&sum)
		if all.Micros > 0 {
			c.Share = min(1, float64(sum.Micros)/float64(all.Micros))
		}
		classes = append(classes, c)
	}
	slices.SortStableFunc(classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), strings.Compare(a.Class, b.Class))
	})
	return classes, nil
}

// Total is what a series has counted since its beginning.
type Total struct {
	history.Name
	history.Sum
}

// Totals returns what all series have counted since their beginnings, those first that have
// counted most.
func Totals(ctx context.Context, s HistoryStore) ([]Total, error) {
	series, err := s.HistoryNames(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]history.Name, len(series))
	for i, n := range series {
		names[i] = n.Name
	}
	sums, err := s.HistoryTotals(ctx, names...)
	if err != nil {
		return nil, err
	}
	totals := make([]Total, len(names))
	for i, name := range names {
		totals[i] = Total{name, sums[i]}
	}
	slices.SortStableFunc(totals, func(a, b Total) int { return cmp.Compare(b.Runs, a.Runs) })
	return totals, nil
}

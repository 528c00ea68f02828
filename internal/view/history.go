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
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
)

// HistoryStore is what views of the history need of the store.
type HistoryStore interface {
	HistoryNames(ctx context.Context) ([]store.NamedSeries, error)
	History(ctx context.Context, queries ...history.Query) ([][]history.Point, error)
	HistoryTotals(ctx context.Context, names ...history.Name) ([]history.Sum, error)
	QueueLevels(ctx context.Context, q history.Levels) ([]history.Level, error)
}

// Span is a length of time up to now.
type Span struct {
	// Name is the word for it: "24h".
	Name   string
	Length time.Duration
	// Step is the distance between points of a chart.
	Step time.Duration
}

// Spans are the spans that the history in Redis covers.
var Spans = [...]Span{
	{"1h", time.Hour, time.Minute},
	{"24h", 24 * time.Hour, 5 * time.Minute},
	{"30d", 30 * 24 * time.Hour, time.Hour},
}

var seriesKinds = map[string]history.Kind{"class": history.Class, "queue": history.Queue, "host": history.Host}

// SeriesName reads the name of a series: "all", "class:Mail", "queue:mail", "host:web-1".
func SeriesName(text string) (history.Name, error) {
	if text == "" || text == history.Everything {
		return history.AllJobs(), nil
	}
	word, name, _ := strings.Cut(text, ":")
	kind, ok := seriesKinds[word]
	if !ok || name == "" || len(name) > history.MaxName {
		return history.Name{}, fmt.Errorf("%q names no series of the history; use all, or class:, queue: or host: with a name", text)
	}
	return history.Name{Kind: kind, Name: name}, nil
}

// SeriesText is the inverse of SeriesName.
func SeriesText(name history.Name) string {
	for word, kind := range seriesKinds {
		if kind == name.Kind {
			return word + ":" + name.Name
		}
	}
	return history.Everything
}

// Point is what was counted from At until the next point.
type Point struct {
	At time.Time `json:"at"`
	Tally
}

// Tally sums up jobs that have ended.
type Tally struct {
	// Runs counts the jobs in Resque's processed counter, Failed the failed ones of them. NotRun
	// counts jobs that went back to their queue as if not run, and dropped ones, which are also in
	// Runs.
	Runs   int64 `json:"runs"`
	Failed int64 `json:"failed"`
	NotRun int64 `json:"not_run"`
	// Seconds is the time spent in handlers.
	Seconds float64 `json:"seconds"`
	// Percentiles in ms, to about 15 %; null if nothing was counted, or for points of a minute.
	P50  *float64 `json:"p50_ms"`
	P95  *float64 `json:"p95_ms"`
	P99  *float64 `json:"p99_ms"`
	Wait *float64 `json:"wait_p95_ms"`
}

// TallyOf returns the tally of a sum.
func TallyOf(s *history.Sum) Tally {
	ms := func(d time.Duration, ok bool) *float64 {
		if !ok {
			return nil
		}
		return new(math.Round(float64(d)/float64(time.Millisecond)*10) / 10)
	}
	return Tally{
		Runs: whole(s.Runs), Failed: whole(s.Failed), NotRun: whole(s.Unrun), Seconds: float64(s.Micros) / 1e6,
		P50: ms(s.Run.Percentile(.5)), P95: ms(s.Run.Percentile(.95)), P99: ms(s.Run.Percentile(.99)), Wait: ms(s.Wait.Percentile(.95)),
	}
}

// whole returns a count that fits JSON and int64: foreign data may hold anything.
func whole(n uint64) int64 { return int64(min(n, 1<<53)) }

// Series returns a series between two times. step is a minute, five minutes or an hour.
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

// Level is the length of a queue at a time.
type Level struct {
	At   time.Time `json:"at"`
	Jobs int64     `json:"jobs"`
	// OldestS is how many seconds the first job had waited; null = unknown.
	OldestS *int64 `json:"oldest_s"`
	// Locks is how many locks its jobs waited for.
	Locks int64 `json:"locks"`
}

// Levels returns the length of a queue by the minute, for the last day at most.
func Levels(ctx context.Context, s HistoryStore, queue string, from, to time.Time) ([]Level, error) {
	read, err := s.QueueLevels(ctx, history.Levels{Queue: queue, From: from, To: to})
	if err != nil {
		return nil, err
	}
	levels := make([]Level, len(read))
	for i, l := range read {
		levels[i] = Level{At: l.At, Jobs: whole(l.Jobs), Locks: whole(l.Locked)}
		if l.Oldest >= 0 && l.Jobs > 0 {
			levels[i].OldestS = new(seconds(l.Oldest))
		}
	}
	return levels, nil
}

// Class is what a class's jobs have cost in a span.
type Class struct {
	Class string `json:"class"`
	Tally
	// Share is the part of all jobs' Seconds, between 0 and 1.
	Share float64 `json:"share"`
	// Before is the same of the span of this length before; null = the history does not reach there.
	Before *Tally `json:"before"`
	// Steps are the runs in each step of the span, the newest last.
	Steps []int64 `json:"-"`
}

// Between returns the span between two times, each written as filters write them: an age, a time of day,
// RFC 3339. An empty until means now.
func Between(since, until string, now time.Time) (span Span, to time.Time, err error) {
	from, err := filter.Time(since, now)
	if err != nil {
		return span, to, fmt.Errorf("since %q: %w", since, err)
	}
	if to = now; until != "" {
		if to, err = filter.Time(until, now); err != nil {
			return span, to, fmt.Errorf("until %q: %w", until, err)
		}
	}
	if !from.Before(to) {
		return span, to, fmt.Errorf("since %s: that is not before %s", since, cmp.Or(until, "now"))
	}
	span = Span{Length: to.Sub(from), Step: 5 * time.Minute}
	if now.Sub(from.Add(-span.Length)) > 24*time.Hour {
		span.Step = time.Hour
	}
	return span, to, nil
}

// Classes returns the classes that ran in a span up to now, sorted by time spent, each with the same of the
// span before, as far as the history reaches. Classes without their own place in it count as "(other)".
func Classes(ctx context.Context, s HistoryStore, span Span, now time.Time) ([]Class, error) {
	names, err := s.HistoryNames(ctx)
	if err != nil {
		return nil, err
	}
	from := now.Add(-span.Length)
	names = slices.DeleteFunc(names, func(n store.NamedSeries) bool { return n.Kind != history.Class || n.Last.Before(from.Add(-time.Hour)) })
	// Points of a minute have no percentiles.
	q := history.Query{From: from, To: now, Step: max(history.Step(span.Step), history.FiveMinutes)}
	read, err := readSeries(ctx, s, names, q)
	if err != nil {
		return nil, err
	}
	var earlier [][]history.Point
	if age := time.Since(from.Add(-span.Length)); age <= Spans[2].Length {
		if age > Spans[1].Length {
			q.Step = history.Hour
		}
		// Points are whole steps: those of the span itself do not count twice.
		q.To = from.Truncate(time.Duration(q.Step))
		q.From = q.To.Add(-span.Length)
		if earlier, err = readSeries(ctx, s, names, q); err != nil {
			return nil, err
		}
	}
	all := total(read[0])
	var classes []Class
	for i, points := range read[1:] {
		sum := total(points)
		if sum.Empty() {
			continue
		}
		c := Class{Class: names[i].Name.Name, Tally: TallyOf(&sum), Steps: make([]int64, len(points))}
		for j, p := range points {
			c.Steps[j] = whole(p.Runs)
		}
		if all.Micros > 0 {
			c.Share = min(1, float64(sum.Micros)/float64(all.Micros))
		}
		if earlier != nil {
			before := total(earlier[i+1])
			c.Before = new(TallyOf(&before))
		}
		classes = append(classes, c)
	}
	slices.SortStableFunc(classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), strings.Compare(a.Class, b.Class))
	})
	return classes, nil
}

// readSeries reads the series of all jobs and those of names, in this order.
func readSeries(ctx context.Context, s HistoryStore, names []store.NamedSeries, q history.Query) ([][]history.Point, error) {
	q.Name = history.AllJobs()
	queries := append(make([]history.Query, 0, len(names)+1), q)
	for _, n := range names {
		q.Name = n.Name
		queries = append(queries, q)
	}
	return s.History(ctx, queries...)
}

func total(points []history.Point) (sum history.Sum) {
	for _, p := range points {
		sum.Merge(&p.Sum)
	}
	return sum
}

// Needed is how many threads the jobs of the last hour have kept busy.
type Needed struct {
	// Average is over the hour, Peak in its busiest five minutes. A job counts when it ends, with all of its time.
	Average float64 `json:"average"`
	Peak    float64 `json:"peak"`
	// Backlog is how many more would work off the jobs that wait in an hour.
	Backlog float64 `json:"backlog"`
}

// ReadNeeded returns how many threads jobs need, nil if none has ended in the last hour.
func ReadNeeded(ctx context.Context, s HistoryStore, waiting int64) (*Needed, error) {
	to := time.Now()
	from := to.Add(-time.Hour).Truncate(time.Duration(history.FiveMinutes))
	read, err := readSeries(ctx, s, nil, history.Query{From: from, To: to, Step: history.FiveMinutes})
	if err != nil {
		return nil, err
	}
	n, sum := &Needed{}, total(read[0])
	if sum.Runs+sum.Unrun == 0 {
		return nil, nil
	}
	for _, p := range read[0] {
		n.Peak = max(n.Peak, float64(p.Micros)/1e6/(5*time.Minute).Seconds())
	}
	busy := float64(sum.Micros) / 1e6
	n.Average, n.Backlog = busy/to.Sub(from).Seconds(), float64(waiting)*busy/float64(sum.Runs+sum.Unrun)/time.Hour.Seconds()
	return n, nil
}

// Total is the sum of a series since its beginning.
type Total struct {
	history.Name
	history.Sum
}

// Totals returns the totals of all series, the largest first.
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

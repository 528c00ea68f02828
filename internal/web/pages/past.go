package pages

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
)

// late is how late daemons write their counts: newer ones may be incomplete.
const late = 20 * time.Second

// perStep returns the unit of a history chart, and its seconds.
func perStep(step time.Duration) (unit string, seconds float64) {
	if step >= time.Hour {
		return "/h", time.Hour.Seconds()
	}
	return "/min", time.Minute.Seconds()
}

// passed returns how many seconds of a step have passed, 0 if too few to be shown.
func passed(at time.Time, step time.Duration, now time.Time) float64 {
	gone := now.Add(-late).Sub(at)
	switch {
	case gone >= step:
		return step.Seconds()
	case gone < step/4 || gone < time.Minute:
		return 0
	}
	return gone.Seconds()
}

// FlowOf is the chart of jobs by time, from points of the history.
func FlowOf(points []view.Point, step time.Duration, now time.Time) *Chart {
	unit, seconds := perStep(step)
	title := "Jobs a minute"
	if unit == "/h" {
		title = "Jobs an hour"
	}
	c := &Chart{Title: title, Unit: unit, Step: step, Empty: "No job ended in this span, or its first minutes are not over yet."}
	if len(points) == 0 {
		return c
	}
	c.From = points[0].At
	done, failed := make([]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		done[i], failed[i] = math.NaN(), math.NaN()
		if s := passed(p.At, step, now); s > 0 {
			done[i], failed[i] = float64(p.Runs)*seconds/s, float64(p.Failed)*seconds/s
		}
	}
	// The words already say that nothing was done.
	if !slices.ContainsFunc(done, func(v float64) bool { return v > 0 }) {
		return c
	}
	c.Series = []Series{{Name: "done", Values: done}, {Name: "failed", Values: failed, Alert: true}}
	return c
}

// TimesOf is the chart of run times, from points of the history.
func TimesOf(points []view.Point, step time.Duration, now time.Time) *Chart {
	c := &Chart{Title: "Run time", Unit: seconds, Step: step}
	if len(points) == 0 {
		return c
	}
	c.From = points[0].At
	half, most := make([]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		half[i], most[i] = math.NaN(), math.NaN()
		if p.P50 != nil && p.P95 != nil && passed(p.At, step, now) > 0 {
			half[i], most[i] = *p.P50/1000, *p.P95/1000
		}
	}
	c.Series = []Series{{Name: "p95", Values: most}, {Name: "p50", Values: half}}
	return c
}

// LengthOf is the chart of a queue's length. Each step has the maximum of its minutes.
func LengthOf(levels []view.Level, step time.Duration, now time.Time) *Chart {
	c := &Chart{Title: "Jobs waiting", Step: step, Empty: "No length was written down in this span. Daemons do that each minute for queues with jobs."}
	if len(levels) == 0 {
		return c
	}
	c.From = levels[0].At.Truncate(step)
	values := make([]float64, int(levels[len(levels)-1].At.Sub(c.From)/step)+1)
	for i := range values {
		values[i] = math.NaN()
	}
	for _, l := range levels {
		if l.Jobs == 0 && now.Sub(l.At) < 2*time.Minute { // it may not have been measured yet
			continue
		}
		v := &values[int(l.At.Sub(c.From)/step)]
		if math.IsNaN(*v) || float64(l.Jobs) > *v {
			*v = float64(l.Jobs)
		}
	}
	c.Series = []Series{{Name: "waiting", Values: values}}
	return c
}

const sparkSteps = 60

// NewClassRow is a class in a table.
func NewClassRow(c view.Class) ClassRow {
	return ClassRow{
		Class: c.Class, Runs: c.Runs, Failed: c.Failed, NotRun: c.NotRun, WaitP95: millis(c.Wait), P50: millis(c.P50), P95: millis(c.P95), P99: millis(c.P99),
		Time: time.Duration(c.Seconds * float64(time.Second)), Share: c.Share, Spark: squeeze(c.Steps, sparkSteps),
	}
}

func millis(ms *float64) time.Duration {
	if ms == nil {
		return 0
	}
	return max(time.Nanosecond, time.Duration(*ms*float64(time.Millisecond)))
}

// squeeze sums values up to at most most of them.
func squeeze(values []int64, most int) []float64 {
	each := (len(values) + most - 1) / most
	var out []float64
	for part := range slices.Chunk(values, max(each, 1)) {
		var sum int64
		for _, v := range part {
			sum += v
		}
		out = append(out, float64(sum))
	}
	return out
}

// SortClasses sorts by a column of the table.
func SortClasses(rows []ClassRow, by string) {
	slices.SortStableFunc(rows, func(a, b ClassRow) int {
		switch by {
		case "name":
			return strings.Compare(a.Class, b.Class)
		case "runs":
			return cmp.Compare(b.Runs, a.Runs)
		case "failed":
			return cmp.Compare(part(b.Failed, b.Runs), part(a.Failed, a.Runs))
		case "wait":
			return cmp.Compare(b.WaitP95, a.WaitP95)
		case "p95":
			return cmp.Compare(b.P95, a.P95)
		}
		return cmp.Compare(b.Share, a.Share)
	})
}

func part(some, all int64) float64 { return float64(some) / float64(max(all, 1)) }

// TimelineOf are the slices of a long job.
func TimelineOf(ended []view.EndedSlice) []Slice {
	all := make([]Slice, len(ended))
	for i, e := range ended {
		all[i] = Slice{At: e.Started, Took: time.Duration(e.MS) * time.Millisecond, Units: e.Units, Outcome: e.Outcome, Worker: e.Proc}
	}
	return all
}

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
	done, failed := c.pair(points, now, func(p view.Point, passed float64) (done, failed float64) {
		return float64(p.Runs) * seconds / passed, float64(p.Failed) * seconds / passed
	})
	// The words already say that nothing was done.
	if slices.ContainsFunc(done, func(v float64) bool { return v > 0 }) {
		c.Series = []Series{{Name: "done", Values: done}, {Name: "failed", Values: failed, Alert: true}}
	}
	return c
}

// TimesOf is the chart of run times, from points of the history.
func TimesOf(points []view.Point, step time.Duration, now time.Time) *Chart {
	c := &Chart{Title: "Run time", Unit: seconds, Step: step}
	most, half := c.pair(points, now, func(p view.Point, _ float64) (most, half float64) {
		if p.P50 == nil || p.P95 == nil {
			return math.NaN(), math.NaN()
		}
		return *p.P95 / 1000, *p.P50 / 1000
	})
	if len(points) > 0 {
		c.Series = []Series{{Name: "p95", Values: most}, {Name: "p50", Values: half}}
	}
	return c
}

// pair returns two values of each point, and begins the chart at the first one. of gets the seconds
// that have passed of a point's step.
func (c *Chart) pair(points []view.Point, now time.Time, of func(p view.Point, passed float64) (a, b float64)) (a, b []float64) {
	for i, p := range points {
		if i == 0 {
			c.From = p.At
		}
		x, y := math.NaN(), math.NaN()
		if s := passed(p.At, c.Step, now); s > 0 {
			x, y = of(p, s)
		}
		a, b = append(a, x), append(b, y)
	}
	return a, b
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

func millis(ms *float64) time.Duration {
	if ms == nil {
		return 0
	}
	return max(time.Nanosecond, time.Duration(*ms*float64(time.Millisecond)))
}

// squeeze sums values up to at most sparkSteps of them.
func squeeze(values []int64) []float64 {
	each := (len(values) + sparkSteps - 1) / sparkSteps
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
func SortClasses(rows []view.Class, by string) {
	slices.SortStableFunc(rows, func(a, b view.Class) int {
		switch by {
		case "name":
			return strings.Compare(a.Class, b.Class)
		case "runs":
			return cmp.Compare(b.Runs, a.Runs)
		case "failed":
			return cmp.Compare(ratio(b.Failed, b.Runs), ratio(a.Failed, a.Runs))
		case "wait":
			return cmp.Compare(millis(b.Wait), millis(a.Wait))
		case "p95":
			return cmp.Compare(millis(b.P95), millis(a.P95))
		}
		return cmp.Compare(b.Share, a.Share)
	})
}

func ratio(some, all int64) float64 { return float64(some) / float64(max(all, 1)) }

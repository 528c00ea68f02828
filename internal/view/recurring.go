package view

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/longstore"
)

// Recurring is a recurring long job.
type Recurring struct {
	Class     string  `json:"class"`
	IntervalS float64 `json:"interval_seconds"`
	EveryS    float64 `json:"every_seconds"`
	Subjects  int64   `json:"subjects"`
	Backlog   int64   `json:"backlog"`
	Active    int64   `json:"active"`
	Started   int64   `json:"started"`
	Waiting   int64   `json:"waiting"`
	Paused    bool    `json:"paused"`
	Error     string  `json:"error"`
	LastTick  *string `json:"last_tick"`
	NextDue   *string `json:"next_due"`

	// Last and Next are LastTick and NextDue as times; zero if null.
	Last time.Time `json:"-"`
	Next time.Time `json:"-"`
}

// RecurringJobs returns the long job classes whose runs are enqueued automatically.
func RecurringJobs(ctx context.Context, s *longstore.Store) ([]Recurring, error) {
	all, err := s.Recurring(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]Recurring, len(all))
	for i, r := range all {
		views[i] = newRecurring(r)
	}
	return views, nil
}

func newRecurring(r longstore.RecurState) Recurring {
	v := Recurring{
		Class: r.Class, IntervalS: float64(r.Number("interval")) / 1000, EveryS: float64(r.Number("every")) / 1000, Subjects: r.Number("subjects"),
		Backlog: r.Number("backlog"), Active: r.Active, Started: r.Number("started"), Waiting: r.Number("waiting"),
		Paused: r.Fields["paused"] == "1", Error: r.Fields["error"],
	}
	at := func(field string) (time.Time, *string) {
		if n := r.Number(field); n > 0 {
			t := time.UnixMilli(n)
			text := t.UTC().Format(time.RFC3339)
			return t, &text
		}
		return time.Time{}, nil
	}
	v.Last, v.LastTick = at("at")
	v.Next, v.NextDue = at("next")
	return v
}

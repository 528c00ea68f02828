package view

import (
	"context"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// FailurePage is a page of failures, the newest first, or one step of a search.
type FailurePage struct {
	Failures []Failure
	// Next continues the list; 0 = it is at its end.
	Next int64
	// Looked is how many records were looked at, of Total.
	Looked, Total int64
}

// FailureStep says what a page has.
type FailureStep struct {
	// Before is the Next of the page before; 0 = from the newest. It is a place counted from the
	// oldest, which new failures do not change.
	Before int64
	// Match selects records as they stand in Redis; nil = all.
	Match func(record []byte) bool
	// Limit is how many failures are returned at most, Time how long is searched.
	Limit int
	Time  time.Duration
}

// FailuresBefore returns a page. Where the failures are in several lists (Resque's multi-queue
// backend) it reads those of each list from the newest on, and there is no next page.
func FailuresBefore(ctx context.Context, s FailureStore, q FailureStep) (FailurePage, error) {
	lists, err := s.FailureLists(ctx)
	if err != nil || len(lists) == 0 {
		return FailurePage{Failures: []Failure{}}, err
	}
	if len(lists) > 1 {
		found, _, err := Failures(ctx, s, FailureQuery{Limit: int64(q.Limit), Match: q.Match})
		return FailurePage{Failures: found[:min(len(found), q.Limit)], Total: int64(len(found)), Looked: int64(len(found))}, err
	}
	page := FailurePage{Failures: []Failure{}}
	until := time.Now().Add(q.Time)
	_, page.Total, err = s.FailedList(ctx, lists[0], 0, 0)
	if err != nil {
		return page, err
	}
	before := page.Total
	if q.Before > 0 {
		before = min(before, q.Before)
	}
	for before > 0 {
		n := int64(failedPage)
		if q.Match == nil {
			n = min(n, int64(q.Limit-len(page.Failures)))
		}
		records, total, err := s.FailedList(ctx, lists[0], page.Total-before, min(n, before))
		if err != nil {
			return page, err
		}
		page.Total = total
		if len(records) == 0 {
			break
		}
		for _, record := range records {
			if record.Index >= before {
				continue // it stands elsewhere by now, as others came
			}
			before = record.Index
			page.Looked++
			if q.Match != nil && !q.Match(record.Raw) {
				continue
			}
			v := newFailure(Rules(ctx), record)
			v.Backtrace, v.Payload = nil, ""
			if page.Failures = append(page.Failures, v); len(page.Failures) == q.Limit {
				break
			}
		}
		if len(page.Failures) == q.Limit || time.Now().After(until) {
			break
		}
	}
	page.Next = before
	return page, nil
}

// HasArgs reports whether the arguments of the job of a failure record, as JSON, have a part
// that may be seen.
func HasArgs(ctx context.Context, record []byte, part string) bool {
	v := newFailure(Rules(ctx), store.FailureRecord{Raw: record})
	return strings.Contains(string(v.Args), part)
}

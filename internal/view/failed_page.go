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
	// Looked is how many records were looked at, of Total. Left is how many there are that neither
	// this step nor those before it have looked at.
	Looked, Total, Left int64
}

// FailureStep says what a page has.
type FailureStep struct {
	// Before is the Next of the page before; 0 = from the newest. It is a list and a place in it,
	// counted from the oldest, which new failures do not change.
	Before int64
	// Match selects records as they stand in Redis; nil = all.
	Match func(record []byte) bool
	// Limit is how many failures are returned at most, Time how long is searched.
	Limit int
	Time  time.Duration
}

// inList is how much of a Before is the place in the list.
const inList = 1 << 40

// FailuresBefore returns a page. Where the failures are in several lists (Resque's multi-queue
// backend) a search goes through them one by one; without Match the newest of all are returned, and
// there is no next page: Left says how many there are besides.
func FailuresBefore(ctx context.Context, s FailureStore, q FailureStep) (FailurePage, error) {
	page := FailurePage{Failures: []Failure{}}
	lists, sizes, err := s.FailureSizes(ctx)
	if err != nil {
		return page, err
	}
	for _, n := range sizes {
		page.Total += n
	}
	if len(lists) > 1 && q.Match == nil {
		found, _, err := Failures(ctx, s, FailureQuery{Limit: int64(q.Limit)})
		page.Failures = append(page.Failures, found[:min(len(found), q.Limit)]...)
		page.Looked = int64(len(page.Failures))
		page.Left = max(0, page.Total-page.Looked)
		return page, err
	}
	until := time.Now().Add(q.Time)
	over := false
	for i := int(q.Before / inList); i < len(lists); i++ {
		switch {
		case len(lists) > 1 && sizes[i] == 0:
			continue
		case over && page.Next == 0:
			page.Next = int64(i)*inList + min(sizes[i], inList-1)
			fallthrough
		case over:
			page.Left += sizes[i]
			continue
		}
		before := int64(inList - 1)
		if at := q.Before % inList; at > 0 && int64(i) == q.Before/inList {
			before = at
		}
		left, err := page.look(ctx, s, q, lists[i], before, until)
		if err != nil {
			return page, err
		}
		if left > 0 {
			page.Next, page.Left = int64(i)*inList+left, left
		}
		over = left > 0 || len(page.Failures) == q.Limit || time.Now().After(until)
	}
	return page, nil
}

// look adds the failures of a list before a place. Left is the place before which it has not looked,
// 0 at the list's end.
func (page *FailurePage) look(ctx context.Context, s FailureStore, q FailureStep, list string, before int64, until time.Time) (left int64, err error) {
	_, total, err := s.FailedList(ctx, list, 0, 0)
	if err != nil {
		return 0, err
	}
	before = min(before, total)
	for before > 0 {
		n := int64(failedPage)
		if q.Match == nil {
			n = min(n, int64(q.Limit-len(page.Failures)))
		}
		records, now, err := s.FailedList(ctx, list, total-before, min(n, before))
		if err != nil {
			return 0, err
		}
		total = now
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
	return before, nil
}

// HasArgs reports whether the arguments of the job of a failure record, as JSON, have a part
// that may be seen.
func HasArgs(ctx context.Context, record []byte, part string) bool {
	v := newFailure(Rules(ctx), store.FailureRecord{Raw: record})
	return strings.Contains(string(v.Args), part)
}

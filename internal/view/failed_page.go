package view

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
)

// FailurePage is a page of failures, the newest first, or one step of a search.
type FailurePage struct {
	Failures []Failure
	// Next continues the list; zero at the end.
	Next FailurePlace
	// Looked is how many of Total records were read, Left how many are unread after all pages.
	Looked, Total, Left int64
}

// FailureStep selects a page.
type FailureStep struct {
	// Before is the Next of the previous page; zero = from the newest.
	Before FailurePlace
	// Match selects records as they are in Redis; nil = all.
	Match func(record []byte) bool
	// Limit is the maximum number of failures, Time that of the search.
	Limit int
	Time  time.Duration
}

// FailurePlace is a position in a walk through the failures from the newest: a list and an index
// from the oldest. New failures and lists don't change it.
type FailurePlace struct {
	List   string
	Before int64
}

// String returns the place as ParseFailurePlace takes it.
func (p FailurePlace) String() string {
	text := strconv.FormatInt(p.Before, 10)
	if p.List != store.MainFailureList {
		text += "@" + p.List
	}
	return text
}

// ParseFailurePlace reads a place; "" and "0" are the zero value.
func ParseFailurePlace(text string) (FailurePlace, error) {
	if text == "" || text == "0" {
		return FailurePlace{}, nil
	}
	number, list, named := strings.Cut(text, "@")
	before, err := strconv.ParseInt(number, 10, 64)
	if err != nil || before < 1 {
		return FailurePlace{}, errors.New("a place among failures is a number of 1 or more, perhaps with @ and the name of a list")
	}
	if !named {
		list = store.MainFailureList
	}
	return FailurePlace{List: list, Before: before}, nil
}

// reached reports whether a list is the place's own or comes after it.
func (p FailurePlace) reached(list string) bool {
	switch {
	case p.List == "" || list == p.List:
		return true
	case p.List == store.MainFailureList || list == store.MainFailureList:
		return p.List == store.MainFailureList
	default:
		return list > p.List
	}
}

// FailuresBefore returns a page. A search reads several lists (Resque's multi-queue backend) one
// by one. Without Match, the newest of all lists are the only page; Left counts the rest.
func FailuresBefore(ctx context.Context, s *store.Store, q FailureStep) (FailurePage, error) {
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
	for i, list := range lists {
		switch {
		case !q.Before.reached(list), len(lists) > 1 && sizes[i] == 0:
			continue
		case over && page.Next.Before == 0:
			page.Next = FailurePlace{List: list, Before: sizes[i]}
			fallthrough
		case over:
			page.Left += sizes[i]
			continue
		}
		before := int64(math.MaxInt64)
		if list == q.Before.List {
			before = q.Before.Before
		}
		left, err := page.look(ctx, s, q, list, before, until)
		if err != nil {
			return page, err
		}
		if left > 0 {
			page.Next, page.Left = FailurePlace{List: list, Before: left}, left
		}
		over = left > 0 || len(page.Failures) == q.Limit || time.Now().After(until)
	}
	return page, nil
}

// look adds the failures of a list before a place. left is the place to continue at, 0 at the end.
func (page *FailurePage) look(ctx context.Context, s *store.Store, q FailureStep, list string, before int64, until time.Time) (left int64, err error) {
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
				continue // it moved here as others were added
			}
			before = record.Index
			page.Looked++
			if q.Match != nil && !q.Match(record.Raw) {
				continue
			}
			v := newFailure(redact.From(ctx), record)
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

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// FailedFilter selects the failure records that meet all conditions that are set, in the
// failed list and in the lists of Resque's multi-queue failure backend. Methods that take a
// filter return ErrNoFilter if it has no condition.
type FailedFilter struct {
	// All selects every record.
	All bool
	// IDs selects records by id. An id is what FailureID returns, or the beginning of the
	// SHA-256 of a record's bytes. If records are equal byte by byte, an id selects one.
	IDs []string
	// Class and Queue are the names of the job's class and queue.
	Class, Queue string
	// Error is a part of the exception's name or of its message. Pattern matches a part of
	// one of them.
	Error   string
	Pattern *regexp.Regexp
	// Before and After limit the time at which the job failed; zero = any. A record whose
	// time cannot be read meets neither.
	Before, After time.Time
	// Again selects for RetryFailed also the records that were retried before. Those in
	// IDs are retried anyway.
	Again bool
	// Limit is the maximum number of records, the oldest of each list first; 0 = any
	// number.
	Limit int
	// Progress, if it is not nil, is called by RetryFailed and RemoveFailed after each record,
	// with the number of records that were retried, removed, gone or stuck until then. They wait
	// for it.
	Progress func(handled int)
}

// FailedReport counts what became of the records that a filter selected.
type FailedReport struct {
	// Matched is the number of records that were selected.
	Matched int
	// Done is the number of records that were retried or removed.
	Done int
	// Payloads is the number of payloads that were removed with their records. A payload
	// that is too large for a record is kept beside it.
	Payloads int
	// Duplicates is the number of retried records whose job was not pushed, because its
	// queue is unique and an equal job waits there.
	Duplicates int
	// Gone is the number of records that another client retried or removed meanwhile.
	Gone int
	// Stuck is the number of records that cannot be retried: no job or no queue is
	// recorded, or the queue's key in Redis has another type.
	Stuck int
	// Queues has the number of jobs by queue: those that were pushed, or that would be
	// pushed in a report of CountFailed.
	Queues map[string]int
}

// ErrNoFilter: the filter has no condition. To select every record, set All.
var ErrNoFilter = errors.New("no filter: name the failures, or set All")

// RetryFailed pushes the selected jobs again to the queues that they came from. The payloads
// are pushed unchanged, except that a "start_at" which a Ruby worker with resque-uniqueue
// added is removed, as Ruby's own retry does. The records stay, with the time of the retry, as
// in Ruby's Resque. A job is pushed and its record marked in one step, so concurrent
// retries do not push it twice. Hooks are not called.
//
// After an error, more jobs may have been pushed than the report has.
func (c *Client) RetryFailed(ctx context.Context, f FailedFilter) (FailedReport, error) {
	return c.editFailed(ctx, f, f.fresh(), false, func(record []byte) store.FailedEdit { return c.retryOf(record, nil) })
}

// RetryFailedWith retries the failed job with an id, but pushes another payload, because the
// recorded one is not a valid job or a wrong one. The record stays, with the time of the
// retry. RetryFailedWith returns an error unless the id selects exactly one record.
func (c *Client) RetryFailedWith(ctx context.Context, id string, payload []byte) (FailedReport, error) {
	if _, err := wire.Parse(payload, 0); err != nil {
		return FailedReport{}, err
	}
	found, err := c.store.FindFailures(ctx, []store.FailureRef{store.ParseFailureRef(id)})
	if err == nil && len(found[0]) != 1 {
		err = fmt.Errorf("%q means %d failures, not one", id, len(found[0]))
	}
	if err != nil {
		return FailedReport{}, err
	}
	one := found[0][0]
	return c.editFailed(ctx, FailedFilter{IDs: []string{FailureID(one.Raw, one.Index)}}, false, false,
		func(record []byte) store.FailedEdit { return c.retryOf(record, payload) })
}

// retryOf returns the edit that retries a record, with another payload unless that is nil;
// none if it cannot be retried.
func (c *Client) retryOf(record, payload []byte) store.FailedEdit {
	failure, err := wire.ParseFailureBrief(record)
	if err != nil || failure.Queue == "" {
		return store.FailedEdit{}
	}
	if payload == nil {
		payload = failure.Pushed()
	}
	marked, err := wire.MarkRetried(record, time.Now())
	if _, invalid := wire.Parse(payload, 0); err != nil || invalid != nil {
		return store.FailedEdit{}
	}
	return store.FailedEdit{Instead: marked, Queue: failure.Queue, Payload: payload, Unique: c.unique(failure.Queue)}
}

// RemoveFailed removes the selected records, and the payloads that are kept beside them. The
// payload of a record that was retried stays, because a waiting job may still need it.
//
// After an error, payloads may be left whose records are removed. The command "resqued parked"
// lists them.
func (c *Client) RemoveFailed(ctx context.Context, f FailedFilter) (FailedReport, error) {
	if f.All && f.anything() && len(f.IDs) == 0 && f.Limit == 0 {
		report, err := c.dropFailed(ctx)
		if !errors.Is(err, store.ErrKept) {
			return report, err
		}
		rest, err := c.removeFailed(ctx, f)
		rest.Matched, rest.Done = rest.Matched+report.Matched, rest.Done+report.Done
		return rest, err
	}
	return c.removeFailed(ctx, f)
}

// removeFailed removes records one by one.
func (c *Client) removeFailed(ctx context.Context, f FailedFilter) (FailedReport, error) {
	return c.editFailed(ctx, f, false, true, func([]byte) store.FailedEdit { return store.FailedEdit{Remove: true} })
}

// dropFailed removes all records.
func (c *Client) dropFailed(ctx context.Context) (FailedReport, error) {
	report := FailedReport{Queues: map[string]int{}}
	lists, err := c.store.FailureLists(ctx)
	for _, list := range lists {
		var n int64
		if n, err = c.store.DropFailed(ctx, list); err != nil {
			break
		}
		report.Matched, report.Done = report.Matched+int(n), report.Done+int(n)
	}
	return report, err
}

// CountFailed returns the report of a RetryFailed, or with remove of a RemoveFailed, that
// would select the same records, without changing anything.
func (c *Client) CountFailed(ctx context.Context, f FailedFilter, remove bool) (FailedReport, error) {
	report := FailedReport{Queues: map[string]int{}}
	_, err := c.selectFailed(ctx, f, !remove && f.fresh(), func(failure wire.Failure) {
		report.Matched++
		report.Queues[failure.Queue]++
	})
	return report, err
}

// selection are the selected records of one list.
type selection struct {
	list    string
	targets store.FailedTargets
}

// selectFailed goes through the failures without changing any. fresh leaves out what was
// retried before. matched is told of each that is selected.
func (c *Client) selectFailed(ctx context.Context, f FailedFilter, fresh bool, matched func(failure wire.Failure)) ([]selection, error) {
	if !f.All && len(f.IDs) == 0 && f.anything() {
		return nil, ErrNoFilter
	}
	if len(f.IDs) > 0 {
		return c.selectNamed(ctx, f, fresh, matched)
	}
	lists, err := c.store.FailureLists(ctx)
	if err != nil {
		return nil, err
	}
	var selected []selection
	n := 0
	for _, list := range lists {
		s := selection{list: list}
		err := c.store.ScanFailed(ctx, list, func(index int64, record []byte) bool {
			if f.Limit > 0 && n >= f.Limit {
				return false
			}
			if failure, ok := f.matches(record, fresh); ok {
				s.targets.Add(index, record)
				matched(failure)
				n++
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		if s.targets.Len() > 0 {
			selected = append(selected, s)
		}
	}
	return selected, nil
}

// selectNamed selects by ids.
func (c *Client) selectNamed(ctx context.Context, f FailedFilter, fresh bool, matched func(failure wire.Failure)) ([]selection, error) {
	refs := make([]store.FailureRef, len(f.IDs))
	for i, id := range f.IDs {
		refs[i] = store.ParseFailureRef(id)
	}
	found, err := c.store.FindFailures(ctx, refs)
	if err != nil {
		return nil, err
	}
	type place struct {
		list  string
		index int64
	}
	seen, byList, n := map[place]bool{}, map[string]*selection{}, 0
	var selected []*selection
	for _, record := range slices.Concat(found...) {
		at := place{record.List, record.Index}
		failure, ok := f.matches(record.Raw, fresh)
		if !ok || seen[at] || f.Limit > 0 && n >= f.Limit {
			continue
		}
		seen[at] = true
		s := byList[record.List]
		if s == nil {
			s = &selection{list: record.List}
			byList[record.List], selected = s, append(selected, s)
		}
		s.targets.Add(record.Index, record.Raw)
		matched(failure)
		n++
	}
	out := make([]selection, len(selected))
	for i, s := range selected {
		out[i] = *s
	}
	return out, nil
}

// editFailed does to each selected record what edit says; an edit that does nothing says
// that it cannot be done.
func (c *Client) editFailed(ctx context.Context, f FailedFilter, fresh, remove bool, edit func(record []byte) store.FailedEdit) (FailedReport, error) {
	report := FailedReport{Queues: map[string]int{}}
	selected, err := c.selectFailed(ctx, f, fresh, func(wire.Failure) { report.Matched++ })
	if err != nil {
		return report, err
	}
	for _, s := range selected {
		var kept []string
		err := c.store.EditFailed(ctx, store.FailedWork{
			List: s.list, Targets: &s.targets, Remove: remove,
			Edit: func(record []byte) store.FailedEdit {
				e := edit(record)
				if !e.Remove && e.Instead == nil {
					report.Stuck++
				}
				return e
			},
			Done: func(record []byte, e store.FailedEdit, what store.FailedOutcome) {
				switch what {
				case store.FailedDone, store.FailedDuplicate:
					report.Done++
					if id := keptFor(record); e.Remove && id != "" {
						kept = append(kept, id)
					}
					if what == store.FailedDuplicate {
						report.Duplicates++
					} else if e.Queue != "" {
						report.Queues[e.Queue]++
					}
				case store.FailedGone:
					report.Gone++
				default:
					report.Stuck++
				}
				if f.Progress != nil {
					f.Progress(report.Done + report.Gone + report.Stuck)
				}
			},
		})
		// Also after an error: the records are gone.
		n, dropErr := c.store.DropKept(ctx, kept)
		report.Payloads += n
		if err = errors.Join(err, dropErr); err != nil {
			return report, err
		}
	}
	return report, nil
}

// keptFor returns the id under which the payload of a record is kept for it alone: "" if it
// stands in the record, or has been retried, so that a job that waits may refer to it, too.
func keptFor(record []byte) string {
	if !bytes.Contains(record, []byte(wire.ReferenceClass)) {
		return ""
	}
	failure, err := wire.ParseFailureBrief(record)
	if err != nil || failure.RetriedAt != "" {
		return ""
	}
	e, err := wire.Parse(failure.Pushed(), 0)
	if err != nil {
		return ""
	}
	ref, _ := wire.ReferenceOf(e)
	return ref.ID
}

// FailureID returns the id of a failure record for FailedFilter.IDs: the SHA-256 of its bytes
// in hex, "@" and its index in its list, where 0 is the oldest. record has the bytes that are
// in Redis.
func FailureID(record []byte, index int64) string {
	return wire.FailureID(record) + "@" + strconv.FormatInt(index, 10)
}

func (f FailedFilter) fresh() bool { return !f.Again && len(f.IDs) == 0 }

// Matches reports whether a failure record meets the conditions other than IDs and Limit.
// record has the bytes that are in Redis.
func (f FailedFilter) Matches(record []byte) bool {
	_, ok := f.matches(record, false)
	return ok
}

// matches reports whether a record meets the conditions on what is in it; fresh leaves out
// what was retried before.
func (f FailedFilter) matches(record []byte, fresh bool) (wire.Failure, bool) {
	if f.cannotMatch(record) {
		return wire.Failure{}, false
	}
	failure, bad := wire.ParseFailureBrief(record)
	if fresh && failure.RetriedAt != "" {
		return failure, false
	}
	if f.anything() {
		return failure, true
	}
	if bad != nil || f.Queue != "" && f.Queue != failure.Queue {
		return failure, false
	}
	if f.Class != "" {
		e, err := wire.Parse(failure.Original(), 0)
		if err != nil {
			return failure, false
		}
		class := e.Class
		if ref, ok := wire.ReferenceOf(e); ok {
			class = ref.Class
		}
		if class != f.Class {
			return failure, false
		}
	}
	at := failure.FailedAt
	if !f.Before.IsZero() && (at.IsZero() || !at.Before(f.Before)) || !f.After.IsZero() && (at.IsZero() || !at.After(f.After)) {
		return failure, false
	}
	if f.Pattern != nil && !f.Pattern.MatchString(failure.Exception) && !f.Pattern.MatchString(failure.Error) {
		return failure, false
	}
	return failure, strings.Contains(failure.Exception, f.Error) || strings.Contains(failure.Error, f.Error)
}

// cannotMatch reports whether the bytes of a record prove that it does not meet the conditions:
// a name that needs no escapes stands in them as it is, unless another program has escaped it
// all the same.
func (f FailedFilter) cannotMatch(record []byte) bool {
	for _, name := range [...]string{f.Class, f.Queue, f.Error} {
		if name == "" || bytes.Contains(record, []byte(name)) || strings.ContainsFunc(name, func(r rune) bool {
			return r < ' ' || r >= utf8.RuneSelf || r == '"' || r == '\\' || r == '/'
		}) {
			continue
		}
		return !bytes.Contains(record, []byte(`\u`)) && !bytes.Contains(record, []byte(invalidPayload))
	}
	return false
}

// invalidPayload is in the records of bytes that were no payload, which hold them encoded.
const invalidPayload = "Resqued::InvalidPayload"

// anything reports whether no condition asks what is in a record.
func (f FailedFilter) anything() bool {
	return f.Class == "" && f.Queue == "" && f.Error == "" && f.Pattern == nil && f.Before.IsZero() && f.After.IsZero()
}

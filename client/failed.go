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

// FailedFilter selects failure records, of the failed list and of those of Resque's
// multi-queue failure backend: those that meet all conditions that are set. One without any is
// refused.
type FailedFilter struct {
	// All selects every record.
	All bool
	// IDs are ids of records as FailureID returns them, or beginnings of the SHA-256 of
	// their bytes; one of them has to fit. Of records that are equal byte by byte an id
	// means one.
	IDs []string
	// Class and Queue are names of the job's class and queue.
	Class, Queue string
	// Error is a part of the exception's name or of its message, Pattern fits some part
	// of one of them.
	Error   string
	Pattern *regexp.Regexp
	// Before and After are times between which the job has failed; zero = any. A record
	// whose time cannot be read is in no such time.
	Before, After time.Time
	// Again retries jobs that were retried before, too. Those named by IDs are
	// retried anyway.
	Again bool
	// Limit is how many records may be selected, the oldest of each list first; 0 = any
	// number.
	Limit int
}

// FailedReport tells what became of the records that a filter has selected.
type FailedReport struct {
	// Matched is how many there were.
	Matched int
	// Done is how many were retried, or removed.
	Done int
	// Payloads is how many payloads were removed with their records: those too large for
	// one, which are kept beside it.
	Payloads int
	// Duplicates are those retried whose job was not pushed, because its queue is
	// unique and an equal job waits there.
	Duplicates int
	// Gone are those that somebody else has retried or removed meanwhile.
	Gone int
	// Stuck are those that cannot be retried: no job or no queue is recorded, or the
	// queue's key in Redis holds something else.
	Stuck int
	// Queues counts the jobs by queue: those pushed, or with CountFailed those that
	// would be.
	Queues map[string]int
}

// ErrNoFilter: a filter without conditions. To mean every record, set All.
var ErrNoFilter = errors.New("no filter: name the failures, or set All")

// RetryFailed pushes the selected jobs again, byte by byte, to the queues that they
// came from; only the "start_at" is left out that a Ruby worker with resque-uniqueue has
// added to a payload, as Ruby's own retry does. Their records stay and say since when, as in
// Ruby's Resque. Each job is pushed in the step that marks its record, so that two who retry
// at a time do not run it twice. Hooks are not called.
//
// After an error some jobs may have been pushed beside those in the report.
func (c *Client) RetryFailed(ctx context.Context, f FailedFilter) (FailedReport, error) {
	return c.editFailed(ctx, f, f.fresh(), false, func(record []byte) store.FailedEdit { return c.retryOf(record, nil) })
}

// RetryFailedWith pushes a job in place of the failed one that an id names, whose payload
// was no job, or the wrong one. The record stays, as it was but for the time of the retry.
// The id has to mean one record.
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

// RemoveFailed removes the selected records, and with them the payloads that are kept beside
// those that were never retried: of a retried one, a job that waits may still need it.
//
// After an error payloads may be left whose records are removed; see resqued parked.
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

// CountFailed tells which records RetryFailed, or with remove RemoveFailed, would
// select now. It changes nothing.
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

// FailureID returns the id of a failure record that stands at an index of its list, counted
// from the oldest: the SHA-256 of its bytes in hex, "@" and the index.
func FailureID(record []byte, index int64) string {
	return wire.FailureID(record) + "@" + strconv.FormatInt(index, 10)
}

func (f FailedFilter) fresh() bool { return !f.Again && len(f.IDs) == 0 }

// Matches reports whether a failure record, as it stands in Redis, meets the conditions but
// for IDs and Limit.
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

// cannotMatch reports whether a look at the bytes of a record is enough to tell that it does
// not meet the conditions: a name that needs no escapes stands there as it is, unless
// somebody has escaped it all the same.
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

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// FailedReport counts what happened to the records that a filter selected.
type FailedReport struct {
	// Matched is the number of selected records.
	Matched int
	// Done is the number of records that were retried or removed.
	Done int
	// Payloads is the number of payloads that were removed with their records. A payload that
	// is too large for a record is kept separately.
	Payloads int
	// Duplicates is the number of retried records whose job was not pushed, because its queue
	// is unique and an equal job waits there.
	Duplicates int
	// Gone is the number of records that another client had retried or removed in between.
	Gone int
	// Stuck is the number of records that cannot be retried: no job or no queue is recorded, or
	// the queue's key in Redis has another type.
	Stuck int
	// Queues has the number of jobs by queue that were pushed, or in a report of CountFailed
	// would be pushed.
	Queues map[string]int
}

// ErrFailuresChanged means that other clients have removed or changed records since they were
// selected, so the selection no longer identifies them. Select again.
var ErrFailuresChanged = errors.New("the failures have changed")

// FailedSelection is the set of records that a filter has selected, to be counted first and
// then retried or removed. Records that are added later do not belong to it.
type FailedSelection struct {
	c      *Client
	remove bool
	report FailedReport
	lists  []selection
	whole  []store.WholeFailures
}

// SelectFailed returns the records that RetryFailed, or with remove RemoveFailed, would act on.
func (c *Client) SelectFailed(ctx context.Context, f Filter, remove bool) (*FailedSelection, error) {
	s := &FailedSelection{c: c, remove: remove, report: FailedReport{Queues: map[string]int{}}}
	if !f.given() {
		return s, ErrNoFilter
	}
	if f.Retried == "" && !remove && len(f.IDs) == 0 {
		f.Retried = "no"
	}
	if inner := filter.Filter(f); remove && f.All && !inner.Any() && f.Limit == 0 {
		lists, err := c.store.FailureLists(ctx)
		for i := 0; err == nil && i < len(lists); i++ {
			var whole store.WholeFailures
			if whole, err = c.store.WholeFailed(ctx, lists[i]); whole.Len > 0 {
				s.whole = append(s.whole, whole)
				s.report.Matched += int(whole.Len)
			}
		}
		return s, err
	}
	return s, s.selectRecords(ctx, f)
}

// Report counts what is selected: Matched and, for a retry, Queues.
func (s *FailedSelection) Report() FailedReport {
	r := s.report
	r.Queues = maps.Clone(r.Queues)
	return r
}

// Do retries or removes the records. Call it once. progress, if not nil, is called after each
// record, or after many that are removed at once. It gets the number of records retried,
// removed, gone or stuck so far, and Do waits for it.
//
// After an error, more may have been done than the report shows. The error is
// ErrFailuresChanged if all records were selected to be removed and other clients have edited
// them since.
func (s *FailedSelection) Do(ctx context.Context, progress func(handled int)) (FailedReport, error) {
	edit := func(record []byte) store.FailedEdit { return s.c.retryOf(record, nil) }
	if s.remove {
		edit = func([]byte) store.FailedEdit { return store.FailedEdit{Remove: true} }
	}
	return s.do(ctx, progress, edit)
}

// RetryFailed pushes the selected jobs again to the queues that they came from. Payloads are
// pushed unchanged, except that a "start_at" which a Ruby worker with resque-uniqueue added is
// removed, as by Ruby's own retry. The records stay, marked with the time of the retry, as in
// Ruby's Resque. A job is pushed and its record marked in one step, so concurrent retries do
// not push it twice. Hooks are not called.
//
// After an error, more jobs may have been pushed than the report shows.
func (c *Client) RetryFailed(ctx context.Context, f Filter) (FailedReport, error) {
	selected, err := c.SelectFailed(ctx, f, false)
	if err != nil {
		return FailedReport{Queues: map[string]int{}}, err
	}
	return selected.Do(ctx, nil)
}

// RetryFailedWith retries the failed job with an id, but pushes another payload, because the
// recorded one is invalid or wrong. The record stays, marked with the time of the retry.
// RetryFailedWith returns an error unless the id selects exactly one record.
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
	s := FailedSelection{c: c, report: FailedReport{Queues: map[string]int{}}}
	s.add(found[0][0], wire.Failure{})
	return s.do(ctx, nil, func(record []byte) store.FailedEdit { return c.retryOf(record, payload) })
}

// retryOf returns the edit that retries a record, with another payload unless that is nil. The
// edit is empty if the record cannot be retried.
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

// RemoveFailed removes the selected records and the payloads that are kept for them. The
// payload of a record that was retried stays, because a waiting job may still need it.
//
// After an error, payloads without records may remain. The command "resqued parked" lists them.
func (c *Client) RemoveFailed(ctx context.Context, f Filter) (FailedReport, error) {
	report := FailedReport{Queues: map[string]int{}}
	for tries := 0; ; tries++ {
		selected, err := c.SelectFailed(ctx, f, true)
		if err != nil {
			return report, err
		}
		done, err := selected.Do(ctx, nil)
		done.add(report)
		if report = done; !errors.Is(err, ErrFailuresChanged) || tries == removeTries {
			return report, err
		}
		report.Matched = report.Done // the others are selected again
	}
}

// removeTries limits how often RemoveFailed starts over because other clients edit failures.
const removeTries = 5

func (r *FailedReport) add(before FailedReport) {
	r.Matched, r.Done, r.Payloads, r.Gone = r.Matched+before.Matched, r.Done+before.Done, r.Payloads+before.Payloads, r.Gone+before.Gone
}

// CountFailed returns the report of a RetryFailed, or with remove of a RemoveFailed, that would
// select the same records. It changes nothing.
func (c *Client) CountFailed(ctx context.Context, f Filter, remove bool) (FailedReport, error) {
	s, err := c.SelectFailed(ctx, f, remove)
	if err != nil {
		return FailedReport{Queues: map[string]int{}}, err
	}
	return s.Report(), nil
}

// selection has the selected records of one list. Records to be retried by id are identified by
// their place too: an equal record elsewhere is another failure.
type selection struct {
	list    string
	targets *store.FailedTargets
	placed  []store.FailureRecord
}

func (s *FailedSelection) selectRecords(ctx context.Context, f Filter) error {
	m, err := f.matcher(ctx, filter.Failures)
	if err != nil {
		return err
	}
	if len(f.IDs) > 0 {
		return s.selectNamed(ctx, f, m)
	}
	lists, err := s.c.store.FailureLists(ctx)
	if err != nil {
		return err
	}
	for _, list := range lists {
		targets, queues := &store.FailedTargets{}, map[string]int{}
		err := s.c.store.ScanFailed(ctx, list, func(index int64, record []byte) bool {
			if index == 0 { // also when the scan of the list restarts
				targets, queues = &store.FailedTargets{}, map[string]int{}
			}
			if f.Limit > 0 && s.report.Matched+targets.Len() >= f.Limit {
				return false
			}
			if failure, ok := m.Failure(record); ok {
				targets.Add(index, record)
				queues[failure.Queue]++
			}
			return true
		})
		if err != nil {
			return err
		}
		if targets.Len() == 0 {
			continue
		}
		s.lists = append(s.lists, selection{list: list, targets: targets})
		s.report.Matched += targets.Len()
		for queue, n := range queues {
			s.report.Queues[queue] += n
		}
	}
	return nil
}

func (s *FailedSelection) selectNamed(ctx context.Context, f Filter, m *filter.Matcher) error {
	refs := make([]store.FailureRef, len(f.IDs))
	for i, id := range f.IDs {
		refs[i] = store.ParseFailureRef(id)
	}
	found, err := s.c.store.FindFailures(ctx, refs)
	if err != nil {
		return err
	}
	type place struct {
		list  string
		index int64
	}
	seen := map[place]bool{}
	for _, record := range slices.Concat(found...) {
		at := place{record.List, record.Index}
		failure, ok := m.Failure(record.Raw)
		if !ok || seen[at] || f.Limit > 0 && s.report.Matched >= f.Limit {
			continue
		}
		seen[at] = true
		s.add(record, failure)
	}
	return nil
}

func (s *FailedSelection) add(record store.FailureRecord, failure wire.Failure) {
	i := slices.IndexFunc(s.lists, func(one selection) bool { return one.list == record.List })
	if i < 0 {
		i = len(s.lists)
		s.lists = append(s.lists, selection{list: record.List, targets: &store.FailedTargets{}})
	}
	if s.remove {
		s.lists[i].targets.Add(record.Index, record.Raw)
	} else {
		s.lists[i].placed = append(s.lists[i].placed, record)
	}
	s.report.Matched++
	s.report.Queues[failure.Queue]++
}

// do applies edit to each record. An empty edit means that it cannot be applied.
func (s *FailedSelection) do(ctx context.Context, progress func(handled int), edit func(record []byte) store.FailedEdit) (FailedReport, error) {
	report := FailedReport{Matched: s.report.Matched, Queues: map[string]int{}}
	told := func() {
		if progress != nil {
			progress(report.Done + report.Gone + report.Stuck)
		}
	}
	for i := range s.whole {
		whole := &s.whole[i]
		n, err := s.c.store.DropFailed(ctx, whole)
		report.Done += int(n)
		told()
		if errors.Is(err, store.ErrKept) { // then their payloads are removed with them, one by one
			var targets store.FailedTargets
			if targets, err = s.c.store.Targets(ctx, *whole); err == nil {
				err = s.edit(ctx, selection{list: whole.List, targets: &targets}, &report, told, edit)
			}
		}
		if errors.Is(err, store.ErrFailuresMoved) {
			err = fmt.Errorf("%w: %w", ErrFailuresChanged, err)
		}
		if err != nil {
			return report, err
		}
	}
	for _, one := range s.lists {
		if err := s.edit(ctx, one, &report, told, edit); err != nil {
			return report, err
		}
	}
	return report, nil
}

func (s *FailedSelection) edit(ctx context.Context, one selection, report *FailedReport, told func(), edit func(record []byte) store.FailedEdit) error {
	var kept []string
	err := s.c.store.EditFailed(ctx, store.FailedWork{
		List: one.list, Targets: one.targets, Placed: one.placed, Remove: s.remove,
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
			told()
		},
	})
	// Also after an error: the records are gone.
	n, dropErr := s.c.store.DropKept(ctx, kept)
	report.Payloads += n
	return errors.Join(err, dropErr)
}

// keptFor returns the id under which the payload of a record is kept for it alone. It is "" if
// the record contains the payload, or was retried: then a waiting job may refer to the payload
// too.
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

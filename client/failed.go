package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// FailedFilter selects failure records: those that meet all conditions that are set.
// One without any is refused.
type FailedFilter struct {
	// All selects every record.
	All bool
	// IDs are beginnings of records' ids, the SHA-256 of their bytes in hex; one of
	// them has to fit.
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
	// Limit is how many records may be selected, the oldest first; 0 = any number.
	Limit int
}

// FailedReport tells what became of the records that a filter has selected.
type FailedReport struct {
	// Matched is how many there were.
	Matched int
	// Done is how many were retried, or removed.
	Done int
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
// came from. Their records stay and say since when, as in Ruby's Resque. Each job is
// pushed in the step that marks its record, so that two who retry at a time do not run
// it twice. Hooks are not called.
//
// After an error some jobs may have been pushed beside those in the report.
func (c *Client) RetryFailed(ctx context.Context, f FailedFilter) (FailedReport, error) {
	return c.editFailed(ctx, f, !f.Again && len(f.IDs) == 0, func(failure wire.Failure, record []byte) (store.FailedEdit, bool) {
		marked, err := wire.MarkRetried(record, time.Now())
		payload := failure.Original()
		if _, invalid := wire.Parse(payload, 0); err != nil || invalid != nil || failure.Queue == "" {
			return store.FailedEdit{}, false
		}
		return store.FailedEdit{Instead: marked, Queue: failure.Queue, Payload: payload, Unique: c.unique(failure.Queue)}, true
	})
}

// RemoveFailed removes the selected records.
func (c *Client) RemoveFailed(ctx context.Context, f FailedFilter) (FailedReport, error) {
	return c.editFailed(ctx, f, false, func(wire.Failure, []byte) (store.FailedEdit, bool) {
		return store.FailedEdit{Remove: true}, true
	})
}

// CountFailed tells which records RetryFailed, or with remove RemoveFailed, would
// select now. It changes nothing.
func (c *Client) CountFailed(ctx context.Context, f FailedFilter, remove bool) (FailedReport, error) {
	report := FailedReport{Queues: map[string]int{}}
	fresh := !remove && !f.Again && len(f.IDs) == 0
	_, err := c.editFailed(ctx, f, fresh, func(failure wire.Failure, _ []byte) (store.FailedEdit, bool) {
		report.Matched++
		report.Queues[failure.Queue]++
		return store.FailedEdit{}, true
	})
	return report, err
}

// editFailed does to each selected record what edit says; false says that it cannot
// be done. fresh leaves out what was retried before.
func (c *Client) editFailed(ctx context.Context, f FailedFilter, fresh bool,
	edit func(failure wire.Failure, record []byte) (store.FailedEdit, bool),
) (FailedReport, error) {
	report := FailedReport{Queues: map[string]int{}}
	if !f.All && len(f.IDs) == 0 && f.anything() {
		return report, ErrNoFilter
	}
	// What was written is not selected again, should the list be read anew.
	written := map[[sha256.Size]byte]bool{}
	err := c.store.EditFailed(ctx, func(record []byte) (store.FailedEdit, error) {
		if f.Limit > 0 && report.Matched >= f.Limit {
			return store.FailedEdit{}, nil
		}
		failure, err := wire.ParseFailure(record)
		if !f.selects(failure, err, record) || fresh && failure.RetriedAt != "" || written[sha256.Sum256(record)] {
			return store.FailedEdit{}, nil
		}
		report.Matched++
		e, ok := edit(failure, record)
		if !ok {
			report.Stuck++
		}
		if e.Instead != nil {
			written[sha256.Sum256(e.Instead)] = true
		}
		return e, nil
	}, func(_ []byte, e store.FailedEdit, what store.FailedOutcome) {
		switch what {
		case store.FailedDone, store.FailedDuplicate:
			report.Done++
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
	})
	return report, err
}

// selects tells whether a record meets the conditions; bad is why it cannot be read.
func (f FailedFilter) selects(failure wire.Failure, bad error, record []byte) bool {
	if len(f.IDs) > 0 {
		id, found := wire.FailureID(record), false
		for _, beginning := range f.IDs {
			found = found || beginning != "" && strings.HasPrefix(id, strings.ToLower(beginning))
		}
		if !found {
			return false
		}
	}
	if f.anything() {
		return true
	}
	if bad != nil || f.Queue != "" && f.Queue != failure.Queue {
		return false
	}
	if f.Class != "" {
		if e, err := wire.Parse(failure.Original(), 0); err != nil || e.Class != f.Class {
			return false
		}
	}
	at := failure.FailedAt
	if !f.Before.IsZero() && (at.IsZero() || !at.Before(f.Before)) || !f.After.IsZero() && (at.IsZero() || !at.After(f.After)) {
		return false
	}
	if f.Pattern != nil && !f.Pattern.MatchString(failure.Exception) && !f.Pattern.MatchString(failure.Error) {
		return false
	}
	return strings.Contains(failure.Exception, f.Error) || strings.Contains(failure.Error, f.Error)
}

// anything tells whether no condition asks what is in a record.
func (f FailedFilter) anything() bool {
	return f.Class == "" && f.Queue == "" && f.Error == "" && f.Pattern == nil && f.Before.IsZero() && f.After.IsZero()
}

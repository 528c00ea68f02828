package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// WaitingJob is a job that waits in a queue.
type WaitingJob struct {
	Queue string
	// Position counts from 1, the next job. It was right when the job was read; workers may
	// have taken jobs since.
	Position int64
	// ID is the payload's own id, or else the first twelve hex digits of its SHA-256.
	ID string
	// Class and Args are the payload's, or those of the Active Job in it. If they cannot be
	// read, Invalid says why. Wrappers are the classes around an Active Job, inside out.
	Class    string
	Args     resqued.Args
	Wrappers []string
	Invalid  error
	// EnqueuedAt is the time at which the job was enqueued: from the payload, or else estimated
	// by the daemons, a second or two early or off by 2 % of its age. Zero = not known.
	EnqueuedAt time.Time
	// LongJob is the id of the long job's run of which this is a slice; empty = none.
	LongJob string
	// WaitsFor is the lock, the limit or the turn for which the job waits in a line; empty = for a thread.
	WaitsFor string
	Payload  []byte
}

// WaitingReport counts what happened to the jobs that a filter selected.
type WaitingReport struct {
	// Done is the number of jobs removed or moved.
	Done int64
	// Duplicates is the number of jobs that were not moved, because the other queue is unique
	// and an equal job waits there.
	Duplicates int64
	// LongJobs is the number of selected slices of long jobs, which are left alone: a run
	// without its slice counts as lost and is resumed. Cancel the run instead.
	LongJobs int64
	// Loners is the number of jobs of loner classes that were not moved. Their class lock is in
	// another Redis or in PostgreSQL, and could not follow in the same step.
	Loners int64
}

var errEnough = errors.New("enough")

// FindWaiting calls found for each job waiting in a queue that the filter selects, in their
// order, until found returns false or Limit is reached. It looks at the first most jobs of the
// queue (0 = all) and returns how many it has looked at. A filter without conditions selects
// every job. The queue is read in parts while other clients change it: a job that is put back
// during the call, or moved to the line of a lock, may be found twice.
func (c *Client) FindWaiting(ctx context.Context, queue string, f Filter, most int64, found func(WaitingJob) bool) (looked int64, err error) {
	m, err := f.matcher(ctx, filter.Waiting)
	if err != nil {
		return 0, err
	}
	pushed, err := c.store.Pushed(ctx, queue)
	if err != nil {
		return 0, err
	}
	n := 0
	err = c.store.ScanQueue(ctx, queue, func(index int64, payload []byte, waits string) bool {
		if most > 0 && index >= most {
			return false
		}
		looked = max(looked, index+1)
		e, invalid, ok := m.Job(filter.Job{Queue: queue, Payload: payload})
		if !ok {
			return true
		}
		if e.EnqueuedAt.IsZero() {
			e.EnqueuedAt = pushed(index)
		}
		job := WaitingJob{
			Queue: queue, Position: index + 1, ID: e.ID, Class: e.Class, Args: e.Args, Wrappers: e.Wrappers, Invalid: invalid, EnqueuedAt: e.EnqueuedAt,
			Payload: payload, WaitsFor: waits,
		}
		if job.ID == "" {
			job.ID = filter.Digest(payload)[:12]
		}
		job.LongJob, _ = e.Slice()
		n++
		return found(job) && (f.Limit == 0 || n < f.Limit)
	})
	return looked, err
}

// CountWaiting returns the report of a RemoveWaiting, or of a MoveWaiting without duplicates,
// that would select the same jobs. It changes nothing. Done is the number of jobs that would be
// removed.
func (c *Client) CountWaiting(ctx context.Context, queue string, f Filter) (report WaitingReport, err error) {
	limit := f.Limit
	f.Limit = 0
	_, err = c.FindWaiting(ctx, queue, f, 0, func(job WaitingJob) bool {
		if job.LongJob != "" {
			report.LongJobs++
			return true
		}
		report.Done++
		return limit == 0 || report.Done < int64(limit)
	})
	return report, err
}

// RemoveWaiting removes the jobs that the filter selects from a queue. Jobs that run, suspects
// (which wait to run alone) and slices of long jobs stay. Payloads are compared byte by byte
// and positions are not used: jobs that are taken during the call run, jobs that are pushed
// during the call may stay.
//
// After an error, some jobs may have been removed: at least those of the report.
func (c *Client) RemoveWaiting(ctx context.Context, queue string, f Filter) (report WaitingReport, err error) {
	m, err := c.edit(ctx, queue, f)
	if err != nil {
		return report, err
	}
	var part, left int64 // part: selected since the last step; left: how many more Limit allows
	left = int64(f.Limit)
	slices := map[string]bool{}
	_, err = c.store.Dequeue(ctx, queue,
		func(payload []byte) bool {
			e, _, ok := m.Job(filter.Job{Queue: queue, Payload: payload})
			if !ok || f.Limit > 0 && part >= left {
				return false
			}
			if _, slice := e.Slice(); slice {
				slices[e.ID] = true
				return false
			}
			part++
			return true
		},
		func(payloads [][]byte) error {
			report.Done += int64(len(payloads))
			part, left = 0, int64(f.Limit)-report.Done
			if err := c.unmark(ctx, queue, payloads); err != nil {
				return err
			}
			if f.Limit > 0 && left <= 0 {
				return errEnough
			}
			return nil
		})
	report.LongJobs = int64(len(slices))
	if errors.Is(err, errEnough) {
		err = nil
	}
	return report, err
}

func (c *Client) edit(ctx context.Context, queue string, f Filter) (*filter.Matcher, error) {
	if err := wire.CheckQueue(queue); err != nil {
		return nil, &refusedError{err}
	}
	if !f.given() {
		return nil, ErrNoFilter
	}
	return f.matcher(ctx, filter.Waiting)
}

// MoveOptions configure how jobs are moved.
type MoveOptions struct {
	// Head moves the jobs to the head of the other queue, so they are taken next.
	Head bool
	// Name is the other store's name in messages, for MoveQueueTo; empty = its address.
	Name string
	// Progress, if not nil, is called after each step with the number of jobs moved so far.
	Progress func(moved int64)
}

func (o MoveOptions) step(moved int64) error {
	if o.Progress != nil {
		o.Progress(moved)
	}
	return nil
}

// MoveWaiting moves the jobs that the filter selects to another queue, in order and with
// payloads unchanged. Each job is removed and pushed in one step, so after any failure it waits
// in exactly one queue. A job stays if the other queue is unique and an equal job waits there.
// Jobs that run, suspects (which wait to run alone) and slices of long jobs stay too. Hooks are
// not called.
//
// After an error, some jobs may have been moved: at least those of the report.
func (c *Client) MoveWaiting(ctx context.Context, from, to string, f Filter, o MoveOptions) (WaitingReport, error) {
	report := WaitingReport{}
	m, err := c.edit(ctx, from, f)
	if err != nil {
		return report, err
	}
	if err := checkTarget(from, to); err != nil {
		return report, err
	}
	left := newStaying()
	r := store.MoveRequest{
		From: from, To: to, Unique: c.unique(to), Head: o.Head, Limit: int64(f.Limit),
		Pick: c.picker(m, from, left),
		Step: func(r store.MoveReport) error { return o.step(r.Moved) },
	}
	if o.Head && f.Limit > 0 {
		// The move starts at the tail, but Limit means the first jobs.
		all := int64(0)
		if err := c.store.ScanQueue(ctx, from, func(_ int64, payload []byte, _ string) bool {
			if _, ok := r.Pick(payload); ok {
				all++
			}
			return true
		}); err != nil {
			return report, err
		}
		r.Skip = max(0, all-int64(f.Limit))
	}
	moved, err := c.store.MoveJobs(ctx, r)
	report.Done, report.Duplicates = moved.Moved, moved.Duplicates
	left.count(&report)
	return report, err
}

// staying has the selected jobs that a move leaves where they are.
type staying struct{ slices, loners map[string]bool }

func newStaying() staying { return staying{map[string]bool{}, map[string]bool{}} }

func (s staying) count(report *WaitingReport) {
	report.LongJobs += int64(len(s.slices))
	report.Loners += int64(len(s.loners))
}

// picker returns a function that decides which payloads are moved, with which loner marker. It
// records in left the selected ones that stay.
func (c *Client) picker(m *filter.Matcher, queue string, left staying) func(payload []byte) (marker string, ok bool) {
	return func(payload []byte) (marker string, ok bool) {
		e, invalid, ok := m.Job(filter.Job{Queue: queue, Payload: payload})
		if !ok || invalid != nil {
			return "", ok
		}
		if _, slice := e.Slice(); slice {
			left.slices[e.ID] = true
			return "", false
		}
		marker, ok = c.markerOf(e)
		if !ok {
			left.loners[string(payload)] = true
		}
		return marker, ok
	}
}

func checkTarget(from, to string) error {
	switch err := wire.CheckQueue(to); {
	case err != nil:
		return &refusedError{err}
	case from == to:
		return &refusedError{fmt.Errorf("queue %q: name another one to move jobs to", to)}
	}
	return nil
}

// markerOf returns the key of the marker that a job of a loner class may have, or "" for other
// jobs. ok is false if the marker is elsewhere.
func (c *Client) markerOf(e wire.Envelope) (key string, ok bool) {
	if l := c.lonerLock(e); l != nil {
		return l.key, !l.elsewhere
	}
	return "", true
}

// lonerLock returns the lock of a job of a loner class, nil for other jobs and if no key can be made
// of the arguments: then the job was never pushed as a loner.
func (c *Client) lonerLock(e wire.Envelope) *classLock {
	name, args := c.registered(e)
	class := c.loner(name)
	if class == nil {
		return nil
	}
	l, err := c.classLock(class, name, args)
	if err != nil {
		return nil
	}
	return l
}

// MoveQueue moves all jobs that wait in a queue to another one, as MoveWaiting does, including
// suspects, which wait to run alone. Jobs that are pushed after the call began may stay. Pauses
// of the two queues stay, and so does the name of the emptied queue.
func (c *Client) MoveQueue(ctx context.Context, from, to string, o MoveOptions) (WaitingReport, error) {
	if err := errors.Join(wire.CheckQueue(from), wire.CheckQueue(to)); err != nil {
		return WaitingReport{}, &refusedError{err}
	}
	n, err := c.store.Length(ctx, from)
	if err != nil {
		return WaitingReport{}, err
	}
	report := WaitingReport{}
	if n > 0 {
		// With Head the move starts at the current tail.
		f := Filter{All: true}
		if !o.Head {
			f.Limit = int(n)
		}
		if report, err = c.MoveWaiting(ctx, from, to, f, o); err != nil {
			return report, err
		}
	} else if err := checkTarget(from, to); err != nil {
		return report, err
	}
	left := newStaying()
	suspects, err := c.store.MoveSuspects(ctx, from, to, c.picker(new(filter.Matcher), from, left))
	report.Done += suspects
	left.count(&report)
	return report, err
}

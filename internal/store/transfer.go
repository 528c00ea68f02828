package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	moveOutScript = rdb.NewScript(Lua, "move_out", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/unique", "lib/deaths", "lib/taking", "move_out")
	moveInScript  = rdb.NewScript(Lua, "move_in", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "move_in")
	moveEndScript = rdb.NewScript(Lua, "move_end", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "move_end")
)

const (
	// transferJobs and transferBytes bound a batch on its way to another store.
	transferJobs  = 500
	transferBytes = 1 << 20
)

// Jobs on their way to another store are kept in the first one, in resqued:moving:<queue>, as a numbered batch.
// The other store pushes a batch whose number is above all earlier ones from that queue, and stores the number
// in the same step. So each of the three steps, out, in and end, can be repeated, and the next caller continues
// where a killed one stopped.

// ErrUniqueTransfer: jobs of unique queues are not moved to another store.
var ErrUniqueTransfer = errors.New("it is a unique queue: its jobs cannot be moved to another store")

// TransferElsewhereError says that jobs of the queue are on their way to another store.
type TransferElsewhereError struct {
	Jobs  int
	Where string
}

func (e *TransferElsewhereError) Error() string {
	return fmt.Sprintf("%d of its jobs are on their way to %s: finish that first", e.Jobs, e.Where)
}

// TransferRequest selects jobs for another store.
type TransferRequest struct {
	Queue string
	// Where is the other store's name for people.
	Where string
	// Pick reports whether a payload is moved.
	Pick func(payload []byte) bool
	// Limit is how many are moved at most, in addition to those under way; 0 = none.
	Limit int64
	// Step, if not nil, is called after each batch with the number of jobs that have arrived. Its error ends
	// the call.
	Step func(moved int64) error
}

type onTheWay struct {
	source, to, where string
	number            int64
	payloads          []string
}

// Transfer moves jobs of a queue to the queue of the same name in another store, in order, with payloads
// unchanged, and returns how many have arrived. Whatever fails, each job is in one store or on its way, and
// then the next call continues with it. A job arrives once.
//
// If one of the servers loses data (a failover to a replica that was behind), a batch may arrive twice; no
// batch is lost by it.
func (s *Store) Transfer(ctx context.Context, other *Store, r TransferRequest) (moved int64, err error) {
	to, _, _, err := other.moveIn(ctx, r.Queue, onTheWay{})
	if err != nil {
		return 0, err
	}
	arrive := func(b onTheWay) error {
		n, err := s.deliver(ctx, other, r, b)
		moved += n
		if err == nil && r.Step != nil {
			err = r.Step(moved)
		}
		return err
	}
	b, err := s.moveOut(ctx, r, s.placeOf(r.Queue), to, 0, 0, nil)
	if err != nil {
		return 0, err
	}
	if b.number > 0 {
		if b.to != to {
			return 0, &TransferElsewhereError{Jobs: len(b.payloads), Where: b.where}
		}
		if err := arrive(b); err != nil {
			return moved, err
		}
	}
	if unique, err := s.hasCompanions(ctx, r.Queue); err != nil || unique {
		if err == nil {
			err = ErrUniqueTransfer
		}
		return moved, fmt.Errorf("move %q: %w", r.Queue, err)
	}
	left := r.Limit
	err = s.oldestFirst(ctx, r.Queue, func(p place) (err error) {
		left, err = s.transferFrom(ctx, r, p, to, left, arrive)
		return err
	})
	return moved, err
}

// transferFrom is Transfer for a queue itself, or one of its lines. It returns the rest of the limit.
func (s *Store) transferFrom(ctx context.Context, r TransferRequest, place place, to string, left int64, arrive func(onTheWay) error) (int64, error) {
	w := s.walk(place.key)
	for left > 0 {
		from, page, err := w.next(ctx)
		if err != nil || len(page) == 0 {
			return left, err
		}
		size, wanted, kept := 0, []string{}, []string{}
		for i, payload := range page {
			if !r.Pick([]byte(payload)) {
				kept = append(kept, payload)
				continue
			}
			if size += len(payload); len(wanted) == 0 || len(wanted) < transferJobs && size <= transferBytes {
				wanted = append(wanted, payload)
			} else { // the rest is read again
				page = page[:i]
				break
			}
			if left--; left == 0 {
				page = page[:i+1]
				break
			}
		}
		if len(wanted) > 0 {
			b, err := s.moveOut(ctx, r, place, to, from, len(page), wanted)
			switch {
			case err != nil:
				return left, err
			case b.number == 0: // others have taken them
			case b.to != to:
				return left, &TransferElsewhereError{Jobs: len(b.payloads), Where: b.where}
			default:
				if err := arrive(b); err != nil {
					return left, err
				}
			}
		}
		w.done(from, kept)
	}
	return left, nil
}

// deliver pushes a batch to the other store, and ends its move.
func (s *Store) deliver(ctx context.Context, other *Store, r TransferRequest, b onTheWay) (moved int64, err error) {
	for {
		_, what, last, err := other.moveIn(ctx, r.Queue, b)
		if err != nil {
			return 0, err
		}
		if what >= 0 {
			break
		}
		// Either this store has forgotten what it sent, so the batch needs a number that is new there, or
		// another caller has delivered it, and perhaps later ones.
		next, err := s.renumber(ctx, r.Queue, b, last+1)
		if err != nil {
			return 0, err
		}
		if next.number == 0 || next.to != b.to {
			return 0, nil
		}
		b = next
	}
	_, err = s.moveEnd(ctx, r.Queue, b.number, false)
	return int64(len(b.payloads)), err
}

// ErrTransferGoesOn: the other store answers, so the transfer can continue.
var ErrTransferGoesOn = errors.New("the store that its jobs are on their way to answers: let the move go on instead")

// TransferBack returns jobs on their way to another store to the head of their queue. The caller must know that
// they have not arrived there, or that nothing will be taken there any more. If other, which may be nil, is
// that store and answers, the error is ErrTransferGoesOn.
func (s *Store) TransferBack(ctx context.Context, other *Store, queue string) (jobs int64, err error) {
	b, err := s.moveOut(ctx, TransferRequest{Queue: queue}, s.placeOf(queue), "", 0, 0, nil)
	if err != nil || b.number == 0 {
		return 0, err
	}
	if other != nil {
		if id, _, _, err := other.moveIn(ctx, queue, onTheWay{}); err == nil && id == b.to {
			return 0, ErrTransferGoesOn
		}
	}
	return s.moveEnd(ctx, queue, b.number, true)
}

// Transferring returns how many jobs of each queue are on their way to another store, and to which one.
func (s *Store) Transferring(ctx context.Context) (jobs map[string]int64, where map[string]string, err error) {
	fields, err := s.db.Read.HGetAll(ctx, s.db.Key(keyMoving)).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("jobs on their way: %w", err)
	}
	jobs, where = map[string]int64{}, map[string]string{}
	for field := range fields {
		queue, ok := strings.CutPrefix(field, "to:")
		if !ok {
			continue
		}
		if jobs[queue], err = s.db.Read.LLen(ctx, s.db.Key(keyMovingJobs)+queue).Result(); err != nil {
			return nil, nil, fmt.Errorf("jobs of %q on their way: %w", queue, err)
		}
		where[queue] = fields["where:"+queue]
	}
	return jobs, where, nil
}

func (s *Store) hasCompanions(ctx context.Context, queue string) (bool, error) {
	key := s.db.QueueKey(queue)
	n, err := s.db.Read.Exists(ctx, key+":uniqueue", key+":start_at").Result()
	return n > 0, err
}

func (s *Store) placeOf(queue string) place { return place{key: s.db.QueueKey(queue)} }

func (s *Store) moveOut(ctx context.Context, r TransferRequest, at place, to string, from int64, size int, payloads []string) (onTheWay, error) {
	args := []any{s.db.Prefix, r.Queue, to, r.Where, rand.Text(), 0, 0, from, size, at.line}
	return s.moveOutArgs(ctx, r.Queue, at, with(args, payloads...))
}

// renumber returns the batch under way; if it is b, its number is now at least least.
func (s *Store) renumber(ctx context.Context, queue string, b onTheWay, least int64) (onTheWay, error) {
	return s.moveOutArgs(ctx, queue, s.placeOf(queue), []any{s.db.Prefix, queue, b.to, "", rand.Text(), least, b.number, 0, 0, ""})
}

func (s *Store) moveOutArgs(ctx context.Context, queue string, at place, args []any) (b onTheWay, err error) {
	list, err := s.db.EvalList(ctx, moveOutScript, at.key, args, 5)
	if err != nil {
		return b, fmt.Errorf("take jobs from %q: %w", queue, err)
	}
	return onTheWay{source: list.Text(0), number: list.Number(1), to: list.Text(2), where: list.Text(3), payloads: list.Texts(4)}, nil
}

func (s *Store) moveIn(ctx context.Context, queue string, b onTheWay) (id string, what, last int64, err error) {
	args := with([]any{s.db.Prefix, queue, rand.Text(), b.source, b.number}, b.payloads...)
	list, err := s.db.EvalList(ctx, moveInScript, s.db.QueueKey(queue), args, 3)
	if err != nil {
		return "", 0, 0, fmt.Errorf("push jobs to %q: %w", queue, err)
	}
	return list.Text(0), list.Number(1), list.Number(2), nil
}

func (s *Store) moveEnd(ctx context.Context, queue string, number int64, back bool) (jobs int64, err error) {
	raw, err := s.db.Eval(ctx, moveEndScript, s.db.Key(keyMovingJobs)+queue, []any{s.db.Prefix, queue, number, letters(back, 'b')})
	if err != nil {
		return 0, fmt.Errorf("end the way of jobs of %q: %w", queue, err)
	}
	return rdb.Number(raw), nil
}

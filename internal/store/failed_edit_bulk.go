package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

var failedEditBulkScript = rdb.NewScript(Lua, "failed_edit_bulk", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/failed_edits", "failed_edit_bulk")

const (
	// siftLease is how long a sifting may be silent before other processes may end it.
	siftLease = 10 * time.Second
	// siftPatience is how long a command waits for another one's sifting.
	siftPatience = 2 * time.Minute
	// siftBytes bounds the bytes one step moves, siftPushes its records if jobs are pushed.
	siftBytes, siftPushes = 256 << 10, 150
	// siftMoved bounds the attempts of a step while other programs take from the head.
	siftMoved = 100
)

// ErrSifting: another command is editing very many records of the list.
var ErrSifting = errors.New("another command is editing the failures; try again when it has ended")

// sifting is one caller's sifting of a list; see lua/failed_edit_bulk.lua.
type sifting struct {
	s     *Store
	list  string
	token string
	// passed counts the records that have been moved out of the list.
	passed int64
}

func (s *Store) sifting(list string) *sifting { return &sifting{s: s, list: list, token: rand.Text()} }

func (f *sifting) call(ctx context.Context, op string, more ...any) (answer string, list rdb.List, err error) {
	args := append([]any{f.s.db.Prefix, f.list, f.token, siftLease.Milliseconds(), op}, more...)
	list, err = f.s.db.EvalList(ctx, failedEditBulkScript, f.s.db.Key(f.list), args, 1, 2, 3, 4)
	if err != nil {
		return "", nil, fmt.Errorf("edit failures of %q: %w", f.list, err)
	}
	return list.Text(0), list, nil
}

// back brings back the passed records. held is for how long another sifting must not be disturbed.
func (f *sifting) back(ctx context.Context) (held time.Duration, err error) {
	return f.join(ctx, "back")
}

// join moves records until the list is one again: with "back" the passed ones, with "on" the others.
func (f *sifting) join(ctx context.Context, op string) (held time.Duration, err error) {
	for {
		answer, list, err := f.call(ctx, op)
		switch {
		case err != nil:
			return 0, err
		case answer == "HELD" && len(list) == 2:
			return time.Duration(list.Number(1)) * time.Millisecond, nil
		case answer == "LOST":
			return 0, nil // another process has done it
		case answer != "OK" || len(list) != 2:
			return 0, fmt.Errorf("script failed_edit_bulk: unexpected reply %v", list)
		case list.Number(1) == 0:
			return 0, nil
		}
	}
}

// settleFailed waits until no process sifts the list, and brings back the records of an interrupted sifting.
func (s *Store) settleFailed(ctx context.Context, list string) error {
	under, err := s.db.Read.HExists(ctx, s.db.Key(keySifting), list).Result()
	if err != nil {
		return fmt.Errorf("read failures of %q: %w", list, err)
	}
	if !under {
		return nil
	}
	f := s.sifting(list)
	for deadline := time.Now().Add(siftPatience); ; {
		held, err := f.back(ctx)
		if err != nil || held == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("failures of %q: %w", list, ErrSifting)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(held, 100*time.Millisecond)):
		}
	}
}

// RestoreFailed brings back the records of interrupted siftings, and returns their lists.
func (s *Store) RestoreFailed(ctx context.Context) (restored []string, err error) {
	lists, err := s.db.Read.HKeys(ctx, s.db.Key(keySifting)).Result()
	if err != nil {
		return nil, fmt.Errorf("list the lists of failures that are edited: %w", err)
	}
	for _, list := range lists {
		held, err := s.sifting(list).back(ctx)
		if err != nil {
			return restored, err
		}
		if held == 0 {
			restored = append(restored, list)
		}
	}
	return restored, nil
}

// ErrKept: parked entries exist, perhaps payloads to which the records refer.
var ErrKept = errors.New("payloads of failures are kept next to them")

// ErrFailuresMoved: another program has removed or changed records of the list.
var ErrFailuresMoved = errors.New("others are editing the failures, too; look again")

// WholeFailures identifies all records of a list at one time.
type WholeFailures struct {
	List        string
	Len         int64
	first, last string
}

// WholeFailed returns WholeFailures of a list.
func (s *Store) WholeFailed(ctx context.Context, list string) (WholeFailures, error) {
	for range failedPasses {
		if err := s.settleFailed(ctx, list); err != nil {
			return WholeFailures{}, err
		}
		pipe := s.db.Read.TxPipeline() // at one time
		passed, n := pipe.LLen(ctx, s.db.Key(keyPassed)+list), pipe.LLen(ctx, s.db.Key(list))
		first, last := pipe.LIndex(ctx, s.db.Key(list), 0), pipe.LIndex(ctx, s.db.Key(list), -1)
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return WholeFailures{}, fmt.Errorf("count failures of %q: %w", list, err)
		}
		if passed.Val() == 0 {
			return WholeFailures{List: list, Len: n.Val(), first: first.Val(), last: last.Val()}, nil
		}
		if _, err := s.sifting(list).back(ctx); err != nil {
			return WholeFailures{}, err
		}
	}
	return WholeFailures{}, fmt.Errorf("failures of %q: %w", list, ErrSifting)
}

// Targets returns the records one by one. The error is ErrFailuresMoved if they have changed.
func (s *Store) Targets(ctx context.Context, w WholeFailures) (FailedTargets, error) {
	var t FailedTargets
	var last []byte
	err := s.ScanFailed(ctx, w.List, func(index int64, record []byte) bool {
		if index == 0 {
			t = FailedTargets{}
		}
		if index < w.Len {
			t.Add(index, record)
			last = record
		}
		return index < w.Len
	})
	if err == nil && (int64(t.Len()) != w.Len || string(last) != w.last) {
		err = fmt.Errorf("failures of %q: %w", w.List, ErrFailuresMoved)
	}
	return t, err
}

// DropFailed removes the records in w and leaves later ones. It returns how many it removed, also with an
// error; w then has the rest. The error is ErrKept while anything is parked, and ErrFailuresMoved if the
// records in w cannot be identified any more. It does not remove payloads.
func (s *Store) DropFailed(ctx context.Context, w *WholeFailures) (n int64, err error) {
	f, held := s.sifting(w.List), false
	defer func() {
		if held {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), siftPatience)
			defer cancel()
			if _, ended := f.back(ctx); err == nil {
				err = ended
			}
		}
	}()
	for tries := 0; w.Len > 0; {
		answer, reply, err := f.call(ctx, "drop", w.Len, w.last, w.first)
		switch {
		case err != nil:
			return n, err
		case answer == "OK" && len(reply) >= 3:
			n += reply.Number(1)
			if w.Len = reply.Number(2); w.Len > 0 && len(reply) == 4 {
				w.first = reply.Text(3)
			}
			held, tries = w.Len > 0, 0
			continue
		case answer == "KEPT":
			return n, ErrKept
		case answer == "MOVED":
			return n, fmt.Errorf("failures of %q: %w", w.List, ErrFailuresMoved)
		}
		// HELD or LEFT: another command has interfered.
		if tries++; tries > failedPasses {
			return n, fmt.Errorf("failures of %q: %w", w.List, ErrSifting)
		}
		if err := s.settleFailed(ctx, w.List); err != nil {
			return n, err
		}
	}
	return n, nil
}

// sift edits records on a pass from the list's head. again: other programs have changed the list, too.
func (s *Store) sift(ctx context.Context, w FailedWork, t *FailedTargets) (again bool, err error) {
	f := s.sifting(w.List)
	switch answer, _, err := f.call(ctx, "begin"); {
	case err != nil:
		return false, err
	case answer == "LEFT":
		_, err := f.back(ctx)
		return true, err
	case answer != "OK": // HELD: the next pass waits
		return true, nil
	}
	defer func() {
		// Also after an error or a cancel: the list must be complete again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), siftPatience)
		defer cancel()
		if ended := f.end(ctx); err == nil {
			err = ended
		}
	}()
	limit := int64(pageElements)
	if !w.Remove {
		limit = siftPushes
	}
	size, moved := int64(16), 0
	for t.n > 0 {
		page, err := s.db.Read.LRange(ctx, s.db.Key(w.List), 0, size-1).Result()
		if err != nil {
			return false, fmt.Errorf("read failures of %q: %w", w.List, err)
		}
		if len(page) == 0 {
			return false, nil
		}
		args := []any{len(page), page[len(page)-1]}
		edits := t.editsOf(w, 0, page)
		for i := range edits {
			args = edits[i].args(args, edits[i].index)
		}
		answer, reply, err := f.call(ctx, "step", args...)
		if err != nil {
			return false, err
		}
		switch answer {
		case "MOVED":
			if moved++; moved > siftMoved {
				return false, fmt.Errorf("failures of %q change faster than they can be read", w.List)
			}
			continue
		case "OK":
		default: // LOST: silent for too long, so others have brought the records back
			return true, nil
		}
		if len(reply) != 3 || len(reply.Text(2)) != len(edits) {
			return false, fmt.Errorf("script failed_edit_bulk: unexpected reply %v for %d records", reply, len(edits))
		}
		moved = 0
		f.passed += reply.Number(1)
		for i, mark := range []byte(reply.Text(2)) {
			t.ended(w, edits[i].record, edits[i].FailedEdit, FailedOutcome(mark))
		}
		size = nextPage(size, page, siftBytes, limit)
	}
	return false, nil
}

// end joins the passed records and the rest, by moving the smaller part.
func (f *sifting) end(ctx context.Context) error {
	left, err := f.s.db.Read.LLen(ctx, f.s.db.Key(f.list)).Result()
	if err != nil {
		return fmt.Errorf("count failures of %q: %w", f.list, err)
	}
	op := "on"
	if left > f.passed {
		op = "back"
	}
	_, err = f.join(ctx, op)
	return err
}

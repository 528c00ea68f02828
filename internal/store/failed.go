package store

import (
	"context"
	"fmt"
)

var retryScript = loadScript("retry", "rights", "unique")

// failedBatch bounds the records of one script call.
const failedBatch = 100

// FailedEdit says what becomes of one failure record. The zero value leaves it.
type FailedEdit struct {
	// Remove removes the record. Instead takes its place otherwise.
	Remove  bool
	Instead []byte
	// Queue takes Payload again; empty = nothing is pushed. Unique: it holds a
	// payload at most once.
	Queue   string
	Payload []byte
	Unique  bool
}

// FailedOutcome is what became of a record.
type FailedOutcome byte

// The outcomes of edits.
const (
	FailedDone      FailedOutcome = 'r'
	FailedDuplicate FailedOutcome = 'u' // retried; an equal job waits, so nothing was pushed
	FailedGone      FailedOutcome = 'g' // somebody else has retried or removed it meanwhile
	FailedStuck     FailedOutcome = 'x' // its queue's key holds something else than it should
)

// EditFailed goes through the failure records, oldest first, and does to each what
// edit says; records that are added meanwhile may be passed over. Each edit is made
// only if the record still stands there, byte by byte, and then told to done.
//
// After an error that is not Unexecuted some edits may have been made that were not
// told.
func (s *Store) EditFailed(ctx context.Context, edit func(record []byte) (FailedEdit, error),
	done func(record []byte, edit FailedEdit, what FailedOutcome),
) error {
	w := s.walk(s.key(keyFailed))
	total, err := s.read.LLen(ctx, s.key(keyFailed)).Result()
	if err != nil {
		return fmt.Errorf("count failures: %w", err)
	}
	for seen := int64(0); seen < total; {
		from, page, err := w.next(ctx)
		if err != nil {
			return fmt.Errorf("read failures: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		page = page[:min(len(page), failedBatch)]
		seen += int64(len(page))
		kept, err := s.editPage(ctx, from, page, edit, done)
		if err != nil {
			return err
		}
		w.done(from, kept)
	}
	return nil
}

func (s *Store) editPage(ctx context.Context, from int64, page []string, edit func(record []byte) (FailedEdit, error),
	done func(record []byte, edit FailedEdit, what FailedOutcome),
) (kept []string, err error) {
	args, places, edits := []any{s.prefix}, []int(nil), []FailedEdit(nil)
	for i, record := range page {
		e, err := edit([]byte(record))
		if err != nil {
			return nil, err
		}
		if !e.Remove && e.Instead == nil {
			continue
		}
		if e.Remove {
			e.Instead = nil
		}
		args = append(args, from+int64(i), record, e.Instead, e.Queue, e.Payload, flag(e.Unique))
		places, edits = append(places, i), append(edits, e)
	}
	marks := ""
	if len(edits) > 0 {
		raw, err := s.eval(ctx, retryScript, s.key(keyFailed), args)
		if err != nil {
			return nil, fmt.Errorf("edit failures: %w", err)
		}
		if marks, _ = raw.(string); len(marks) != len(edits) {
			return nil, fmt.Errorf("script retry: %d answers for %d records", len(marks), len(edits))
		}
	}
	for i, record := range page {
		if len(places) == 0 || places[0] != i {
			kept = append(kept, record)
			continue
		}
		what := FailedOutcome(marks[0])
		done([]byte(record), edits[0], what)
		switch {
		case what == FailedStuck:
			kept = append(kept, record)
		case what != FailedGone && !edits[0].Remove:
			kept = append(kept, string(edits[0].Instead))
		}
		marks, places, edits = marks[1:], places[1:], edits[1:]
	}
	return kept, nil
}

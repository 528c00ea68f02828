package store

import (
	"context"
	"fmt"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	dequeueScript     = rdb.NewScript(Lua, "dequeue", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/unique", "lib/deaths", "lib/taking", "dequeue")
	removeQueueScript = rdb.NewScript(Lua, "remove_queue", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/suspects", "lib/deaths", "lib/pruned", "remove_queue")
)

// Dequeue removes the waiting payloads that match from a queue, in parts of bounded size, and returns how many.
// It updates a unique queue's companions. Quarantined suspects (see PollReply) are not in the queue and stay.
// Jobs that workers move into lines during the call are removed, too. After each part, removed, unless nil, is
// called with its payloads; its error ends the call.
//
// After an error that is not Unexecuted, the last part may have been removed, too.
func (s *Store) Dequeue(ctx context.Context, queue string, match func(payload []byte) bool,
	removed func(payloads [][]byte) error,
) (count int64, err error) {
	err = s.eachPlace(ctx, queue, func(p place) error { return s.dequeueFrom(ctx, queue, p, match, removed, &count) })
	if err != nil {
		return count, fmt.Errorf("dequeue from %q: %w", queue, err)
	}
	return count, nil
}

func (s *Store) dequeueFrom(ctx context.Context, queue string, place place, match func(payload []byte) bool,
	removed func(payloads [][]byte) error, count *int64,
) error {
	w := s.walk(place.key)
	for {
		from, page, err := w.next(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		var kept, wanted []string
		for _, payload := range page {
			if match([]byte(payload)) {
				wanted = append(wanted, payload)
			} else {
				kept = append(kept, payload)
			}
		}
		if len(wanted) > 0 {
			gone, err := s.dequeue(ctx, queue, place, from, len(page), wanted)
			*count += int64(len(gone))
			if err == nil && removed != nil && len(gone) > 0 {
				err = removed(gone)
			}
			if err != nil {
				return err
			}
		}
		w.done(from, kept)
	}
}

func (s *Store) dequeue(ctx context.Context, queue string, place place, from int64, size int, payloads []string) (gone [][]byte, err error) {
	args := with([]any{s.db.Prefix, queue, from, size, place.line}, payloads...)
	marks, err := s.db.EvalMarks(ctx, dequeueScript, place.key, args, len(payloads))
	if err != nil {
		return nil, err
	}
	for i, p := range payloads {
		if marks[i] == '1' {
			gone = append(gone, []byte(p))
		}
	}
	return gone, nil
}

// RemoveQueue removes a queue with all its waiting jobs, including suspects and jobs in lines, and returns how
// many. With keep, its name stays in the set of queues.
func (s *Store) RemoveQueue(ctx context.Context, queue string, keep bool) (jobs int64, err error) {
	raw, err := s.db.Eval(ctx, removeQueueScript, s.db.QueueKey(queue), []any{s.db.Prefix, queue, rdb.Flag(keep)})
	if err != nil {
		return 0, fmt.Errorf("remove %q: %w", queue, err)
	}
	lined, err := s.dropLines(ctx, queue)
	if err != nil {
		return rdb.Number(raw) + lined, fmt.Errorf("remove the lines of %q: %w", queue, err)
	}
	return rdb.Number(raw) + lined, nil
}

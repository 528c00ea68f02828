package store

import (
	"context"
	"fmt"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var noteOtherWorkersScript = rdb.NewScript(Lua, "note_other_workers", "lib/base", "lib/rights", "note_other_workers")

// NoteOtherWorkers notes for which queues workers of other programs are registered, unless the last note is
// younger than every: locked jobs of these queues do not wait in lines (Queue.Lined).
func (s *Store) NoteOtherWorkers(ctx context.Context, every time.Duration) error {
	for cursor := ""; ; {
		raw, err := s.db.Eval(ctx, noteOtherWorkersScript, s.db.Key(keyWorkers), []any{s.db.Prefix, every.Milliseconds(), cursor})
		if err != nil {
			return fmt.Errorf("queues of other workers: %w", err)
		}
		if cursor, _ = raw.(string); cursor == "" {
			return nil
		}
	}
}

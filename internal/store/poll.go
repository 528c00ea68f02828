package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var pollScript = rdb.NewScript(Lua, "poll", "lib/base", "lib/records", "lib/blocked_queues", "lib/lines", "lib/limits", "lib/line_locks", "lib/suspects", "lib/pause", "poll")

// PollRequest is the input of Poll.
type PollRequest struct {
	// Fixed are the named queues.
	Fixed []string
	// All also asks for the set of all queues. Of more than 2,000, it asks for at most 1,000 that have
	// held jobs within an hour, and now and then for a part of the rest, different for each call.
	All bool
	// Whole asks for all of them, a large set in parts: Cursor "" or "0" begins a pass, and
	// PollReply.Cursor continues it.
	Whole  bool
	Cursor string
	// Share is how long an answer without jobs is valid for all callers with the same question and
	// Share, if there are several masters; 0 = not at all. A Whole pass is never shared.
	Share time.Duration
	// Fresh always looks; others may use the answer.
	Fresh bool
}

// Poll returns which queues hold jobs.
func (s *Store) Poll(ctx context.Context, r PollRequest) (PollReply, error) {
	cursor := ""
	if r.All {
		cursor = "w"
		if r.Whole {
			cursor = cmp.Or(r.Cursor, "0")
		}
	}
	args := with([]any{s.db.Prefix, cursor, r.digest(), r.Share.Milliseconds(), rdb.Flag(r.Fresh)}, r.Fixed...)
	list, err := s.db.EvalList(ctx, pollScript, s.db.Key(keyQueues), args, 7)
	if err != nil {
		return PollReply{}, err
	}
	reply := PollReply{
		Cursor: list.Text(0), Due: list.Number(3) == 1, Known: int(list.Number(4)), Shared: list.Number(5) == 1, Masters: int(list.Number(6)),
	}
	for _, text := range list.Texts(1) {
		if reply.Reasons == nil {
			reply.Reasons = Reasons{}
		}
		reply.Reasons[text[1:]] = Reason(text[0])
	}
	suspects, _ := list[2].([]any)
	for i := 0; i+1 < len(suspects); i += 2 {
		if reply.Suspects == nil {
			reply.Suspects = map[string]int{}
		}
		queue, _ := suspects[i].(string)
		reply.Suspects[queue] = int(rdb.Number(suspects[i+1]))
	}
	return reply, nil
}

// digest identifies the question; "" = the answer is not shared.
func (r PollRequest) digest() string {
	if r.Share < time.Millisecond || r.Whole {
		return ""
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "2 %t %d", r.All, r.Share.Milliseconds())
	for _, q := range r.Fixed {
		_, _ = fmt.Fprintf(h, " %d %s", len(q), q)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

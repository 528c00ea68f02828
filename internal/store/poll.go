package store

import (
	"context"
	"fmt"

	"github.com/resqued/resqued/internal/rdb"
)

var pollScript = rdb.NewScript(Lua, "poll", "lib/base", "lib/records", "lib/blocked_queues", "lib/suspects", "lib/pause", "poll")

// Poll returns which queues hold jobs: the fixed ones named, and with all set also
// the members of the queues set, a part of a large set at a time (cursor "0"
// begins a pass).
func (s *Store) Poll(ctx context.Context, all bool, cursor string, fixed []string) (PollReply, error) {
	args := make([]any, 0, 2+len(fixed))
	if !all {
		cursor = ""
	} else if cursor == "" {
		cursor = "0"
	}
	args = append(args, s.db.Prefix, cursor)
	for _, q := range fixed {
		args = append(args, q)
	}
	raw, err := s.db.Eval(ctx, pollScript, s.db.Key(keyQueues), args)
	if err != nil {
		return PollReply{}, err
	}
	list, _ := raw.([]any)
	if len(list) != 7 {
		return PollReply{}, fmt.Errorf("script poll: unexpected reply %v", raw)
	}
	reply := PollReply{Waiting: rdb.Texts(list[1]), Blocked: rdb.Texts(list[2]), Due: rdb.Number(list[4]) == 1, Paused: rdb.Texts(list[5]), Known: int(rdb.Number(list[6]))}
	reply.Cursor, _ = list[0].(string)
	suspects, _ := list[3].([]any)
	for i := 0; i+1 < len(suspects); i += 2 {
		if reply.Suspects == nil {
			reply.Suspects = map[string]int{}
		}
		queue, _ := suspects[i].(string)
		reply.Suspects[queue] = int(rdb.Number(suspects[i+1]))
	}
	return reply, nil
}

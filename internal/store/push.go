package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

var errNoAnswer = errors.New("redis has not answered")

var pushUniqueScript = rdb.NewScript(Lua, "push_unique", "lib/base", "lib/records", "lib/rights", "lib/unique", "push_unique")

// Push appends payloads to a queue, as Ruby's Resque.push does, and returns the queue's new length. After an
// error the outcome is unknown unless Unexecuted.
//
// It is a transaction, not a script: a program that only enqueues needs no right to run scripts.
func (s *Store) Push(ctx context.Context, queue string, payloads ...[]byte) (length int64, err error) {
	g := &pushGroup{queue: queue, values: with(nil, payloads...)}
	s.pushTransaction(ctx, []*pushGroup{g})
	if g.err != nil {
		return 0, fmt.Errorf("push to %q: %w", queue, g.err)
	}
	return g.length, nil
}

// pushTransaction pushes groups, each to its own queue, in one transaction, and sets their lengths and errors.
// aborted: the server refused the whole transaction, perhaps because of one group, and nothing was pushed.
func (s *Store) pushTransaction(ctx context.Context, groups []*pushGroup) (aborted bool) {
	queues, pushes := make([]any, len(groups)), make([]*redis.IntCmd, len(groups))
	for i, g := range groups {
		queues[i] = g.queue
	}
	_ = s.db.Once(ctx, func() error {
		pipe := s.db.Write.TxPipeline()
		known := pipe.SAdd(ctx, s.db.Key(keyQueues), queues...) // before their first job is visible
		for i, g := range groups {
			pushes[i] = pipe.RPush(ctx, s.db.QueueKey(g.queue), g.values...)
		}
		_, err := pipe.Exec(ctx)
		aborted = redis.HasErrorPrefix(err, "EXECABORT")
		unknown := rdb.Refusal(err) == "NOPERM" && strings.Contains(err.Error(), "'multi'")
		ran, again := false, error(nil) // the reason, while nothing can have run
		for i, g := range groups {
			g.length, g.err = pushes[i].Result()
			pushed := g.length > 0
			// For an aborted transaction, this is the reason, if the server gave one.
			if g.err == nil || redis.HasErrorPrefix(g.err, "EXECABORT") {
				g.err = known.Err()
			}
			// Without a length, the push is unconfirmed: an error of the whole transaction, such as a
			// connection that could not be prepared, may be missing in its commands.
			if g.err == nil && !pushed {
				g.err = cmp.Or(err, errNoAnswer)
			}
			if unknown || pushed && rdb.Unexecuted(g.err) {
				// Then the server has run the rest, as single commands if it refused MULTI.
				g.err = fmt.Errorf("the job may have been pushed: %v; docs/redis-keys.md lists the rights that it takes", err) //nolint:errorlint // it proves nothing
			}
			switch {
			case !rdb.Unexecuted(g.err):
				again, ran = nil, true
			case !ran && again == nil:
				again = g.err
			}
		}
		return again
	})
	return aborted
}

// PushReply answers PushUnique.
type PushReply struct {
	// Length is how many jobs wait in the queue afterwards.
	Length int64
	// Pushed says for each payload whether it was pushed; if not, an equal one waits.
	Pushed []bool
}

// PushUnique appends payloads to a unique queue in one step, as resque-uniqueue does: each unless an equal one
// waits. A queue out of step with its companions accepts jobs unless it is strict: then the error is
// ErrOutOfStep and nothing was pushed. After any other error the outcome is unknown unless Unexecuted.
func (s *Store) PushUnique(ctx context.Context, queue string, strict bool, payloads ...[]byte) (PushReply, error) {
	args := with([]any{s.db.Prefix, queue, rdb.Flag(strict)}, payloads...)
	list, err := s.db.EvalList(ctx, pushUniqueScript, s.db.QueueKey(queue), args, 1, 2)
	if err != nil {
		return PushReply{}, fmt.Errorf("push to %q: %w", queue, err)
	}
	if len(list) == 1 {
		return PushReply{}, fmt.Errorf("push to %q: %w; run: resqued locks repair %s", queue, ErrOutOfStep, queue)
	}
	reply := PushReply{Length: list.Number(0)}
	for _, mark := range list.Text(1) {
		reply.Pushed = append(reply.Pushed, mark == '1')
	}
	if len(reply.Pushed) != len(payloads) {
		return PushReply{}, fmt.Errorf("script push_unique: %d answers for %d payloads", len(reply.Pushed), len(payloads))
	}
	return reply, nil
}

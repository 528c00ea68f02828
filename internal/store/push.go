package store

import (
	"context"
	"fmt"
)

var pushScript = loadScript("push", "rights", "unique")

var appendScript = newScript("append", "append")

// Push appends payloads to a queue, as Ruby's Resque.push does, and returns the
// queue's new length. After an error the outcome is unknown unless Unexecuted.
//
// It is a script, because the commands of a transaction that is itself refused are
// carried out one by one.
func (s *Store) Push(ctx context.Context, queue string, payloads ...[]byte) (length int64, err error) {
	args := make([]any, 0, 2+len(payloads))
	args = append(args, s.key(keyQueues), queue)
	for _, p := range payloads {
		args = append(args, p)
	}
	raw, err := s.eval(ctx, appendScript, s.queueKey(queue), args)
	if err != nil {
		return 0, fmt.Errorf("push to %q: %w", queue, err)
	}
	return number(raw), nil
}

// PushReply answers PushUnique.
type PushReply struct {
	// Length is how many jobs wait in the queue then.
	Length int64
	// Pushed tells for each payload whether it was pushed; an equal one waits in
	// place of one that was not.
	Pushed []bool
}

// PushUnique appends payloads to a unique queue, as resque-uniqueue does, all in one
// step: each unless an equal one waits there. A queue whose set and times do not match
// it takes jobs all the same, unless it is strict: then the error is ErrOutOfStep and
// nothing was pushed. After any other error the outcome is unknown unless Unexecuted.
func (s *Store) PushUnique(ctx context.Context, queue string, strict bool, payloads ...[]byte) (PushReply, error) {
	args := make([]any, 0, 3+len(payloads))
	args = append(args, s.prefix, queue, flag(strict))
	for _, p := range payloads {
		args = append(args, p)
	}
	raw, err := s.eval(ctx, pushScript, s.queueKey(queue), args)
	if err != nil {
		return PushReply{}, fmt.Errorf("push to %q: %w", queue, err)
	}
	list, _ := raw.([]any)
	if len(list) == 1 {
		return PushReply{}, fmt.Errorf("push to %q: %w; run: resqued locks repair %s", queue, ErrOutOfStep, queue)
	}
	if len(list) != 2 {
		return PushReply{}, fmt.Errorf("script push: unexpected reply %v", raw)
	}
	reply := PushReply{Length: number(list[0])}
	marks, _ := list[1].(string)
	for _, mark := range marks {
		reply.Pushed = append(reply.Pushed, mark == '1')
	}
	if len(reply.Pushed) != len(payloads) {
		return PushReply{}, fmt.Errorf("script push: %d answers for %d payloads", len(reply.Pushed), len(payloads))
	}
	return reply, nil
}

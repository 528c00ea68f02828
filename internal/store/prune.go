package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	sweepQueuesScript = rdb.NewScript(Lua, "sweep_queues", "lib/base", "lib/pruned", "sweep_queues")
	pruneQueueScript  = rdb.NewScript(Lua, "prune_queue", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues",
		"lib/deaths", "lib/pruned", "prune_queue")
)

// sweepPart is about how many names one step of SweepQueues checks, in about a millisecond of the server.
const sweepPart = 300

// PruneQueue removes the name and all state of a queue in which nothing waits, and reports whether it did: not
// if a job or suspect waits, or if the queue is paused.
func (s *Store) PruneQueue(ctx context.Context, queue string) (pruned bool, err error) {
	return s.prune(ctx, queue, "")
}

// PruneIdle is PruneQueue for a queue without state of jobs that SweepQueues has always seen empty for the time idle.
func (s *Store) PruneIdle(ctx context.Context, queue string, idle time.Duration) (pruned bool, err error) {
	return s.prune(ctx, queue, strconv.FormatInt(idle.Milliseconds(), 10))
}

func (s *Store) prune(ctx context.Context, queue, idle string) (bool, error) {
	raw, err := s.db.Eval(ctx, pruneQueueScript, s.db.QueueKey(queue), []any{s.db.Prefix, queue, idle})
	if err != nil {
		return false, fmt.Errorf("prune %q: %w", queue, err)
	}
	return rdb.Number(raw) == 1, nil
}

// Sweep is the position of a walk through the names of all queues.
type Sweep struct {
	// At is "" for a walk that begins or has ended.
	At string
	// Now is the server's time of the last step.
	Now time.Time
	// Back is how many queues got their name back in the last step.
	Back int
}

// SweepQueues continues a walk through the names of all queues, which notes since when they are empty. Of all
// callers, one begins such a walk per while; for the others it ends at once.
func (s *Store) SweepQueues(ctx context.Context, caller string, while time.Duration, at string) (Sweep, error) {
	list, err := s.db.EvalList(ctx, sweepQueuesScript, s.db.Key(keyQueues), []any{s.db.Prefix, at, caller, while.Milliseconds(), sweepPart}, 3)
	if err != nil {
		return Sweep{}, fmt.Errorf("look at the names of queues: %w", err)
	}
	return Sweep{At: list.Text(0), Now: time.UnixMilli(list.Number(1)), Back: int(list.Number(2))}, nil
}

// IdleQueues returns at most n queues that walks have seen empty since a time, the longest empty ones first.
func (s *Store) IdleQueues(ctx context.Context, since time.Time, n int) ([]string, error) {
	names, err := s.db.Read.ZRangeByScore(ctx, s.db.Key(keyEmpty), &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(since.UnixMilli(), 10), Count: int64(n),
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("list empty queues: %w", err)
	}
	return names, nil
}

// KeepQueues resets to now since when queues are empty.
func (s *Store) KeepQueues(ctx context.Context, now time.Time, names []string) error {
	if len(names) == 0 {
		return nil
	}
	members := make([]redis.Z, len(names))
	for i, name := range names {
		members[i] = redis.Z{Score: float64(now.UnixMilli()), Member: name}
	}
	if err := s.db.Write.ZAddXX(ctx, s.db.Key(keyEmpty), members...).Err(); err != nil {
		return fmt.Errorf("keep the names of queues: %w", err)
	}
	return nil
}

// QueueUsers names queues in use, whether they exist or not.
type QueueUsers struct {
	// Masters are the queues of each master's configuration, as written there.
	Masters []string
	// Workers are the ids of all registered workers.
	Workers []string
	// Schedules are the definitions of schedules, as JSON.
	Schedules []string
}

// QueueUsers returns the names of queues in use.
func (s *Store) QueueUsers(ctx context.Context) (QueueUsers, error) {
	var u QueueUsers
	var err error
	if u.Workers, err = s.members(ctx, s.db.Key(keyWorkers)); err != nil {
		return u, fmt.Errorf("list workers (%s): %w", s.db.Key(keyWorkers), err)
	}
	ids, err := s.db.Read.SMembers(ctx, s.db.Key(keyMasters)).Result()
	if err != nil {
		return u, fmt.Errorf("list masters (%s): %w", s.db.Key(keyMasters), err)
	}
	queues := make([]*redis.StringCmd, len(ids))
	err = s.readEach(ctx, len(ids), func(pipe redis.Pipeliner, i int) { queues[i] = pipe.HGet(ctx, s.db.Key(keyMaster)+ids[i], "queues") })
	if err != nil {
		return u, fmt.Errorf("read masters: %w", err)
	}
	for _, q := range queues {
		if err := q.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return u, fmt.Errorf("read masters: %w", err)
		}
		u.Masters = append(u.Masters, q.Val())
	}
	for _, key := range []string{keyShown, keyStored} {
		if err := s.eachField(ctx, key, func(_, definition string) { u.Schedules = append(u.Schedules, definition) }); err != nil {
			return u, err
		}
	}
	return u, nil
}

// eachField calls visit with the fields of a hash of any size, some perhaps twice.
func (s *Store) eachField(ctx context.Context, key string, visit func(field, value string)) error {
	fields := s.db.Read.HScan(ctx, s.db.Key(key), 0, "", 500).Iterator()
	for fields.Next(ctx) {
		field := fields.Val()
		fields.Next(ctx)
		visit(field, fields.Val())
	}
	if err := fields.Err(); err != nil {
		return fmt.Errorf("read %s: %w", s.db.Key(key), err)
	}
	return nil
}

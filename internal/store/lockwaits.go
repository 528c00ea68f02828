package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// WaitInfo is a queue with jobs that wait for their locks.
type WaitInfo struct {
	Queue string
	// Locked is how many of Size jobs were locked at the last look; if all, the queue is skipped.
	Locked, Size int64
	// Lined is how many of the Locked wait in lines.
	Lined int64
	// Since is when that was first seen; zero = long ago, or not by resqued.
	Since time.Time
	// Locks is how many locks are known to be in the way.
	Locks int64
}

// WaitList returns the queues whose jobs wait for locks, sorted.
func (s *Store) WaitList(ctx context.Context) ([]WaitInfo, error) {
	queues, err := s.QueueList(ctx)
	if err != nil {
		return nil, err
	}
	queues = slices.DeleteFunc(queues, func(q QueueInfo) bool { return q.Bounces <= 0 || q.Size == 0 })
	out := make([]WaitInfo, len(queues))
	seen, blocked := make([]*redis.StringCmd, len(queues)), make([]*redis.IntCmd, len(queues))
	lines, first := make([]*redis.IntCmd, len(queues)), make([]*redis.ZSliceCmd, len(queues))
	err = s.readEach(ctx, len(queues), func(pipe redis.Pipeliner, i int) {
		q := queues[i]
		out[i] = WaitInfo{Queue: q.Name, Locked: min(q.Bounces, q.Size), Size: q.Size}
		seen[i] = pipe.Get(ctx, s.db.Key(keySeen)+q.Name)
		blocked[i] = pipe.SCard(ctx, s.db.Key(keyBlocked)+q.Name)
		lines[i], first[i] = pipe.ZCard(ctx, s.db.Key(rdb.KeyLines)+q.Name), pipe.ZRangeWithScores(ctx, s.db.Key(rdb.KeyLines)+q.Name, 0, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("locks in the way: %w", err)
	}
	for i := range out {
		out[i].Locks, out[i].Lined = blocked[i].Val()+lines[i].Val(), queues[i].Lined
		if began := first[i].Val(); len(began) > 0 {
			out[i].Since = time.UnixMilli(int64(began[0].Score))
			continue
		}
		// The format of note_seen in rdb/lua/lib/blocked_queues.lua.
		if note := strings.Fields(seen[i].Val()); len(note) > 1 {
			if ms, err := strconv.ParseInt(note[1], 10, 64); err == nil && ms > 0 {
				out[i].Since = time.UnixMilli(ms)
			}
		}
	}
	return out, nil
}

// LockWaiters returns the queues with jobs known to wait for a lock, whose key is without the namespace.
func (s *Store) LockWaiters(ctx context.Context, key string) ([]string, error) {
	waits, err := s.WaitList(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]*redis.BoolCmd, len(waits))
	err = s.readEach(ctx, len(waits), func(pipe redis.Pipeliner, i int) {
		found[i] = pipe.SIsMember(ctx, s.db.Key(keyBlocked)+waits[i].Queue, s.db.Key(key))
	})
	if err != nil {
		return nil, fmt.Errorf("queues that wait: %w", err)
	}
	queues, err := s.lineOf(ctx, key)
	if err != nil {
		return nil, err
	}
	for i, w := range waits {
		if found[i].Val() && !slices.Contains(queues, w.Queue) {
			queues = append(queues, w.Queue)
		}
	}
	slices.Sort(queues)
	return queues, nil
}

// UniqueInfo is a queue and its companions of resque-uniqueue.
type UniqueInfo struct {
	Queue string
	// Size, Members and Starts are the lengths of the queue, its set of payloads and its list of times, equal
	// if in step.
	Size, Members, Starts int64
	// Err says why they are unknown: a key has the wrong type.
	Err error
	// Kept: a companion exists, so a program keeps the queue unique.
	Kept bool
}

// InStep reports whether the queue's keys match.
func (u UniqueInfo) InStep() bool {
	return u.Err == nil && u.Size == u.Members && u.Size == u.Starts
}

// UniqueList returns the state of some queues as unique ones, in their order.
func (s *Store) UniqueList(ctx context.Context, queues []string) ([]UniqueInfo, error) {
	out := make([]UniqueInfo, 0, len(queues))
	for batch := range slices.Chunk(queues, 100) {
		var counts []*redis.IntCmd
		// Atomic, as jobs may come and go.
		err := s.db.Together(ctx, func(pipe redis.Pipeliner) {
			counts = nil
			for _, q := range batch {
				key := s.db.QueueKey(q)
				counts = append(counts, pipe.LLen(ctx, key), pipe.SCard(ctx, key+":uniqueue"), pipe.LLen(ctx, key+":start_at"))
			}
		})
		if err != nil && rdb.Unreachable(err) {
			return nil, fmt.Errorf("lengths of unique queues: %w", err)
		}
		for i, q := range batch {
			c := counts[3*i : 3*i+3]
			info := UniqueInfo{Queue: q, Size: c[0].Val(), Members: c[1].Val(), Starts: c[2].Val()}
			info.Kept = info.Members > 0 || info.Starts > 0 || c[1].Err() != nil || c[2].Err() != nil
			for _, one := range c {
				if one.Err() != nil {
					info.Err = one.Err()
				}
			}
			out = append(out, info)
		}
	}
	return out, nil
}

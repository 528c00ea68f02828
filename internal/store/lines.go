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

// The keys of lines, in which jobs wait for their lock; see lua/lib/lines.lua.
const (
	keyReady     = "resqued:ready:"
	keyLined     = "resqued:lined"
	keyAwaited   = "resqued:awaited"
	keyTurn      = "resqued:turn:"
	keyTurns     = "resqued:turns:"
	keyTurned    = "resqued:turned" // queues → how many of their jobs in lines wait for turns, not for locks
	keyStrangers = "resqued:strangers"
)

var dropLinesScript = rdb.NewScript(Lua, "drop_lines", "lib/base", "lib/records", "lib/rights", "lib/lines", "drop_lines")

// LineInfo is a line of jobs that wait for one lock.
type LineInfo struct {
	Queue string
	// Lock is the key of the lock, without the namespace.
	Lock string
	Jobs int64
	// Since is when the line began.
	Since time.Time
	// Ready: the lock was released, and the next of the line may be taken.
	Ready bool
}

// Lines returns the lines of a queue, those that began first before the others, at most limit.
func (s *Store) Lines(ctx context.Context, queue string, limit int) ([]LineInfo, error) {
	began, err := s.db.Read.ZRangeWithScores(ctx, s.db.Key(rdb.KeyLines)+queue, 0, int64(limit)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("lines of %q: %w", queue, err)
	}
	out := make([]LineInfo, len(began))
	sizes, ready := make([]*redis.IntCmd, len(began)), make([]*redis.FloatCmd, len(began))
	err = s.readEach(ctx, len(began), func(pipe redis.Pipeliner, i int) {
		name, _ := began[i].Member.(string)
		out[i] = LineInfo{Queue: queue, Lock: keyJobLocks + name, Since: time.UnixMilli(int64(began[i].Score))}
		sizes[i], ready[i] = pipe.LLen(ctx, s.db.LineKey(queue, name)), pipe.ZScore(ctx, s.db.Key(keyReady)+queue, name)
	})
	if err != nil {
		return nil, fmt.Errorf("lines of %q: %w", queue, err)
	}
	for i := range out {
		out[i].Jobs, out[i].Ready = sizes[i].Val(), ready[i].Err() == nil
	}
	return slices.DeleteFunc(out, func(l LineInfo) bool { return l.Jobs == 0 }), nil
}

// Lined returns how many jobs wait in lines, by queue.
func (s *Store) Lined(ctx context.Context) (map[string]int64, error) {
	counts, err := s.db.Read.HGetAll(ctx, s.db.Key(keyLined)).Result()
	if err != nil {
		return nil, fmt.Errorf("jobs in lines (%s): %w", s.db.Key(keyLined), err)
	}
	return lineCounts(counts), nil
}

func lineCounts(fields map[string]string) map[string]int64 {
	out := make(map[string]int64, len(fields))
	for queue, text := range fields {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			out[queue] = n
		}
	}
	return out
}

// place is a list in which jobs of a queue wait: the queue itself, or a line.
type place struct {
	key string
	// line tells a script of the line: l and the name of its lock, t and the tenant's place; "" = the queue itself.
	line string
}

// places returns where jobs of a queue wait: in the queue, then in its lines for locks, the oldest first, then in
// those of its tenants, the next first.
func (s *Store) places(ctx context.Context, queue string) ([]place, error) {
	pipe := s.db.Read.Pipeline()
	names, tenants := pipe.ZRange(ctx, s.db.Key(rdb.KeyLines)+queue, 0, -1), pipe.ZRange(ctx, s.db.Key(keyTurns)+queue, 0, -1)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("lines of %q: %w", queue, err)
	}
	out := make([]place, 0, 1+len(names.Val())+len(tenants.Val()))
	out = append(out, place{key: s.db.QueueKey(queue)})
	for _, name := range names.Val() {
		out = append(out, place{key: s.db.LineKey(queue, name), line: "l" + name})
	}
	for _, tenant := range tenants.Val() {
		out = append(out, place{key: s.turnKey(queue, tenant), line: "t" + tenant})
	}
	return out, nil
}

// turnKey is the list of the jobs of one place among those that wait for turns; see lua/lib/lines.lua.
func (s *Store) turnKey(queue, place string) string {
	return s.db.Key(keyTurn) + strconv.Itoa(len(queue)) + ":" + queue + ":" + place
}

// dropLines removes all lines of a queue with the jobs in them, in parts of bounded size, and
// returns how many jobs those were.
func (s *Store) dropLines(ctx context.Context, queue string) (jobs int64, err error) {
	for {
		raw, err := s.db.Eval(ctx, dropLinesScript, s.db.Key(rdb.KeyLines)+queue, []any{s.db.Prefix, queue})
		if err != nil {
			return jobs, err
		}
		list, _ := raw.([]any)
		if len(list) != 2 {
			return jobs, fmt.Errorf("script drop_lines: unexpected reply %v", raw)
		}
		jobs += rdb.Number(list[0])
		if rdb.Number(list[1]) == 0 {
			return jobs, nil
		}
	}
}

// linePayloads returns payloads of the lines of a queue, the first line first, without the first
// offset of them.
func (s *Store) linePayloads(ctx context.Context, queue string, offset, limit int64) ([]string, error) {
	places, err := s.places(ctx, queue)
	if err != nil {
		return nil, err
	}
	var out []string
	for part := range slices.Chunk(places[1:], 100) {
		sizes := make([]*redis.IntCmd, len(part))
		if err := s.readEach(ctx, len(part), func(pipe redis.Pipeliner, i int) { sizes[i] = pipe.LLen(ctx, part[i].key) }); err != nil {
			return nil, fmt.Errorf("lines of %q: %w", queue, err)
		}
		for i, p := range part {
			size, left := sizes[i].Val(), limit-int64(len(out))
			if left <= 0 {
				return out, nil
			}
			if size <= offset {
				offset -= size
				continue
			}
			some, err := s.db.Read.LRange(ctx, p.key, offset, offset+left-1).Result()
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", p.key, err)
			}
			out, offset = append(out, some...), 0
		}
	}
	return out, nil
}

// lineOf returns the queues that have a line for a lock, whose key is without the namespace.
func (s *Store) lineOf(ctx context.Context, key string) ([]string, error) {
	name, ok := strings.CutPrefix(key, keyJobLocks)
	if !ok {
		return nil, nil
	}
	text, err := s.db.Read.HGet(ctx, s.db.Key(keyAwaited), name).Result()
	if err != nil && rdb.Unreachable(err) {
		return nil, fmt.Errorf("queues that wait: %w", err)
	}
	return awaiting(text), nil
}

// awaiting reads a list of "<length> <queue>".
func awaiting(text string) (queues []string) {
	for text != "" {
		size, rest, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > len(rest) {
			return queues
		}
		queues, text = append(queues, rest[:n]), rest[n:]
	}
	return queues
}

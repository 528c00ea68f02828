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

const (
	keyReady        = "resqued:ready:"
	keyLined        = "resqued:lined"
	keyAwaited      = "resqued:awaited"
	keyTurned       = "resqued:turned" // queues → how many of their jobs in lines wait for turns rather than locks
	keyOtherWorkers = "resqued:strangers"
)

var (
	dropLinesScript = rdb.NewScript(Lua, "drop_lines", "lib/base", "lib/rights", "lib/lines", "drop_lines")
	unlineScript    = rdb.NewScript(Lua, "unline", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/parked", "unline")
)

// LineInfo is a line of jobs that wait for one lock.
type LineInfo struct {
	// Lock is the key of the lock, without the namespace.
	Lock string
	Jobs int64
	// Since is when the line began.
	Since time.Time
	// Ready: the lock was released, so the next job may be taken.
	Ready bool
}

// Lines returns at most limit lines of a queue, the oldest first.
func (s *Store) Lines(ctx context.Context, queue string, limit int) ([]LineInfo, error) {
	began, err := s.db.Read.ZRangeWithScores(ctx, s.db.Key(rdb.KeyLines)+queue, 0, int64(limit)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("lines of %q: %w", queue, err)
	}
	out := make([]LineInfo, len(began))
	sizes, ready := make([]*redis.IntCmd, len(began)), make([]*redis.FloatCmd, len(began))
	err = s.readEach(ctx, len(began), func(pipe redis.Pipeliner, i int) {
		name, _ := began[i].Member.(string)
		out[i] = LineInfo{Lock: keyJobLocks + name, Since: time.UnixMilli(int64(began[i].Score))}
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

func (s *Store) linedJobs(ctx context.Context) (map[string]int64, error) {
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

// place is a list in which jobs of a queue wait: the queue or a line.
type place struct {
	key string
	// line identifies the line for scripts: l and the lock's name, t and the tenant's place; "" = the queue.
	line string
}

// waits returns what the jobs of a place wait for, "" for the queue itself.
func (p place) waits() string {
	kind, name := p.line[:min(1, len(p.line))], p.line[min(1, len(p.line)):]
	gate := limitOf(name)
	switch {
	case kind == "":
		return ""
	case kind == "t":
		return "turn of its tenant"
	case gate != "":
		return "limit " + strings.TrimSuffix(gate, ":")
	}
	return "lock " + keyJobLocks + name
}

// eachPlace visits the lists in which jobs of a queue wait, in the order in which jobs pass through them: the queue,
// its tenants' lines, the lines for locks. It lists each kind after visiting the one before, so it meets each job
// that waits all the time, even if a worker moves it into a line.
func (s *Store) eachPlace(ctx context.Context, queue string, visit func(place) error) error {
	if err := visit(s.placeOf(queue)); err != nil {
		return err
	}
	for _, kind := range []string{"t", "l"} {
		lines, err := s.linesOf(ctx, queue, kind)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if err := visit(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldestFirst visits a queue's lines first, because their jobs are older than those of the queue, and then all places
// as eachPlace does.
func (s *Store) oldestFirst(ctx context.Context, queue string, visit func(place) error) error {
	lines, err := s.linesOf(ctx, queue, "lt")
	for _, line := range lines {
		if err == nil {
			err = visit(line)
		}
	}
	if err != nil {
		return err
	}
	return s.eachPlace(ctx, queue, visit)
}

// linesOf returns lines of a queue. The kinds are l, lines for locks, the oldest first, and t, tenants' lines,
// the next first.
func (s *Store) linesOf(ctx context.Context, queue, kinds string) (lines []place, err error) {
	for _, kind := range kinds {
		index, key := s.db.Key(rdb.KeyLines), s.db.LineKey
		if kind == 't' {
			index, key = s.db.Key(rdb.KeyTurns), s.db.TurnKey
		}
		names, err := s.db.Read.ZRange(ctx, index+queue, 0, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("lines of %q: %w", queue, err)
		}
		for _, name := range names {
			lines = append(lines, place{key: key(queue, name), line: string(kind) + name})
		}
	}
	return lines, nil
}

// dropLines removes all lines of a queue with their jobs, in parts of bounded size, and returns how many jobs there
// were.
func (s *Store) dropLines(ctx context.Context, queue string) (jobs int64, err error) {
	for {
		list, err := s.db.EvalList(ctx, dropLinesScript, s.db.Key(rdb.KeyLines)+queue, []any{s.db.Prefix, queue}, 2)
		if err != nil {
			return jobs, err
		}
		if jobs += list.Number(0); list.Number(1) == 0 {
			return jobs, nil
		}
	}
}

// Unline returns the jobs in a queue's lines to its head, for workers of other programs, in parts of bounded size. It
// returns how many there were. Daemons that work the queue may move them into lines again.
func (s *Store) Unline(ctx context.Context, queue string) (jobs int64, err error) {
	lined, err := s.linedJobs(ctx)
	if err != nil {
		return 0, err
	}
	// Bounded, as a daemon may fill the lines again.
	for calls := 100 + lined[queue]; calls > 0 && jobs <= 2*lined[queue]+1000; calls-- {
		list, err := s.db.EvalList(ctx, unlineScript, s.db.QueueKey(queue), []any{s.db.Prefix, queue, 1000}, 2)
		if err != nil {
			return jobs, fmt.Errorf("lines of %q: %w", queue, err)
		}
		if jobs += list.Number(0); list.Number(1) == 0 {
			return jobs, nil
		}
	}
	return jobs, fmt.Errorf("lines of %q: a daemon fills them again; stop the daemons that work the queue first", queue)
}

// linePayloads returns payloads in a queue's lines, the first line first, after offset of them.
func (s *Store) linePayloads(ctx context.Context, queue string, offset, limit int64) ([]string, error) {
	lines, err := s.linesOf(ctx, queue, "lt")
	if err != nil {
		return nil, err
	}
	var out []string
	for part := range slices.Chunk(lines, 100) {
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

// lineOf returns the queues with a line for a lock, whose key is without the namespace.
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

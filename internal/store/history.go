package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/rdb"
)

const (
	// historyBatch bounds the names written, or strings read, in one pipeline.
	historyBatch = 100
	// levelsEvery is for how long one note of the queues' lengths prevents another.
	levelsEvery = 50 * time.Second
	// maxLevels bounds the queues whose length is noted, maxLookedAt the queues checked.
	maxLevels, maxLookedAt = history.MaxNames, 20_000
	// headBatch bounds the payloads read at a time: they may be large.
	headBatch = 20

	keyLevelsTurn = history.Prefix + "turn"
)

// NamedSeries is a series of the history in Redis.
type NamedSeries struct {
	history.Name
	// Last is the last minute with a count.
	Last time.Time
}

// HistoryNames returns the existing series, sorted. Invalid members are ignored.
func (s *Store) HistoryNames(ctx context.Context) ([]NamedSeries, error) {
	// Another program's set may have any size.
	members, err := s.db.Read.ZRevRangeWithScores(ctx, s.db.Key(history.KeyNames), 0, 4*history.MaxNames).Result()
	if err != nil {
		return nil, fmt.Errorf("names of the history: %w", err)
	}
	out := make([]NamedSeries, 0, len(members))
	for _, z := range members {
		text, _ := z.Member.(string)
		if name, err := history.ParseName(text); err == nil {
			out = append(out, NamedSeries{name, time.Unix(60*int64(z.Score), 0).UTC()})
		}
	}
	slices.SortFunc(out, func(a, b NamedSeries) int { return a.Compare(b.Name) })
	return out, nil
}

// ForgetHistory removes names and their totals; their other strings expire.
func (s *Store) ForgetHistory(ctx context.Context, names []history.Name) error {
	for _, name := range names {
		if err := s.db.Write.Del(ctx, s.db.Key(history.TotalKey(name))).Err(); err != nil {
			return fmt.Errorf("history of %q: %w", name, err)
		}
		if err := s.db.Write.ZRem(ctx, s.db.Key(history.KeyNames), name.String()).Err(); err != nil {
			return fmt.Errorf("history of %q: %w", name, err)
		}
	}
	return nil
}

// AddHistory adds sums to the history, in single commands without repetition. left are the sums that were
// certainly not written. Others affected by an error may be partly counted: losing counts is better than
// counting twice.
func (s *Store) AddHistory(ctx context.Context, series []history.Series) (left []history.Series, err error) {
	for _, m := range series {
		names := slices.SortedFunc(maps.Keys(m.Sums), history.Name.Compare)
		rest := history.Series{Minute: m.Minute, Sums: map[history.Name]*history.Sum{}}
		for batch := range slices.Chunk(names, historyBatch) {
			if rdb.Unreachable(err) || ctx.Err() != nil {
				for _, name := range batch { // not sent at all
					rest.Sums[name] = m.Sums[name]
				}
				continue
			}
			unwritten, failed := s.addBatch(ctx, m, batch)
			err = cmp.Or(err, failed)
			for _, name := range unwritten {
				rest.Sums[name] = m.Sums[name]
			}
		}
		if len(rest.Sums) > 0 {
			left = append(left, rest)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return left, fmt.Errorf("write the history: %w", err)
	}
	return left, nil
}

// addBatch writes the sums of some names in one minute, and returns the names for which nothing was written.
func (s *Store) addBatch(ctx context.Context, m history.Series, names []history.Name) (unwritten []history.Name, err error) {
	pipe := s.db.Write.Pipeline()
	members := make([]redis.Z, len(names))
	for i, name := range names {
		members[i] = redis.Z{Score: float64(m.Minute), Member: name.String()}
	}
	named := pipe.ZAdd(ctx, s.db.Key(history.KeyNames), members...)
	written := make([][]*redis.IntSliceCmd, len(names))
	for i, name := range names {
		for _, w := range history.Writes(name, m.Minute, m.Sums[name]) {
			written[i] = append(written[i], s.bitfield(ctx, pipe, w))
		}
	}
	_ = told(pipe.Exec(ctx))
	err = named.Err()
	for i, name := range names {
		unexecuted := true
		for _, cmd := range written[i] {
			err = cmp.Or(err, cmd.Err())
			unexecuted = unexecuted && rdb.Unexecuted(cmd.Err())
		}
		if unexecuted {
			unwritten = append(unwritten, name)
		}
	}
	return unwritten, err
}

func (s *Store) bitfield(ctx context.Context, pipe redis.Pipeliner, w history.Write) *redis.IntSliceCmd {
	key := s.db.Key(w.Key)
	cmd := pipe.BitField(ctx, key, w.Args...)
	if w.TTL > 0 {
		pipe.Expire(ctx, key, w.TTL)
	}
	return cmd
}

// History returns the points of some series, in the order of the queries. A key of another type counts as empty.
func (s *Store) History(ctx context.Context, queries ...history.Query) ([][]history.Point, error) {
	out := make([][]history.Point, len(queries))
	for i, q := range queries {
		strings, err := s.historyStrings(ctx, q.Keys())
		if err != nil {
			return nil, fmt.Errorf("history of %q: %w", q.Name, err)
		}
		out[i] = q.Points(strings)
	}
	return out, nil
}

// HistoryTotals returns the counts since the beginning, in the order of names.
func (s *Store) HistoryTotals(ctx context.Context, names ...history.Name) ([]history.Sum, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = history.TotalKey(name)
	}
	strings, err := s.historyStrings(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("totals of the history: %w", err)
	}
	out := make([]history.Sum, len(names))
	for i, raw := range strings {
		out[i] = history.ReadTotal(raw)
	}
	return out, nil
}

// QueueLevels returns a queue's length, minute by minute.
func (s *Store) QueueLevels(ctx context.Context, q history.Levels) ([]history.Level, error) {
	strings, err := s.historyStrings(ctx, q.Keys())
	if err != nil {
		return nil, fmt.Errorf("lengths of queue %q: %w", q.Queue, err)
	}
	return q.Levels(strings), nil
}

// historyStrings reads strings of the history; a missing one is nil. It bounds the size read of foreign ones.
func (s *Store) historyStrings(ctx context.Context, keys []string) ([][]byte, error) {
	const most = 8 << 10 // a day takes 6,720 bytes
	cmds := make([]*redis.StringCmd, len(keys))
	err := s.readEach(ctx, len(keys), func(pipe redis.Pipeliner, i int) {
		cmds[i] = pipe.GetRange(ctx, s.db.Key(keys[i]), 0, most-1)
	})
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(keys))
	for i, cmd := range cmds {
		if raw, err := cmd.Bytes(); err == nil && len(raw) > 0 {
			out[i] = raw
		}
	}
	return out, nil
}

// NoteLevels notes the lengths of non-empty queues, and reports whether it was this call's turn: one caller per
// levelsEvery gets it.
func (s *Store) NoteLevels(ctx context.Context, now time.Time) (mine bool, err error) {
	mine, err = s.db.Write.SetNX(ctx, s.db.Key(keyLevelsTurn), now.Unix()/60, levelsEvery).Result()
	if err == nil && mine {
		err = s.noteLevels(ctx, now)
	}
	if err != nil {
		return mine, fmt.Errorf("note the lengths of queues: %w", err)
	}
	return mine, nil
}

func (s *Store) noteLevels(ctx context.Context, now time.Time) error {
	queues, err := s.longest(ctx, maxLevels)
	if err != nil {
		return err
	}
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.Name
	}
	locked := make([]*redis.IntCmd, len(queues))
	err = s.readEach(ctx, len(queues), func(pipe redis.Pipeliner, i int) {
		locked[i] = pipe.SCard(ctx, s.db.Key(keyBlocked)+names[i])
	})
	if err != nil {
		return err
	}
	at := 0
	for batch := range slices.Chunk(names, headBatch) {
		heads, err := s.Heads(ctx, batch)
		if err != nil {
			return err
		}
		read := s.db.Read.Pipeline()
		aged := s.agesOf(ctx, read, batch)
		if _, err := read.Exec(ctx); err != nil && rdb.Unreachable(err) {
			return err
		}
		ages := aged()
		pipe := s.db.Write.Pipeline()
		for i, head := range heads {
			l := history.Level{Jobs: uint64(queues[at].Size), Oldest: history.Unknown, Locked: uint64(locked[at].Val())}
			if age := ages[i].Head(head); !age.Pushed.IsZero() {
				l.Oldest = max(0, now.Sub(age.Pushed))
			}
			s.bitfield(ctx, pipe, history.WriteLevel(batch[i], now.Unix()/60, l))
			at++
		}
		if _, err := pipe.Exec(ctx); err != nil && (rdb.Unreachable(err) || rdb.Refusal(err) != "" || ctx.Err() != nil) {
			return err
		}
	}
	return nil
}

// longest returns at most most non-empty queues, the longest first.
func (s *Store) longest(ctx context.Context, most int) ([]QueueInfo, error) {
	var names []string
	all := s.db.Read.SScan(ctx, s.db.Key(keyQueues), 0, "", 1000).Iterator()
	for len(names) < maxLookedAt && all.Next(ctx) {
		if name := all.Val(); name != "" && len(name) <= history.MaxName {
			names = append(names, name)
		}
	}
	if err := all.Err(); err != nil {
		return nil, err
	}
	slices.Sort(names)
	names = slices.Compact(names) // a scan may return one twice
	sizes := make([]*redis.IntCmd, len(names))
	err := s.readEach(ctx, len(names), func(pipe redis.Pipeliner, i int) { sizes[i] = pipe.LLen(ctx, s.db.QueueKey(names[i])) })
	if err != nil {
		return nil, err
	}
	lined, err := s.linedJobs(ctx)
	if err != nil && rdb.Unreachable(err) {
		return nil, err
	}
	var out []QueueInfo
	for i, name := range names {
		if n := sizes[i].Val() + lined[name]; n > 0 {
			out = append(out, QueueInfo{Name: name, Size: n, Lined: lined[name]})
		}
	}
	slices.SortFunc(out, func(a, b QueueInfo) int { return cmp.Compare(b.Size, a.Size) })
	return out[:min(len(out), most)], nil
}

// HistoryBroken reports whether a key of the history has the wrong type or a right is missing, so that
// repeating is useless.
func HistoryBroken(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (rdb.Refusal(err) == "" || rdb.Refusal(err) == "NOPERM")
}

// MasterCount returns the number of masters.
func (s *Store) MasterCount(ctx context.Context) (int64, error) {
	n, err := s.db.Read.SCard(ctx, s.db.Key(keyMasters)).Result()
	if err != nil {
		return 0, fmt.Errorf("count masters: %w", err)
	}
	return n, nil
}

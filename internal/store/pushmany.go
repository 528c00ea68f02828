package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// pipedBytes bounds the payloads of one PushMany that are under way at a time.
const pipedBytes = 8 << 20

// Pushed is the outcome of one payload of PushMany.
type Pushed struct {
	// Length is the queue's length up to and including it.
	Length int64
	// Err is why it was not pushed, or an error that is not Unexecuted: then the outcome is unknown.
	Err error
}

// pushGroup are payloads for one queue, pushed with one command, and their outcome.
type pushGroup struct {
	queue  string
	values []any
	at     []int // indexes of the payloads
	size   int
	length int64 // of the queue, including them
	err    error
}

// add adds the payload with an index.
func (g *pushGroup) add(payload []byte, at int) {
	g.values, g.at = append(g.values, payload), append(g.at, at)
	g.size += len(payload)
}

// answer sets the outcomes of its payloads.
func (g *pushGroup) answer(out []Pushed) {
	for k, at := range g.at {
		if g.err != nil {
			out[at].Err = fmt.Errorf("push to %q: %w", g.queue, g.err)
		} else {
			out[at].Length = g.length - int64(len(g.at)-1-k)
		}
	}
}

// PushMany appends payloads to queues, payloads[i] to queues[i], and answers for each. Payloads of a queue keep
// their order. It sends thousands at a time and waits for their answers together.
func (s *Store) PushMany(ctx context.Context, queues []string, payloads [][]byte) []Pushed {
	out := make([]Pushed, len(payloads))
	names := slices.Compact(slices.Sorted(slices.Values(queues)))
	for some := range slices.Chunk(names, 1000) {
		// Before their first job is visible.
		if err := s.db.Once(ctx, func() error { return s.db.Write.SAdd(ctx, s.db.Key(keyQueues), some).Err() }); err != nil {
			for i := range out {
				out[i].Err = fmt.Errorf("push to %q: %w: %w", queues[i], rdb.ErrNotSent, err)
			}
			return out
		}
	}
	var round []*pushGroup
	open, size := map[string]*pushGroup{}, 0
	for i, payload := range payloads {
		g := open[queues[i]]
		if g == nil || len(g.values) == batchJobs || g.size+len(payload) > batchBytes {
			if size > pipedBytes {
				s.pushRound(ctx, round, out)
				round, open, size = nil, map[string]*pushGroup{}, 0
			}
			g = &pushGroup{queue: queues[i]}
			open[queues[i]] = g
			round = append(round, g)
		}
		g.add(payload, i)
		size += len(payload)
	}
	s.pushRound(ctx, round, out)
	return out
}

// pushRound sends groups together. It only repeats a group after an answer which proves that it was not pushed.
func (s *Store) pushRound(ctx context.Context, groups []*pushGroup, out []Pushed) {
	left := groups
	_ = s.db.Once(ctx, func() error {
		pipe := s.db.Write.Pipeline()
		cmds := make([]*redis.IntCmd, len(left))
		for i, g := range left {
			cmds[i] = pipe.RPush(ctx, s.db.QueueKey(g.queue), g.values...)
		}
		_, whole := pipe.Exec(ctx) // each command has its own answer, if it was sent
		var again []*pushGroup
		var first error
		for i, g := range left {
			g.length, g.err = cmds[i].Result()
			if g.err == nil && g.length == 0 {
				g.err = cmp.Or(whole, errNoAnswer)
			}
			if rdb.Transient(g.err) {
				again, first = append(again, g), cmp.Or(first, g.err)
			}
		}
		left = again
		return first
	})
	for _, g := range groups {
		g.answer(out)
	}
}

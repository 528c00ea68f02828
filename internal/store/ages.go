package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// AgesEvery is how often queues' ages are checked. If agesModest times the duration of a look is
	// longer, the pause after it lasts that long.
	AgesEvery  = time.Second
	agesTurn   = AgesEvery * 9 / 10
	agesModest = 20
	// agesHeld is how long a look may keep others out, agesGone after how long without a look ages
	// are unknown.
	agesHeld, agesGone = 10 * time.Second, 2 * time.Minute
	// agesRough is after how long without a look ages are estimates.
	agesRough = 5 * time.Second
	// agesTTL is how long the lists' state is kept without a look.
	agesTTL = 24 * time.Hour
	// maxAged bounds the lists of a look, agedLines the lines of one queue of each kind.
	maxAged, agedLines = 5000, 64
	// agesBatch is how many lists one step reads. agesNear is how far from the end a payload is
	// first searched, agesFar how far the second time.
	agesBatch, agesNear, agesFar = 16, 5000, 200_000
	// metaAged is the field of resqued:meta for the time of the last complete look (ms).
	metaAged = "aged"
)

// Age is how long the first job of a queue has waited.
type Age struct {
	// Pushed is the push time by this machine's clock; zero = unknown.
	Pushed time.Time
	Source queueage.Source
	// Stale: the last look was some time ago, and the job may be gone.
	Stale  bool
	inLine bool
}

// Pushed returns a function for the push time of the job at a place of a queue, 0 = head, by this
// machine's clock; zero = unknown, as for jobs in lines.
func (s *Store) Pushed(ctx context.Context, queue string) (func(place int64) time.Time, error) {
	pipe := s.db.Read.Pipeline()
	text, clock := pipe.HGet(ctx, s.db.Key(keyAgeLists), strings.TrimPrefix(s.db.QueueKey(queue), s.db.Prefix)), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); rdb.Unreachable(err) || ctx.Err() != nil {
		return nil, fmt.Errorf("how long jobs wait in queue %q: %w", queue, err)
	}
	l, ahead := queueage.Parse(text.Val()), time.Since(clock.Val())
	return func(place int64) time.Time {
		if place >= l.Len() || clock.Val().Sub(time.UnixMilli(l.Seen())).Abs() > agesGone {
			return time.Time{}
		}
		at, _ := l.Pushed(place)
		return time.UnixMilli(at).Add(ahead)
	}, nil
}

// Head returns the age of a queue whose first payload is known: the payload's own time, unless a job in
// a line has waited longer.
func (a Age) Head(payload []byte) Age {
	e, err := wire.Parse(payload, 0)
	if err != nil || e.EnqueuedAt.IsZero() || a.inLine && a.Pushed.Before(e.EnqueuedAt) {
		return a
	}
	return Age{Pushed: e.EnqueuedAt, Source: queueage.Exact}
}

type agedList struct {
	queue, key string
	line       bool // one of the queue's lines
	known      queueage.List
	look       queueage.Look
	err        error
}

// LookAtAges checks how long waiting jobs have waited, and reports whether it was this call's turn: one
// caller per second gets it. See package queueage.
func (s *Store) LookAtAges(ctx context.Context) (mine bool, err error) {
	began, turn := time.Now(), s.db.Key(keyAgeTurn)
	mine, err = s.db.Write.SetNX(ctx, turn, "1", agesHeld).Result()
	if err == nil && mine {
		err = s.lookAtAges(ctx)
		if ctx.Err() == nil { // otherwise the turn expires later, which is a pause as well
			pause := max(agesTurn, agesModest*time.Since(began))
			err = cmp.Or(err, s.db.Write.Set(ctx, turn, "1", pause).Err())
		}
	}
	if err != nil {
		return mine, fmt.Errorf("how long jobs wait: %w", err)
	}
	return mine, nil
}

func (s *Store) lookAtAges(ctx context.Context) error {
	meta := s.db.Key(rdb.KeyMeta)
	pipe := s.db.Write.Pipeline()
	last, clock := pipe.HGet(ctx, meta, metaAged), pipe.Time(ctx)
	known, shown := pipe.HKeys(ctx, s.db.Key(keyAgeLists)), pipe.HKeys(ctx, s.db.Key(keyAge))
	_ = told(pipe.Exec(ctx))
	if err := cmp.Or(known.Err(), shown.Err()); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return s.db.Write.Del(ctx, s.db.Key(keyAge), s.db.Key(keyAgeLists)).Err() // only resqued uses these keys
	} else if err != nil {
		return err
	}
	queues, err := s.longest(ctx, maxAged)
	if err != nil {
		return err
	}
	since, _ := strconv.ParseInt(last.Val(), 10, 64)
	lists, partly, err := s.agedLists(ctx, queues)
	if err != nil {
		return err
	}
	now := clock.Val().UnixMilli()
	if err := s.seeAges(ctx, lists, since); err != nil {
		return err
	}
	states, ages, oldest := map[string]string{}, map[string]string{}, map[string]*agedList{}
	for _, l := range lists {
		if l.err != nil || l.look.Len == 0 {
			continue
		}
		states[l.key] = l.known.String()
		o := oldest[l.queue]
		if at, _ := l.known.Pushed(0); o != nil {
			if first, _ := o.known.Pushed(0); first <= at {
				continue
			}
		}
		oldest[l.queue] = l
	}
	for name, l := range oldest {
		at, source := l.known.Pushed(0)
		if partly[name] {
			source = queueage.AtLeast
		}
		ages[name] = fmt.Sprintf("%d %d %s %t", at, now, source, l.line)
	}
	whole := now
	if len(lists) >= maxAged {
		whole = 0
	}
	pipe = s.db.Write.Pipeline()
	change := func(key string, set map[string]string, before []string) {
		for part := range slices.Chunk(pairs(set), 200) {
			pipe.HSet(ctx, s.db.Key(key), part...)
		}
		for _, field := range before {
			if _, still := set[field]; !still {
				pipe.HDel(ctx, s.db.Key(key), field)
			}
		}
		if len(set) > 0 {
			pipe.Expire(ctx, s.db.Key(key), agesTTL)
		}
	}
	change(keyAgeLists, states, known.Val())
	change(keyAge, ages, shown.Val())
	pipe.HSet(ctx, meta, metaAged, whole)
	_, err = pipe.Exec(ctx)
	return err
}

// agedLists returns the queues' lists with their known state, each queue before its lines. partly has the
// queues with further lines.
func (s *Store) agedLists(ctx context.Context, queues []QueueInfo) (lists []*agedList, partly map[string]bool, err error) {
	type lines struct{ locks, turns *redis.StringSliceCmd }
	found := make([]lines, len(queues))
	err = s.readEach(ctx, len(queues), func(pipe redis.Pipeliner, i int) {
		if q := queues[i]; q.Lined > 0 {
			found[i].locks = pipe.ZRange(ctx, s.db.Key(rdb.KeyLines)+q.Name, 0, agedLines)
			found[i].turns = pipe.ZRange(ctx, s.db.Key(rdb.KeyTurns)+q.Name, 0, agedLines)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	partly = map[string]bool{}
	for i, q := range queues {
		lists = append(lists, &agedList{queue: q.Name, key: s.db.QueueKey(q.Name)})
		if q.Lined == 0 {
			continue
		}
		for kind, names := range [][]string{found[i].locks.Val(), found[i].turns.Val()} {
			key := s.db.LineKey
			if kind == 1 {
				key = s.db.TurnKey
			}
			if len(names) > agedLines {
				names, partly[q.Name] = names[:agedLines], true
			}
			for _, name := range names {
				lists = append(lists, &agedList{queue: q.Name, key: key(q.Name, name), line: true})
			}
		}
		if len(lists) >= maxAged {
			break
		}
	}
	states := make([]*redis.StringCmd, len(lists))
	err = s.readEach(ctx, len(lists), func(pipe redis.Pipeliner, i int) {
		lists[i].key = strings.TrimPrefix(lists[i].key, s.db.Prefix)
		states[i] = pipe.HGet(ctx, s.db.Key(keyAgeLists), lists[i].key)
	})
	for i, l := range lists {
		l.known = queueage.Parse(states[i].Val())
	}
	return lists, partly, err
}

// seeAges looks at the lists. since is the time of the last look (ms), 0 = unknown.
func (s *Store) seeAges(ctx context.Context, lists []*agedList, since int64) error {
	if err := s.readAged(ctx, lists, false); err != nil {
		return err
	}
	// The payload is not near the end, or there are two.
	var again []*agedList
	for _, l := range lists {
		tail, _, _ := l.known.Anchors()
		if l.err == nil && l.look.Len > 0 && tail != nil && (l.look.Tail < 0 || l.look.Twice) {
			again = append(again, l)
		}
	}
	if len(again) > 0 {
		if err := s.readAged(ctx, again, true); err != nil {
			return err
		}
	}
	// A job in a line waited in the queue before, at most as long as the queue's head at that time.
	from, to := since, int64(0)
	for _, l := range lists {
		look := &l.look
		if !l.line {
			from, to = since, look.To
		}
		if l.err != nil {
			continue
		}
		look.Rough = since > 0 && look.To-since > agesRough.Milliseconds()
		if l.line {
			look.From, look.To = from, to
		} else {
			look.From = since
			if at, _ := l.known.Pushed(0); at > 0 && since > 0 {
				from = at
			}
		}
		if look.Len == 0 {
			continue
		}
		l.known.See(*look)
		if !l.line {
			to, _ = l.known.Pushed(0)
		}
	}
	return nil
}

// readAged reads the lists. far: also far from their ends, and the history's counts.
func (s *Store) readAged(ctx context.Context, lists []*agedList, far bool) error {
	type read struct {
		size                *redis.IntCmd
		last                *redis.StringSliceCmd
		head, half, total   *redis.StringCmd
		tail, middle, front *redis.IntSliceCmd
	}
	size := agesBatch
	if far {
		size = 1 // each is its own step, as it may take milliseconds
	}
	for batch := range slices.Chunk(lists, size) {
		blind := s.noLPos.Load()
		pipe := s.db.Write.TxPipeline()
		clock, reads := pipe.Time(ctx), make([]read, len(batch))
		for i, l := range batch {
			key := s.db.Key(l.key)
			tail, middle, front := l.known.Anchors()
			find := func(payload []byte, rank, count, most int64) *redis.IntSliceCmd {
				if payload == nil || blind {
					return nil
				}
				return pipe.LPosCount(ctx, key, string(payload), count, redis.LPosArgs{Rank: rank, MaxLen: most})
			}
			r := &reads[i]
			r.size, r.last = pipe.LLen(ctx, key), pipe.LRange(ctx, key, -3, -1)
			r.head, r.half = pipe.LIndex(ctx, key, 0), pipe.LIndex(ctx, key, l.known.Half())
			r.front = find(front, 1, 1, 100)
			if !far {
				r.tail = find(tail, -1, 2, agesNear)
				continue
			}
			r.total = pipe.GetRange(ctx, s.db.Key(history.TotalKey(history.Name{Kind: history.Queue, Name: l.queue})), 0, 63)
			if r.tail = find(tail, -1, 2, agesNear); !l.look.Twice {
				r.tail, r.middle = find(tail, -1, 1, agesFar), find(middle, 1, 1, agesFar)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil && clock.Err() != nil {
			if !blind && redis.HasErrorPrefix(err, "EXECABORT") {
				s.noLPos.Store(true) // before Redis 6.0.6, or without the right to LPOS
				return s.readAged(ctx, lists, far)
			}
			return err
		}
		for i, l := range batch {
			r := &reads[i]
			place := func(cmd *redis.IntSliceCmd) int64 {
				if cmd == nil || len(cmd.Val()) == 0 {
					return -1
				}
				return cmd.Val()[0]
			}
			l.err = r.size.Err()
			l.look = queueage.Look{Len: r.size.Val(), Tail: place(r.tail), Middle: place(r.middle), Front: place(r.front), To: clock.Val().UnixMilli(), Blind: blind}
			l.look.Twice = r.tail != nil && len(r.tail.Val()) > 1
			l.look.Head, _ = r.head.Bytes()
			l.look.Half, _ = r.half.Bytes()
			for _, payload := range r.last.Val() {
				l.look.Last = append(l.look.Last, []byte(payload))
			}
			if r.total != nil {
				raw, _ := r.total.Bytes()
				l.look.Taken = int64(history.ReadTotal(raw).Runs)
			}
		}
	}
	return nil
}

// agesOf asks for the ages of queues; its function returns them after the pipeline has run.
func (s *Store) agesOf(ctx context.Context, pipe redis.Pipeliner, queues []string) func() []Age {
	texts, clock := pipe.HMGet(ctx, s.db.Key(keyAge), queues...), pipe.Time(ctx)
	return func() []Age {
		ages := make([]Age, len(queues))
		for i, text := range texts.Val() {
			if text, ok := text.(string); ok {
				ages[i] = readAge(text, clock.Val(), time.Now())
			}
		}
		return ages
	}
}

// readAge reads an entry of resqued:age. clock is the server's time, which may differ from this machine's.
func readAge(text string, clock, local time.Time) (a Age) {
	fields := strings.Fields(text)
	if len(fields) != 4 {
		return Age{}
	}
	pushed, err := strconv.ParseInt(fields[0], 10, 64)
	looked, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || err2 != nil || pushed <= 0 {
		return Age{}
	}
	a = Age{Pushed: local.Add(-max(0, clock.Sub(time.UnixMilli(pushed)))), Source: queueage.Source(fields[2]), inLine: fields[3] == "true"}
	since := clock.Sub(time.UnixMilli(looked)).Abs()
	if since > agesGone {
		return Age{}
	}
	if a.Stale = since > agesRough; a.Stale {
		a.Source = queueage.Estimate
	}
	return a
}

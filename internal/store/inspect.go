package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

// QueueInfo is a queue with its waiting jobs.
type QueueInfo struct {
	Name string
	// Size is how many jobs wait, including those in lines; Lined is how many wait in lines for their
	// locks, Turns how many for their tenant's turn.
	Size, Lined, Turns int64
	// Err says why Size is unknown: the key is not a list.
	Err error
	// Suspects counts quarantined jobs; Size does not include them.
	Suspects int64
	// Bounces is how many jobs wait for their lock: those in lines, and locket's counter of jobs put back
	// because of it.
	Bounces int64
	// Paused: its own pause, or the pause of all queues, forbids taking its jobs.
	Paused bool
	// Pauses are its own pause and those of all queues.
	Pauses []*Pause
	// Age is how long the first job has waited, if known.
	Age Age
}

// Reason says why none of its jobs can start now, like Poll. It trusts the counters of other workers, which
// Poll does not.
func (q QueueInfo) Reason() Reason {
	switch {
	case q.Err != nil || q.Size == 0:
		return 0
	case q.Paused:
		return Paused
	case q.Bounces < q.Size:
		return Free
	case q.Lined == q.Size:
		return Lined
	}
	return Locked
}

// pageOf bounds the names per call, so that the server can serve others between two pages.
const pageOf = 1000

func (s *Store) members(ctx context.Context, key string) ([]string, error) {
	var all []string
	names := s.db.Read.SScan(ctx, key, 0, "", pageOf).Iterator()
	for names.Next(ctx) {
		all = append(all, names.Val())
	}
	slices.Sort(all)
	return slices.Compact(all), names.Err() // additions during the scan may cause duplicates
}

// fieldsOf returns the existing fields of a hash, like HGETALL.
func fieldsOf(names []string, values []any) map[string]string {
	out := map[string]string{}
	for i, value := range values {
		if text, ok := value.(string); ok {
			out[names[i]] = text
		}
	}
	return out
}

// QueueList returns all known queues, sorted by name.
func (s *Store) QueueList(ctx context.Context) ([]QueueInfo, error) {
	names, err := s.members(ctx, s.db.Key(keyQueues))
	if err != nil {
		return nil, fmt.Errorf("list queues (%s): %w", s.db.Key(keyQueues), err)
	}
	out := make([]QueueInfo, 0, len(names))
	for page := range slices.Chunk(names, pageOf) {
		pipe := s.db.Read.Pipeline()
		sizes, suspects := make([]*redis.IntCmd, len(page)), make([]*redis.IntCmd, len(page))
		for i, name := range page {
			sizes[i], suspects[i] = pipe.LLen(ctx, s.db.QueueKey(name)), pipe.LLen(ctx, s.db.Key(rdb.KeySuspects)+name)
		}
		bounces, lines := pipe.HMGet(ctx, s.db.Key(keyCounters), page...), pipe.HMGet(ctx, s.db.Key(keyLined), page...)
		turns := pipe.HMGet(ctx, s.db.Key(keyTurned), page...)
		ages := s.agesOf(ctx, pipe, page)
		if _, err := pipe.Exec(ctx); err != nil && rdb.Unreachable(err) {
			return nil, fmt.Errorf("sizes of queues: %w", err)
		}
		counts, lined := fieldsOf(page, bounces.Val()), lineCounts(fieldsOf(page, lines.Val()))
		turned, aged := lineCounts(fieldsOf(page, turns.Val())), ages()
		for i, name := range page {
			count, _ := strconv.ParseInt(counts[name], 10, 64)
			locked := max(lined[name]-turned[name], 0)
			out = append(out, QueueInfo{
				Name: name, Size: sizes[i].Val() + lined[name], Lined: locked, Turns: turned[name], Err: sizes[i].Err(),
				Suspects: suspects[i].Val(), Bounces: count + locked,
			})
			if q := &out[len(out)-1]; q.Size > 0 {
				q.Age = aged[i]
			}
		}
	}
	paused, all, err := s.pauses(ctx, names)
	if err != nil {
		return nil, err
	}
	if err := s.readPauses(ctx, append(slices.Collect(maps.Values(paused)), all...)); err != nil {
		return nil, err
	}
	for i := range out {
		q := &out[i]
		if q.Pauses = all; paused[q.Name] != nil {
			q.Pauses = append([]*Pause{paused[q.Name]}, all...)
		}
		q.Paused = len(q.Pauses) > 0
	}
	return out, nil
}

// WorkerInfo is a registered worker of any kind and its job.
type WorkerInfo struct {
	ID string
	// Working is the JSON of worker:<id>; empty if idle.
	Working string
	// Name has the parts of the id; Named reports whether the id could be parsed.
	Name  wire.WorkerName
	Named bool
	// More is how many other workers it stands for.
	More int
}

// NewWorkerInfo returns a worker known only by its id.
func NewWorkerInfo(id string) WorkerInfo {
	name, err := wire.ParseWorkerID(id)
	return WorkerInfo{ID: id, Name: name, Named: err == nil}
}

// WorkerList returns every registered worker, sorted by id. It reads the current job only of other programs'
// workers: there may be a hundred thousand threads of resqued, whose job records show what they do.
func (s *Store) WorkerList(ctx context.Context) ([]WorkerInfo, error) {
	ids, err := s.members(ctx, s.db.Key(keyWorkers))
	if err != nil {
		return nil, fmt.Errorf("list workers (%s): %w", s.db.Key(keyWorkers), err)
	}
	out := make([]WorkerInfo, len(ids))
	var others []int
	for i, id := range ids {
		out[i] = NewWorkerInfo(id)
		if !out[i].Name.Ours {
			others = append(others, i)
		}
	}
	working := make([]*redis.StringCmd, len(others))
	err = s.readEach(ctx, len(others), func(pipe redis.Pipeliner, i int) {
		working[i] = pipe.Get(ctx, s.workerKey(ids[others[i]]))
	})
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", err)
	}
	for i, at := range others {
		out[at].Working = working[i].Val()
	}
	return out, nil
}

// WorkerIDs returns the unsorted ids of all registered workers, and the heartbeats of Ruby workers that have one.
func (s *Store) WorkerIDs(ctx context.Context) (ids []string, beats map[string]time.Time, err error) {
	pipe := s.db.Read.Pipeline()
	members, fields := pipe.SMembers(ctx, s.db.Key(keyWorkers)), pipe.HGetAll(ctx, s.db.Key(keyWorkers)+":heartbeat")
	_ = told(pipe.Exec(ctx))
	if ids, err = members.Result(); err != nil {
		return nil, nil, fmt.Errorf("list workers (%s): %w", s.db.Key(keyWorkers), err)
	}
	beats = map[string]time.Time{}
	for id, text := range fields.Val() { // without heartbeats, there are none
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			beats[id] = at
		}
	}
	return ids, beats, nil
}

// ProcInfo is a worker process of resqued.
type ProcInfo struct {
	Proc   string
	Fields map[string]string
	// LeaseMS is the end of its lease in ms since 1970, by Redis's clock.
	LeaseMS int64
	// Running are its jobs, the oldest first.
	Running []Reserved
	// Err says why its fields or jobs are unknown: the key has the wrong type.
	Err error
}

// ProcList returns resqued's worker processes, sorted, with their jobs.
func (s *Store) ProcList(ctx context.Context) ([]ProcInfo, error) {
	procs, err := s.db.Read.ZRangeWithScores(ctx, s.db.Key(keyProcs), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list processes (%s): %w", s.db.Key(keyProcs), err)
	}
	info, held := make([]*redis.MapStringStringCmd, len(procs)), make([]*redis.MapStringStringCmd, len(procs))
	out := make([]ProcInfo, len(procs))
	err = s.readEach(ctx, len(procs), func(pipe redis.Pipeliner, i int) {
		proc, _ := procs[i].Member.(string)
		out[i] = ProcInfo{Proc: proc, LeaseMS: int64(procs[i].Score)}
		info[i] = pipe.HGetAll(ctx, s.db.Key(keyProcInfo)+proc)
		held[i] = pipe.HGetAll(ctx, s.db.Key(rdb.KeyInflight)+proc)
	})
	if err != nil {
		return nil, fmt.Errorf("read processes: %w", err)
	}
	for i := range out {
		out[i].Fields, out[i].Err = info[i].Val(), cmp.Or(info[i].Err(), held[i].Err())
		for token, record := range held[i].Val() {
			if job, err := ParseRecord(token, record); err == nil {
				out[i].Running = append(out[i].Running, job)
			}
		}
		slices.SortFunc(out[i].Running, func(a, b Reserved) int {
			return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Fence, b.Fence), strings.Compare(a.Token, b.Token))
		})
	}
	slices.SortFunc(out, func(a, b ProcInfo) int { return strings.Compare(a.Proc, b.Proc) })
	return out, nil
}

// FieldUnread is the field of an entry that could not be read, with the reason; masters do not write it.
const FieldUnread = "\x00unread"

// MasterList returns the entries of living masters by id. An entry that is not a hash has only FieldUnread and does
// not affect the others.
func (s *Store) MasterList(ctx context.Context) (map[string]map[string]string, error) {
	ids, err := s.db.Read.SMembers(ctx, s.db.Key(keyMasters)).Result()
	if err != nil {
		return nil, fmt.Errorf("list masters (%s): %w", s.db.Key(keyMasters), err)
	}
	out := map[string]map[string]string{}
	all := make([]*redis.MapStringStringCmd, len(ids))
	err = s.readEach(ctx, len(ids), func(pipe redis.Pipeliner, i int) { all[i] = pipe.HGetAll(ctx, s.db.Key(keyMaster)+ids[i]) })
	if err != nil {
		return nil, fmt.Errorf("read masters: %w", err)
	}
	for i, id := range ids {
		fields, err := all[i].Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			fields, err = map[string]string{FieldUnread: err.Error()}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read master %q: %w", id, err)
		}
		if len(fields) > 0 {
			out[id] = fields
		}
	}
	return out, nil
}

// Payloads returns a queue's waiting payloads from its head, then those in its lines.
func (s *Store) Payloads(ctx context.Context, queue string, offset, limit int64) ([][]byte, error) {
	raw, err := s.db.Read.LRange(ctx, s.db.QueueKey(queue), offset, offset+limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list queue %q: %w", queue, err)
	}
	if rest := limit - int64(len(raw)); rest > 0 {
		size, err := s.db.Read.LLen(ctx, s.db.QueueKey(queue)).Result()
		if err != nil {
			return nil, fmt.Errorf("list queue %q: %w", queue, err)
		}
		lined, err := s.linePayloads(ctx, queue, max(0, offset-size), rest)
		if err != nil {
			return nil, err
		}
		raw = append(raw, lined...)
	}
	out := make([][]byte, len(raw))
	for i, p := range raw {
		out[i] = []byte(p)
	}
	return out, nil
}

// Stats returns the totals of processed and failed jobs.
func (s *Store) Stats(ctx context.Context) (processed, failed int64, err error) {
	pipe := s.db.Read.Pipeline() // MGET does not report a key of the wrong type
	values := []*redis.StringCmd{pipe.Get(ctx, s.db.Key(keyProcessed)), pipe.Get(ctx, s.db.Key(keyFailures))}
	_ = told(pipe.Exec(ctx))
	for i, into := range []*int64{&processed, &failed} {
		text, err := values[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, 0, fmt.Errorf("read statistics (%v): %w", values[i].Args()[1], err)
		}
		*into, _ = strconv.ParseInt(text, 10, 64)
	}
	return processed, failed, nil
}

func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

package longstore

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// This file reads the runs of long jobs; runs.go changes them.

// Status is what a running slice checks.
type Status struct {
	// Status is the run's status; "" = the run does not exist.
	Status string
	// Fence is the fencing token of its last slice.
	Fence  int64
	Paused bool
}

// Status returns the status of a run.
func (s *Store) Status(ctx context.Context, uuid string) (Status, error) {
	// On the connections for writes: a worker process needs no second pool.
	v, err := s.db.Write.HMGet(ctx, s.db.Key(keyRun)+uuid, "status", "fence", "paused").Result()
	if err != nil || len(v) != 3 {
		return Status{}, err
	}
	status, _ := v[0].(string)
	text, _ := v[1].(string)
	fence, _ := strconv.ParseInt(text, 10, 64)
	return Status{Status: status, Fence: fence, Paused: v[2] != nil}, nil
}

// Run returns one run, with its state. The error is ErrGone if it does not exist.
func (s *Store) Run(ctx context.Context, uuid string) (Record, error) {
	var fields, state *redis.MapStringStringCmd
	if err := s.db.Together(ctx, func(pipe redis.Pipeliner) {
		fields, state = pipe.HGetAll(ctx, s.db.Key(keyRun)+uuid), pipe.HGetAll(ctx, s.db.Key(keyState)+uuid)
	}); err != nil {
		return Record{}, fmt.Errorf("long job %s: %w", uuid, err)
	}
	if len(fields.Val()) == 0 {
		return Record{}, fmt.Errorf("%w: %s", ErrGone, uuid)
	}
	r := Record{UUID: uuid, Fields: fields.Val(), State: state.Val()}
	if tenant := r.Fields["tenant"]; tenant != "" {
		place, err := s.db.Read.ZRank(ctx, s.db.Key(keyLine)+tenant, uuid).Result()
		if err == nil {
			r.Place = place + 1
		} else if !rdb.IsNil(err) {
			return Record{}, fmt.Errorf("long job %s: %w", uuid, err)
		}
	}
	return r, nil
}

// EndedSlice is a slice of a run that has ended.
type EndedSlice struct {
	Started time.Time
	Took    time.Duration
	// Units is how many units it completed.
	Units int64
	// Outcome is yielded, waits, interrupted, completed, failed, or died.
	Outcome string
	// Proc is the worker process that ran it.
	Proc string
}

// maxSlices is how many ended slices are kept.
const maxSlices = 200

// Slices returns the ended slices of a run, the oldest first, at most the newest maxSlices. Invalid entries
// are omitted.
func (s *Store) Slices(ctx context.Context, uuid string) ([]EndedSlice, error) {
	lines, err := s.db.Read.LRange(ctx, s.db.Key(keySlices)+uuid, -maxSlices, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("slices of long job %s: %w", uuid, err)
	}
	out := make([]EndedSlice, 0, len(lines))
	for _, line := range lines {
		if slice, ok := parseSlice(line); ok {
			out = append(out, slice)
		}
	}
	return out, nil
}

func parseSlice(line string) (EndedSlice, bool) {
	parts := strings.SplitN(line, " ", 5)
	if len(parts) < 5 || len(line) > 1000 {
		return EndedSlice{}, false
	}
	var numbers [3]int64
	for i := range numbers {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || n < 0 {
			return EndedSlice{}, false
		}
		numbers[i] = n
	}
	took := time.Duration(min(numbers[1], int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	return EndedSlice{Started: time.UnixMilli(numbers[0]).UTC(), Took: took, Units: numbers[2], Outcome: parts[3], Proc: parts[4]}, true
}

const runsPage = 200

// Runs calls each with the runs that wait or run, those with the newest sign of life first, then with ended
// ones, until each returns false.
func (s *Store) Runs(ctx context.Context, each func(r Record) bool) error {
	for _, key := range []string{keyActive, keyEnded} {
		for from := int64(0); ; from += runsPage {
			ids, err := s.db.Read.ZRevRange(ctx, s.db.Key(key), from, from+runsPage-1).Result()
			if err != nil {
				return fmt.Errorf("list long jobs: %w", err)
			}
			runs, err := s.longRecords(ctx, ids)
			if err != nil {
				return err
			}
			for _, r := range runs {
				if !each(r) {
					return nil
				}
			}
			if len(ids) < runsPage {
				break
			}
		}
	}
	return nil
}

func (s *Store) longRecords(ctx context.Context, ids []string) ([]Record, error) {
	pipe := s.db.Read.Pipeline()
	fields := make([]*redis.MapStringStringCmd, len(ids))
	for i, id := range ids {
		fields[i] = pipe.HGetAll(ctx, s.db.Key(keyRun)+id)
	}
	if len(ids) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("read long jobs: %w", err)
		}
	}
	runs := make([]Record, 0, len(ids))
	for i, id := range ids {
		if len(fields[i].Val()) > 0 {
			runs = append(runs, Record{UUID: id, Fields: fields[i].Val()})
		}
	}
	return runs, nil
}

// Silent returns at most n runs that wait or run without a sign of life for some time, the longest silent
// first. Runs in a format that this version does not read are left to others; they must not hide the rest.
func (s *Store) Silent(ctx context.Context, silent time.Duration, n int) ([]Record, error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the time: %w", err)
	}
	var runs []Record
	for from := int64(0); ; from += int64(n) {
		ids, err := s.db.Read.ZRangeByScore(ctx, s.db.Key(keyActive), &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(now.Add(-silent).UnixMilli(), 10), Offset: from, Count: int64(n),
		}).Result()
		if err != nil {
			return nil, fmt.Errorf("look for lost long jobs: %w", err)
		}
		some, err := s.longRecords(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			if rdb.Known().Reads(r.Fields["format"]) {
				runs = append(runs, r)
			}
		}
		if len(runs) >= n || len(ids) < n {
			return runs[:min(len(runs), n)], nil
		}
	}
}

// Looked counts as a sign of life: Silent returns the run again only after some time, so that healthy runs
// do not hide others.
func (s *Store) Looked(ctx context.Context, uuid string) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("ask for the time: %w", err)
	}
	return s.db.Once(ctx, func() error {
		return s.db.Write.ZAddXX(ctx, s.db.Key(keyActive), redis.Z{Score: float64(now.UnixMilli()), Member: uuid}).Err()
	})
}

// Recorded reports whether the in-flight record of a running slice exists.
func (s *Store) Recorded(ctx context.Context, r Record) (bool, error) {
	owner := strings.TrimPrefix(r.Fields["owner"], "resqued:")
	i := strings.LastIndexByte(owner, '#')
	if i < 0 {
		return false, nil
	}
	return s.db.Read.HExists(ctx, s.db.Key(rdb.KeyInflight)+owner[:i], owner[i+1:]).Result()
}

// Waiting returns which runs, by UUID, are in their tenant's line, or have their next slice's payload in its
// queue, among the delayed jobs or in quarantine. Jobs move during the search, so it may miss one.
func (s *Store) Waiting(ctx context.Context, runs []Record) (map[string]bool, error) {
	waits := map[string]bool{}
	sought := map[string]map[string]string{} // queue → payload → run
	all := map[string]string{}
	for _, r := range runs {
		stands, err := s.inLine(ctx, r)
		if err != nil {
			return nil, err
		}
		if stands {
			waits[r.UUID] = true
			continue
		}
		queue, payload := r.Fields["queue"], string(Payload(r.Fields["class"], r.UUID, r.Number("slice")))
		if sought[queue] == nil {
			sought[queue] = map[string]string{}
		}
		sought[queue][payload], all[payload] = r.UUID, r.UUID
	}
	for queue, payloads := range sought {
		keys, err := s.places(ctx, queue)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if err := s.findInList(ctx, key, payloads, waits); err != nil {
				return nil, fmt.Errorf("look into %q: %w", queue, err)
			}
		}
	}
	for from := int64(0); len(waits) < len(runs); from += lookPage {
		page, err := s.db.Read.ZRange(ctx, s.db.Key(rdb.KeyDelayed), from, from+lookPage-1).Result()
		if err != nil {
			return nil, fmt.Errorf("look among the delayed jobs: %w", err)
		}
		find(page, all, waits)
		if len(page) < lookPage {
			break
		}
	}
	return waits, nil
}

func (s *Store) places(ctx context.Context, queue string) ([]string, error) {
	keys := []string{s.db.QueueKey(queue), s.db.Key(rdb.KeySuspects) + queue}
	for _, kind := range []struct { // in the order in which jobs pass through them
		index string
		key   func(queue, name string) string
	}{{rdb.KeyTurns, s.db.TurnKey}, {rdb.KeyLines, s.db.LineKey}} {
		names, err := s.db.Read.ZRange(ctx, s.db.Key(kind.index)+queue, 0, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("lines of %q: %w", queue, err)
		}
		for _, name := range names {
			keys = append(keys, kind.key(queue, name))
		}
	}
	return keys, nil
}

const lookPage = 1000

// findInList searches a list from its tail. Jobs taken from the head do not shift the rest; jobs added at the
// tail shift the rest to where it searches next.
func (s *Store) findInList(ctx context.Context, key string, payloads map[string]string, found map[string]bool) error {
	for to, left := int64(-1), len(payloads); left > 0; to -= lookPage {
		page, err := s.db.Read.LRange(ctx, key, to-lookPage+1, to).Result()
		if err != nil {
			return err
		}
		left -= find(page, payloads, found)
		if len(page) < lookPage {
			return nil
		}
	}
	return nil
}

// find notes the runs whose payloads end a text, and returns how many it added.
func find(texts []string, payloads map[string]string, found map[string]bool) (more int) {
	for _, text := range texts {
		// The payload may begin at any brace, but only a few precede it.
		for i := strings.IndexByte(text, '{'); i >= 0 && i < len(text); {
			if uuid, ok := payloads[text[i:]]; ok && !found[uuid] {
				found[uuid] = true
				more++
			}
			next := strings.IndexByte(text[i+1:], '{')
			if next < 0 || i > 256 {
				break
			}
			i += 1 + next
		}
	}
	return more
}

// inLine reports whether a run is in its tenant's line, and if so ensures that the tenant gets turns.
func (s *Store) inLine(ctx context.Context, r Record) (bool, error) {
	tenant := r.Fields["tenant"]
	if tenant == "" {
		return false, nil
	}
	err := s.db.Read.ZScore(ctx, s.db.Key(keyLine)+tenant, r.UUID).Err()
	if rdb.IsNil(err) {
		return false, nil
	}
	if err == nil {
		err = s.db.Once(ctx, func() error {
			return s.db.Write.ZAddNX(ctx, s.db.Key(keyTenants), redis.Z{Member: tenant}).Err()
		})
	}
	if err != nil {
		return false, fmt.Errorf("look into the line of tenant %q: %w", tenant, err)
	}
	return true, nil
}

// Active returns how many runs wait or run.
func (s *Store) Active(ctx context.Context) (int64, error) {
	n, err := s.db.Read.ZCard(ctx, s.db.Key(keyActive)).Result()
	if err != nil {
		return 0, fmt.Errorf("count long jobs: %w", err)
	}
	return n, nil
}

// Statuses counts runs.
type Statuses struct {
	// Runs counts runs by status; Rest is how many were not read.
	Runs map[string]int64
	Rest int64
}

// Statuses counts the runs that wait or run, then the ended ones, by status: at most most of them, those with
// the newest sign of life.
func (s *Store) Statuses(ctx context.Context, most int64) (Statuses, error) {
	v := Statuses{Runs: map[string]int64{}}
	for _, key := range []string{keyActive, keyEnded} {
		total, err := s.db.Read.ZCard(ctx, s.db.Key(key)).Result()
		if err != nil {
			return v, fmt.Errorf("count long jobs: %w", err)
		}
		look := min(total, most)
		most, v.Rest = most-look, v.Rest+total-look
		for from := int64(0); from < look; from += lookPage {
			if err := s.countStatuses(ctx, key, from, min(from+lookPage, look)-1, v.Runs); err != nil {
				return v, fmt.Errorf("count long jobs: %w", err)
			}
		}
	}
	return v, nil
}

// ShownStatus returns the status for people: a run paused between two slices is paused.
func ShownStatus(status string, paused bool) string {
	if paused && status == "queued" {
		return "paused"
	}
	return status
}

func (s *Store) countStatuses(ctx context.Context, key string, from, to int64, counts map[string]int64) error {
	ids, err := s.db.Read.ZRevRange(ctx, s.db.Key(key), from, to).Result()
	if err != nil || len(ids) == 0 {
		return err
	}
	pipe := s.db.Read.Pipeline()
	found := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		found[i] = pipe.HMGet(ctx, s.db.Key(keyRun)+id, "status", "paused")
	}
	if _, err := pipe.Exec(ctx); err != nil && (rdb.Unreachable(err) || rdb.Refusal(err) == "NOPERM" || ctx.Err() != nil) {
		return err
	}
	for _, one := range found {
		v := one.Val()
		if one.Err() != nil || len(v) != 2 {
			continue
		}
		if status, there := v[0].(string); there { // else it was forgotten
			counts[ShownStatus(status, v[1] != nil)]++
		}
	}
	return nil
}

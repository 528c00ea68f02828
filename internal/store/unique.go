package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// ErrOutOfStep: the set and the times of a unique queue do not match it, and what was
// asked for demands that they do.
var ErrOutOfStep = errors.New("its keys are out of step")

// errRestless: a repair does not come to its end.
var errRestless = errors.New("others change it faster than it can be repaired; stop those that push to it or take from it without its set")

// maxPasses bounds how often a repair begins anew because others changed the queue.
const maxPasses = 5

var uniqueRepairScript = rdb.NewScript(Lua, "unique_repair", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/unique", "unique_repair")

// UniqueReport is what a repair of a unique queue has changed.
type UniqueReport struct {
	Queue string
	// Jobs is how many wait in it now.
	Jobs int64
	// MembersAdded are payloads that waited and were missing in the set,
	// MembersRemoved those in the set that did not wait.
	MembersAdded, MembersRemoved int64
	// Duplicates are the jobs that were dropped because an equal one waits.
	Duplicates int64
	// TimesAdded and TimesRemoved are entries of the list of start times.
	TimesAdded, TimesRemoved int64
}

// Changed reports whether anything was out of step.
func (r UniqueReport) Changed() bool {
	return r.MembersAdded+r.MembersRemoved+r.Duplicates+r.TimesAdded+r.TimesRemoved > 0
}

// RepairUnique brings the set and the start times of a unique queue in step with it,
// whatever they hold now, in steps that each take the server about a millisecond.
// Jobs may be pushed and taken meanwhile. Jobs in lines, of a time when the queue was not unique, go back to it first.
func (s *Store) RepairUnique(ctx context.Context, queue string) (UniqueReport, error) {
	report := UniqueReport{Queue: queue}
	if _, err := s.Unline(ctx, queue); err != nil {
		return report, fmt.Errorf("repair %q: %w", queue, err)
	}
	how := "b"
	for passes := 0; ; {
		step, err := s.repair(ctx, queue, how, &report)
		if err != nil {
			return report, fmt.Errorf("repair %q: %w", queue, err)
		}
		how = "g"
		if step.state != repairDone {
			continue
		}
		even, err := s.evenUnique(ctx, queue)
		if err != nil {
			return report, fmt.Errorf("repair %q: %w", queue, err)
		}
		if even {
			return report, nil
		}
		if passes++; passes == maxPasses {
			return report, fmt.Errorf("repair %q: %w", queue, errRestless)
		}
	}
}

// HealUnique heals a unique queue if it is out of step. Between the steps it rests,
// so that it takes no more than a small part of the server's time. It reports whether
// there was anything to heal. Jobs in lines go back to the queue first, as in RepairUnique.
func (s *Store) HealUnique(ctx context.Context, queue string) (healed bool, err error) {
	if _, err := s.Unline(ctx, queue); err != nil {
		return false, fmt.Errorf("heal %q: %w", queue, err)
	}
	for {
		step, err := s.repair(ctx, queue, "p", &UniqueReport{})
		if err != nil {
			return healed, fmt.Errorf("heal %q: %w", queue, err)
		}
		if step.state != repairMore {
			return step.state == repairDone, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(step.rest):
		}
	}
}

// ForgetUnique removes the set and the start times of a queue that is unique no more. Its jobs
// stay as they are.
func (s *Store) ForgetUnique(ctx context.Context, queue string) error {
	if _, err := s.repair(ctx, queue, "a", &UniqueReport{}); err != nil {
		return fmt.Errorf("forget that %q was unique: %w", queue, err)
	}
	return nil
}

// leftoversPage is how many queues one DropLeftovers asks for.
const leftoversPage = 1000

// DropLeftovers removes the sets and the start times of queues in which nothing waits: where
// unique_queues names them no more, nothing else would. Queues for which kept reports true are
// left alone. It looks at a part of the queues, from cursor on (0 begins), and returns those
// of which it has removed anything and where to go on; 0 = that was all.
func (s *Store) DropLeftovers(ctx context.Context, kept func(queue string) bool, cursor uint64) (queues []string, next uint64, err error) {
	page, next, err := s.db.Read.SScan(ctx, s.db.Key(keyQueues), cursor, "", leftoversPage).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("list queues: %w", err)
	}
	page = slices.DeleteFunc(page, kept)
	if len(page) == 0 {
		return nil, next, nil
	}
	keys := make([]string, 0, 2*len(page))
	for _, queue := range page {
		keys = append(keys, s.db.QueueKey(queue)+":uniqueue", s.db.QueueKey(queue)+":start_at")
	}
	n, err := s.db.Read.Exists(ctx, keys...).Result() // nearly always there is none
	if err != nil {
		return nil, 0, fmt.Errorf("look for what unique queues have left: %w", err)
	}
	if n == 0 {
		return nil, next, nil
	}
	pipe := s.db.Read.Pipeline()
	jobs, there := make([]*redis.IntCmd, len(page)), make([]*redis.IntCmd, len(page))
	for i, queue := range page {
		jobs[i], there[i] = pipe.LLen(ctx, s.db.QueueKey(queue)), pipe.Exists(ctx, keys[2*i], keys[2*i+1])
	}
	if _, err := pipe.Exec(ctx); err != nil && rdb.Unreachable(err) {
		return nil, 0, fmt.Errorf("look for what unique queues have left: %w", err)
	}
	for i, queue := range page {
		if jobs[i].Err() == nil && jobs[i].Val() == 0 && there[i].Val() > 0 {
			step, err := s.repair(ctx, queue, "e", &UniqueReport{})
			if err != nil {
				return queues, 0, fmt.Errorf("remove what the unique queue %q has left: %w", queue, err)
			}
			if step.state == repairDone {
				queues = append(queues, queue)
			}
		}
	}
	return queues, next, nil
}

// What unique_repair.lua says of a step.
const (
	repairNothing = 0
	repairMore    = 1
	repairDone    = 2
)

type repairStep struct {
	state   int64
	rest    time.Duration
	touched int64
}

func (s *Store) repair(ctx context.Context, queue, how string, report *UniqueReport) (repairStep, error) {
	raw, err := s.db.Eval(ctx, uniqueRepairScript, s.db.QueueKey(queue), []any{s.db.Prefix, how})
	if err != nil {
		return repairStep{}, err
	}
	list, _ := raw.([]any)
	if len(list) != 9 {
		return repairStep{}, fmt.Errorf("script unique_repair: unexpected reply %v", raw)
	}
	report.Jobs = rdb.Number(list[2])
	report.MembersAdded += rdb.Number(list[4])
	report.MembersRemoved += rdb.Number(list[5])
	report.Duplicates += rdb.Number(list[6])
	report.TimesAdded += rdb.Number(list[7])
	report.TimesRemoved += rdb.Number(list[8])
	return repairStep{state: rdb.Number(list[0]), rest: time.Duration(rdb.Number(list[1])) * time.Millisecond, touched: rdb.Number(list[3])}, nil
}

// evenUnique reports whether a unique queue, its set and its times have one length.
func (s *Store) evenUnique(ctx context.Context, queue string) (bool, error) {
	key := s.db.QueueKey(queue)
	pipe := s.db.Read.TxPipeline()
	jobs, members, times := pipe.LLen(ctx, key), pipe.SCard(ctx, key+":uniqueue"), pipe.LLen(ctx, key+":start_at")
	if _, err := pipe.Exec(ctx); err != nil {
		return false, err
	}
	return jobs.Val() == members.Val() && jobs.Val() == times.Val(), nil
}

// UniqueQueues says which queues are unique.
type UniqueQueues struct {
	// Names are queues that are looked at whether they are known or not: one that was
	// removed by a program that does not know its companions has left them.
	Names []string
	// Match reports whether a queue is unique.
	Match func(queue string) bool
	// Leave: they are not brought back in step unasked, or there are none.
	Leave bool
}

// outOfStepPages bounds how much of a large set of queues one OutOfStep looks at.
const outOfStepPages = 20

// OutOfStep returns the unique queues whose keys do not match, that have lines, or whose healing has
// begun and not ended. Of a large set of queues it looks at a part, from cursor on (0
// begins), and returns where to go on; 0 = that was all.
func (s *Store) OutOfStep(ctx context.Context, u UniqueQueues, cursor uint64) (queues []string, next uint64, err error) {
	names := u.Names
	if cursor != 0 {
		names = nil
	}
	for range outOfStepPages {
		var page []string
		if page, cursor, err = s.db.Read.SScan(ctx, s.db.Key(keyQueues), cursor, "", 1000).Result(); err != nil {
			return nil, 0, fmt.Errorf("list queues: %w", err)
		}
		for _, name := range page {
			if u.Match(name) && !slices.Contains(u.Names, name) {
				names = append(slices.Clip(names), name)
			}
		}
		some, err := s.uneven(ctx, names)
		if err != nil {
			return nil, 0, err
		}
		queues, names = append(queues, some...), nil
		if cursor == 0 {
			break
		}
	}
	return queues, cursor, nil
}

// uneven returns those of some unique queues that need a healing.
func (s *Store) uneven(ctx context.Context, names []string) (queues []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	type lengths struct {
		jobs, members, times *redis.IntCmd
		heals, lined         *redis.BoolCmd
	}
	pipe := s.db.Read.Pipeline()
	all := make([]lengths, len(names))
	for i, name := range names {
		key := s.db.QueueKey(name)
		all[i] = lengths{
			pipe.LLen(ctx, key), pipe.SCard(ctx, key+":uniqueue"), pipe.LLen(ctx, key+":start_at"),
			pipe.HExists(ctx, s.db.Key(keyHeal)+name, "at"), pipe.HExists(ctx, s.db.Key(keyLined), name),
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && rdb.Unreachable(err) {
		return nil, fmt.Errorf("lengths of unique queues: %w", err)
	}
	for i, l := range all {
		if l.jobs.Err() != nil || l.members.Err() != nil || l.times.Err() != nil {
			continue // a key of another type, which the exchange reports
		}
		if l.jobs.Val() != l.members.Val() || l.jobs.Val() != l.times.Val() || l.heals.Val() || l.lined.Val() {
			queues = append(queues, names[i])
		}
	}
	return queues, nil
}

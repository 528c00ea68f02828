package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// ErrOutOfStep: a unique queue's set and times do not match it, and the call requires that they do.
var ErrOutOfStep = errors.New("its keys are out of step")

var uniqueRepairScript = rdb.NewScript(Lua, "unique_repair", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/unique", "unique_repair")

// UniqueReport lists the changes of a unique queue's repair.
type UniqueReport struct {
	Queue string
	// Jobs is how many wait now.
	Jobs int64
	// MembersAdded counts waiting payloads missing in the set, MembersRemoved payloads in the set that did not wait.
	MembersAdded, MembersRemoved int64
	// Duplicates counts jobs dropped because an equal one waits.
	Duplicates int64
	// TimesAdded and TimesRemoved are entries of the list of start times.
	TimesAdded, TimesRemoved int64
	// Dropped are the payloads of the first few duplicates.
	Dropped []string
	// TooLong: unchanged, because the repair would block Redis for too long.
	TooLong bool
}

// Changed reports whether anything was out of step.
func (r UniqueReport) Changed() bool {
	return r.MembersAdded+r.MembersRemoved+r.Duplicates+r.TimesAdded+r.TimesRemoved > 0
}

// RepairUnique makes a unique queue's set and start times match it, in one step, which takes Redis about a
// microsecond per short job. Jobs in lines, from when the queue was not unique, first return to it.
func (s *Store) RepairUnique(ctx context.Context, queue string) (UniqueReport, error) {
	return s.repairLined(ctx, queue, "r")
}

// RepairUneven is a daemon's unasked repair: only if the lengths differ, and if it takes Redis at most about
// 50 ms.
func (s *Store) RepairUneven(ctx context.Context, queue string) (UniqueReport, error) {
	return s.repairLined(ctx, queue, "d")
}

func (s *Store) repairLined(ctx context.Context, queue, how string) (UniqueReport, error) {
	_, err := s.Unline(ctx, queue)
	report := UniqueReport{Queue: queue}
	if err == nil {
		report, _, err = s.repair(ctx, queue, how)
	}
	if err != nil {
		return report, fmt.Errorf("repair %q: %w", queue, err)
	}
	return report, nil
}

// ForgetUnique removes the set and the start times of a queue that is no longer unique. Its jobs stay.
func (s *Store) ForgetUnique(ctx context.Context, queue string) error {
	if _, _, err := s.repair(ctx, queue, "a"); err != nil {
		return fmt.Errorf("forget that %q was unique: %w", queue, err)
	}
	return nil
}

const leftoversPage = 1000

// DropLeftovers removes the sets and start times of queues in which nothing waits: if unique_queues no longer
// names them, only this removes them. It skips queues for which kept returns true. It checks a part of the
// queues from cursor on (0 begins), and returns the queues changed and the next cursor; 0 = that was all.
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
	n, err := s.db.Read.Exists(ctx, keys...).Result() // nearly always, none exists
	if err != nil {
		return nil, 0, fmt.Errorf("look for what unique queues have left: %w", err)
	}
	if n == 0 {
		return nil, next, nil
	}
	jobs, there := make([]*redis.IntCmd, len(page)), make([]*redis.IntCmd, len(page))
	err = s.readEach(ctx, len(page), func(pipe redis.Pipeliner, i int) {
		jobs[i], there[i] = pipe.LLen(ctx, s.db.QueueKey(page[i])), pipe.Exists(ctx, keys[2*i], keys[2*i+1])
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for what unique queues have left: %w", err)
	}
	for i, queue := range page {
		if jobs[i].Err() == nil && jobs[i].Val() == 0 && there[i].Val() > 0 {
			_, removed, err := s.repair(ctx, queue, "e")
			if err != nil {
				return queues, 0, fmt.Errorf("remove what the unique queue %q has left: %w", queue, err)
			}
			if removed {
				queues = append(queues, queue)
			}
		}
	}
	return queues, next, nil
}

// repair calls unique_repair.lua; done reports whether it did what was asked.
func (s *Store) repair(ctx context.Context, queue, how string) (report UniqueReport, done bool, err error) {
	report.Queue = queue
	list, err := s.db.EvalList(ctx, uniqueRepairScript, s.db.QueueKey(queue), []any{s.db.Prefix, how}, 8)
	if err != nil {
		return report, false, err
	}
	what := list.Number(0)
	report.Jobs, report.TooLong = list.Number(1), what == 2
	report.MembersAdded, report.MembersRemoved = list.Number(2), list.Number(3)
	report.Duplicates, report.Dropped = list.Number(4), list.Texts(7)
	report.TimesAdded, report.TimesRemoved = list.Number(5), list.Number(6)
	return report, what == 1, nil
}

// UniqueQueues says which queues are unique.
type UniqueQueues struct {
	// Names are queues to check even if unknown: a program that does not know their companions may have
	// removed them.
	Names []string
	// Match reports whether a queue is unique.
	Match func(queue string) bool
	// Leave: do not repair them unasked, or there are none.
	Leave bool
}

// outOfStepPages bounds the part of a large set of queues that one OutOfStep checks.
const outOfStepPages = 20

// OutOfStep returns the unique queues that are out of step with their companions, or that have lines. It checks
// a part of a large set of queues, from cursor on (0 begins), and returns the next cursor; 0 = that was all.
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

func (s *Store) uneven(ctx context.Context, names []string) (queues []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	lined, err := s.linedJobs(ctx)
	if err != nil && rdb.Unreachable(err) {
		return nil, err
	}
	all, err := s.UniqueList(ctx, names)
	for _, u := range all {
		// The exchange reports a key of the wrong type.
		if u.Err == nil && (!u.InStep() || lined[u.Queue] > 0) {
			queues = append(queues, u.Queue)
		}
	}
	return queues, err
}

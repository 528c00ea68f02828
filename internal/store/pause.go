package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Pause keeps all workers from taking jobs of a queue, until Resume. It reports whether that is new. Running
// jobs continue.
func (s *Store) Pause(ctx context.Context, queue string) (changed bool, err error) {
	return s.setPause(ctx, s.db.Key(keyPauseQueue)+queue)
}

// PauseAll pauses all queues, and reports whether that is new. Queues paused by name stay paused after
// ResumeAll.
func (s *Store) PauseAll(ctx context.Context) (changed bool, err error) {
	return s.setPause(ctx, s.db.Key(keyPauseAll))
}

// Resume undoes Pause and reports whether the queue was paused.
func (s *Store) Resume(ctx context.Context, queue string) (changed bool, err error) {
	return s.endPause(ctx, s.db.Key(keyPauseQueue)+queue)
}

// ResumeAll undoes PauseAll and Resque's own pause of all queues. It reports whether there was
// one.
func (s *Store) ResumeAll(ctx context.Context) (changed bool, err error) {
	return s.endPause(ctx, s.db.Key(keyPauseAll), s.db.Key(keyPauseWorkers))
}

func (s *Store) setPause(ctx context.Context, key string) (changed bool, err error) {
	err = s.db.Once(ctx, func() (err error) {
		changed, err = s.db.Write.SetNX(ctx, key, "true", 0).Result() // as resque-pause does
		return err
	})
	if err != nil {
		return false, fmt.Errorf("pause: %w", err)
	}
	return changed, nil
}

func (s *Store) endPause(ctx context.Context, keys ...string) (changed bool, err error) {
	var n int64
	err = s.db.Once(ctx, func() (err error) {
		n, err = s.db.Write.Del(ctx, keys...).Result()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	return n > 0, nil
}

// Paused returns which of some queues are paused by name, and whether all queues are.
func (s *Store) Paused(ctx context.Context, queues ...string) (one map[string]bool, all bool, err error) {
	one, every, err := s.pauses(ctx, queues)
	return one, len(every) > 0, err
}

// pauses returns which of some queues are paused by name, and the keys that pause all queues.
func (s *Store) pauses(ctx context.Context, queues []string) (one map[string]bool, every []string, err error) {
	var workers *redis.StringCmd
	var all *redis.IntCmd
	each := make([]*redis.IntCmd, len(queues))
	err = s.readEach(ctx, 1+len(queues), func(pipe redis.Pipeliner, i int) {
		if i == 0 {
			workers, all = pipe.Get(ctx, s.db.Key(keyPauseWorkers)), pipe.Exists(ctx, s.db.Key(keyPauseAll))
		} else {
			each[i-1] = pipe.Exists(ctx, s.db.Key(keyPauseQueue)+queues[i-1]) // a key of any type
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read pauses: %w", err)
	}
	one = map[string]bool{}
	for i, queue := range queues {
		if each[i].Val() > 0 {
			one[queue] = true
		}
	}
	if all.Val() > 0 {
		every = append(every, keyPauseAll)
	}
	if strings.EqualFold(strings.TrimSpace(workers.Val()), "true") {
		every = append(every, keyPauseWorkers)
	}
	return one, every, nil
}

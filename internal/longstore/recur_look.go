package longstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

// This file reads, pauses and removes recurring long jobs; recur.go has their ticks.

// RecurState is a recurring long job for people; see docs/redis-keys.md for Fields.
type RecurState struct {
	Class  string
	Fields map[string]string
	// Active is about how many of its runs wait or run.
	Active int64
}

// Number returns a numeric field, or 0.
func (r *RecurState) Number(field string) int64 {
	n, _ := strconv.ParseInt(r.Fields[field], 10, 64)
	return n
}

// RecurState returns a recurring long job; an unknown one has no Fields.
func (s *Store) RecurState(ctx context.Context, class string) (RecurState, error) {
	pipe := s.db.Write.Pipeline()
	fields := pipe.HGetAll(ctx, s.db.Key(keyRecur)+class)
	active := pipe.SCard(ctx, s.db.Key(keyStarts)+class)
	if _, err := pipe.Exec(ctx); err != nil {
		return RecurState{}, fmt.Errorf("recurring long job %q: %w", class, err)
	}
	return RecurState{Class: class, Fields: fields.Val(), Active: active.Val()}, nil
}

// Recurring returns all recurring long jobs, by class.
func (s *Store) Recurring(ctx context.Context) ([]RecurState, error) {
	classes, err := s.db.Read.SMembers(ctx, s.db.Key(keyRecurring)).Result()
	if err != nil {
		return nil, fmt.Errorf("list recurring long jobs: %w", err)
	}
	slices.Sort(classes)
	var all []RecurState
	for _, class := range classes {
		state, err := s.RecurState(ctx, class)
		if err != nil {
			return nil, err
		}
		if len(state.Fields) > 0 { // else it is long forgotten
			all = append(all, state)
		}
	}
	return all, nil
}

// RecurFailed notes why a recurring long job's subjects are not known, and reports whether the reason is
// new.
func (s *Store) RecurFailed(ctx context.Context, class, why string) (news bool, err error) {
	key := s.db.Key(keyRecur) + class
	old, err := s.db.Write.HGet(ctx, key, "error").Result()
	if err != nil && !rdb.IsNil(err) {
		return false, fmt.Errorf("recurring long job %q: %w", class, err)
	}
	return old != why, s.db.Once(ctx, func() error {
		pipe := s.db.Write.TxPipeline()
		pipe.HSet(ctx, key, "error", why)
		pipe.PExpire(ctx, key, recurMemory)
		pipe.SAdd(ctx, s.db.Key(keyRecurring), class)
		_, err := pipe.Exec(ctx)
		return err
	})
}

// KeepRecur extends the memory of a recurring long job that does nothing for now.
func (s *Store) KeepRecur(ctx context.Context, class string, longest time.Duration) error {
	return s.db.Once(ctx, func() error {
		pipe := s.db.Write.Pipeline()
		for _, name := range []string{keyRecur, keySubjects, keyStarts} {
			pipe.PExpire(ctx, s.db.Key(name)+class, max(recurMemory, 3*longest))
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// PauseRecur pauses a recurring long job, which then starts no more runs, or resumes it.
func (s *Store) PauseRecur(ctx context.Context, class string, pause bool) error {
	return s.db.Once(ctx, func() error {
		return s.db.Write.HSet(ctx, s.db.Key(keyRecur)+class, "paused", rdb.Flag(pause)).Err()
	})
}

// RemoveRecur forgets a recurring long job and its subjects. If a worker still has it, its next tick starts it
// anew.
func (s *Store) RemoveRecur(ctx context.Context, class string) error {
	return s.db.Once(ctx, func() error {
		pipe := s.db.Write.TxPipeline()
		pipe.Del(ctx, s.db.Key(keyRecur)+class, s.db.Key(keySubjects)+class, s.db.Key(keyStarts)+class)
		pipe.SRem(ctx, s.db.Key(keyRecurring), class)
		_, err := pipe.Exec(ctx)
		return err
	})
}

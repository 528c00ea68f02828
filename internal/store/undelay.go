package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

var undelayScript = rdb.NewScript(Lua, "undelay", "lib/base", "lib/payload", "lib/payload_functions", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/delayed_item", "undelay")

// undelayBatch bounds the jobs of one call; the script does fewer if they are deep in long lists.
const undelayBatch = 50

// DelayedJob is a delayed job.
type DelayedJob struct {
	// Due is when it goes to its queue.
	Due time.Time
	// Queue and Payload are empty if it is not a job. Payload is for people: it may contain the queue's name.
	Queue   string
	Payload []byte

	key, item string
	// score and index are its place.
	score float64
	index int64
}

// ID is a digest of time and job. Equal jobs due together share it.
func (j *DelayedJob) ID() string {
	at := j.key + "\n"
	if j.own() {
		at = "" // such a member is unique
	}
	sum := sha256.Sum256([]byte(at + j.item))
	return hex.EncodeToString(sum[:])
}

// Delayed counts the delayed jobs, reading at most that many lists; partial: there are more.
func (s *Store) Delayed(ctx context.Context, lists int64) (n int64, partial bool, err error) {
	own, err := s.db.Read.ZCard(ctx, s.db.Key(rdb.KeyDelayed)).Result()
	if err != nil {
		return 0, false, fmt.Errorf("count delayed jobs: %w", err)
	}
	times, err := s.db.Read.ZRange(ctx, s.db.Key(keySchedule), 0, lists).Result()
	if err != nil {
		return 0, false, fmt.Errorf("count delayed jobs: %w", err)
	}
	if partial = int64(len(times)) > lists; partial {
		times = times[:lists]
	}
	lengths := make([]*redis.IntCmd, len(times))
	err = s.readEach(ctx, len(times), func(pipe redis.Pipeliner, i int) { lengths[i] = pipe.LLen(ctx, s.db.Key(keyDueAt)+times[i]) })
	if err != nil {
		return 0, false, fmt.Errorf("count delayed jobs: %w", err)
	}
	for _, length := range lengths {
		own += length.Val()
		partial = partial || length.Err() != nil // a key of the wrong type, which MoveDue reports
	}
	return own, partial, nil
}

// DelayedJobs iterates over the delayed jobs: first resqued:delayed, then resque-scheduler's keys, in order
// of time. It may skip jobs that are added or moved during the iteration.
func (s *Store) DelayedJobs(ctx context.Context) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) {
		for _, all := range []iter.Seq2[DelayedJob, error]{s.ownDelayed(ctx, DelayedPlace{}), s.scheduledDelayed(ctx, DelayedPlace{})} {
			for job, err := range all {
				if !yield(job, err) || err != nil {
					return
				}
			}
		}
	}
}

// dueAt converts seconds since 1970 to a time, to the ms. Any program writes scores: invalid ones become the
// first or last time.
func dueAt(seconds float64) time.Time {
	if !(seconds > 0) { // also NaN
		return time.Unix(0, 0)
	}
	return time.UnixMilli(int64(math.Round(min(seconds, maxEpoch-1) * 1000)))
}

// Undelay removes delayed jobs or, with run, pushes them now; unique reports whether a queue is unique. It
// calls done with each outcome, as EditFailed does.
//
// After an error that is not Unexecuted, some jobs may be done without a report.
func (s *Store) Undelay(ctx context.Context, jobs []DelayedJob, run bool, unique func(queue string) bool, done func(DelayedJob, FailedOutcome)) error {
	verb := "rm"
	if run {
		verb = "run"
	}
	for len(jobs) > 0 {
		some := jobs[:min(len(jobs), undelayBatch)]
		args := []any{s.db.Prefix, verb}
		for _, j := range some {
			args = append(args, j.key, j.item, rdb.Flag(unique != nil && unique(j.Queue)))
		}
		raw, err := s.db.Eval(ctx, undelayScript, s.db.Key(rdb.KeyDelayed), args)
		if err != nil {
			return fmt.Errorf("%s delayed jobs: %w", verb, err)
		}
		marks, _ := raw.(string)
		if len(marks) == 0 || len(marks) > len(some) {
			return fmt.Errorf("script undelay: %d answers for %d jobs", len(marks), len(some))
		}
		for i := range marks {
			done(some[i], FailedOutcome(marks[i]))
		}
		jobs = jobs[len(marks):]
	}
	return nil
}

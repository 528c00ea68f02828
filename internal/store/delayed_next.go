package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// DelayedPlace is a place among the delayed jobs in the order in which they are due: behind one of
// them. Jobs that come and go do not change it. The zero value is before all.
type DelayedPlace struct {
	// Scheduler: the job waits in the keys of resque-scheduler, which come after resqued:delayed
	// where jobs are due together.
	Scheduler bool
	// Score is the time as it stands there.
	Score float64
	// Index is how many of this time came up to the job, itself included, when it was read. It is
	// where the job is looked for first, and tells it from equal ones.
	Index int64
	// Job is the beginning of its id.
	Job string
}

// placeID is how much of an id is in a place.
const placeID = 16

// String returns the place as ParseDelayedPlace takes it.
func (p DelayedPlace) String() string {
	if p.Job == "" {
		return ""
	}
	where := "r"
	if p.Scheduler {
		where = "s"
	}
	return where + formatScore(p.Score) + "," + strconv.FormatInt(p.Index, 10) + "," + p.Job
}

// ParseDelayedPlace reads a place; "" is the zero value.
func ParseDelayedPlace(text string) (p DelayedPlace, err error) {
	if text == "" {
		return p, nil
	}
	fields := strings.Split(text[1:], ",")
	if len(fields) == 3 && (text[0] == 'r' || text[0] == 's') {
		var bad error
		p.Scheduler, p.Job = text[0] == 's', fields[2]
		p.Score, err = strconv.ParseFloat(fields[0], 64)
		p.Index, bad = strconv.ParseInt(fields[1], 10, 64)
		if err == nil && bad == nil && !math.IsNaN(p.Score) && p.Index > 0 && len(p.Job) == placeID {
			return p, nil
		}
	}
	return DelayedPlace{}, errors.New("a place among delayed jobs is what the answer before has named")
}

func formatScore(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

// place returns the place behind the job.
func (j *DelayedJob) place() DelayedPlace {
	return DelayedPlace{Scheduler: !j.own(), Score: j.score, Index: j.index, Job: j.ID()[:placeID]}
}

// is reports whether the place is behind a job like this one.
func (p DelayedPlace) is(j *DelayedJob) bool { return j.score == p.Score && j.ID()[:placeID] == p.Job }

// own reports whether the job waits in resqued:delayed.
func (j *DelayedJob) own() bool { return strings.HasSuffix(j.key, rdb.KeyDelayed) }

// NextDelayed returns the jobs after a place that want accepts and that are due first, at most so
// many; next is the place behind them, the zero value if there are no others. A job that is added
// is seen if it is due behind the place. Where the job before the place is gone, those that are
// due together with it may be seen again.
func (s *Store) NextDelayed(ctx context.Context, after DelayedPlace, limit int, want func(*DelayedJob) bool) (jobs []DelayedJob, next DelayedPlace, err error) {
	nextOwn, stop := iter.Pull2(s.ownDelayed(ctx, after))
	defer stop()
	nextScheduled, stop := iter.Pull2(s.scheduledDelayed(ctx, after))
	defer stop()
	own, err, more := nextOwn()
	if err != nil {
		return nil, next, err
	}
	scheduled, err, others := nextScheduled()
	for err == nil && (more || others) {
		var job DelayedJob
		if more && (!others || !own.Due.After(scheduled.Due)) {
			job = own
			own, err, more = nextOwn()
		} else {
			job = scheduled
			scheduled, err, others = nextScheduled()
		}
		switch {
		case !want(&job):
		case len(jobs) == limit:
			return jobs, jobs[limit-1].place(), nil
		default:
			jobs = append(jobs, job)
		}
	}
	if err != nil {
		return nil, next, err
	}
	return jobs, next, nil
}

// ranked is a member of a sorted set; index is how many of its score come up to it.
type ranked struct {
	member string
	score  float64
	index  int64
}

// rising goes through a sorted set from a score on, and leaves out the first members of that score.
func (s *Store) rising(ctx context.Context, key string, from float64, leave int64) iter.Seq2[ranked, error] {
	return func(yield func(ranked, error) bool) {
		at, seen := from, leave
		for {
			page, err := s.db.Read.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{
				Min: strings.ToLower(formatScore(at)), Max: "+inf", Offset: seen, Count: pageElements,
			}).Result()
			if err != nil {
				yield(ranked{}, fmt.Errorf("read delayed jobs: %w", err))
				return
			}
			for _, z := range page {
				if z.Score != at {
					at, seen = z.Score, 0
				}
				seen++
				member, _ := z.Member.(string)
				if !yield(ranked{member: member, score: z.Score, index: seen}, nil) {
					return
				}
			}
			if len(page) < pageElements {
				return
			}
		}
	}
}

// ownDelayed goes through the jobs of resqued:delayed that are due after a place.
func (s *Store) ownDelayed(ctx context.Context, after DelayedPlace) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) {
		key := s.db.Key(rdb.KeyDelayed)
		read := func(z ranked) DelayedJob {
			job := DelayedJob{Due: dueAt(z.score / 1000), key: key, item: z.member, score: z.score, index: z.index}
			if queue, payload, ok := parseDelayed(z.member); ok {
				job.Queue, job.Payload = queue, []byte(payload)
			}
			return job
		}
		from, leave := math.Inf(-1), int64(0)
		last := dueAt(after.Score)
		switch {
		case after.Job == "":
		case after.Scheduler: // jobs here are before those there that are due together
			from = float64(last.UnixMilli() - 1)
		default:
			from = after.Score
			for z, err := range s.rising(ctx, key, from, after.Index-1) {
				if err != nil {
					yield(DelayedJob{}, err)
					return
				}
				if job := read(z); after.is(&job) {
					leave = after.Index
				}
				break
			}
			if leave == 0 {
				for z, err := range s.rising(ctx, key, from, 0) {
					if err != nil {
						yield(DelayedJob{}, err)
						return
					}
					if z.score != from {
						break
					}
					if job := read(z); after.is(&job) {
						leave = z.index
						break
					}
				}
			}
		}
		for z, err := range s.rising(ctx, key, from, leave) {
			job := read(z)
			if err == nil && after.Scheduler && !job.Due.After(last) {
				continue
			}
			if !yield(job, err) || err != nil {
				return
			}
		}
	}
}

// scheduledDelayed goes through the jobs in the keys of resque-scheduler that are due after a place.
func (s *Store) scheduledDelayed(ctx context.Context, after DelayedPlace) iter.Seq2[DelayedJob, error] {
	return func(yield func(DelayedJob, error) bool) {
		from, last := math.Inf(-1), dueAt(after.Score/1000)
		var found *DelayedJob
		switch {
		case after.Job == "":
		case !after.Scheduler:
			from = float64(last.Unix() - 1)
		default:
			from = after.Score
			var err error
			if found, err = s.findScheduled(ctx, after); err != nil {
				yield(DelayedJob{}, err)
				return
			}
		}
		for z, err := range s.rising(ctx, s.db.Key(keySchedule), from, 0) {
			if err != nil {
				yield(DelayedJob{}, err)
				return
			}
			if after.Job != "" && !after.Scheduler && dueAt(z.score).Before(last) {
				continue
			}
			w := s.walk(s.db.Key(keyDueAt) + z.member)
			if found != nil {
				if w.key != found.key {
					continue // several times of one score, those before the place
				}
				w.pos, w.tail, found = found.index, []string{found.item}, nil
			}
			if !delayedList(ctx, w, z.score, yield) {
				return
			}
		}
	}
}

// findScheduled returns the job before a place as it stands now, nil if it is gone. Of several like
// it that one is meant which stands nearest to where it stood.
func (s *Store) findScheduled(ctx context.Context, p DelayedPlace) (found *DelayedJob, err error) {
	for z, err := range s.rising(ctx, s.db.Key(keySchedule), p.Score, 0) {
		if err != nil {
			return nil, err
		}
		if z.score != p.Score || found != nil {
			break
		}
		key := s.db.Key(keyDueAt) + z.member
		there, err := s.db.Read.LRange(ctx, key, p.Index-1, p.Index-1).Result()
		if err != nil && rdb.Unreachable(err) {
			return nil, fmt.Errorf("read delayed jobs: %w", err)
		}
		if len(there) == 1 {
			if job := (DelayedJob{key: key, item: there[0], score: z.score, index: p.Index}); p.is(&job) {
				return &job, nil
			}
		}
		delayedList(ctx, s.walk(key), z.score, func(job DelayedJob, why error) bool {
			if err = why; err != nil {
				return false
			}
			if p.is(&job) && (found == nil || distance(job.index, p.Index) < distance(found.index, p.Index)) {
				found = &job
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// delayedList goes through the rest of a list of jobs that are due at one time.
func delayedList(ctx context.Context, w *walk, score float64, yield func(DelayedJob, error) bool) bool {
	for {
		from, page, err := w.next(ctx)
		if err != nil {
			if rdb.Unreachable(err) || !redis.HasErrorPrefix(err, "WRONGTYPE") {
				yield(DelayedJob{}, fmt.Errorf("read delayed jobs: %w", err))
				return false
			}
			return true // MoveDue reports it
		}
		if len(page) == 0 {
			return true
		}
		for i, item := range page {
			job := DelayedJob{Due: dueAt(score), key: w.key, item: item, score: score, index: from + int64(i) + 1}
			var fields struct{ Queue string }
			if json.Unmarshal([]byte(item), &fields) == nil && fields.Queue != "" {
				job.Queue, job.Payload = fields.Queue, []byte(item)
			}
			if !yield(job, nil) {
				return false
			}
		}
		w.done(from, page)
	}
}

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

// DelayedPlace is a place in the order of delayed jobs: after one of them. Other jobs' coming and going does
// not change it. The zero value is before all.
type DelayedPlace struct {
	// Scheduler: the job is in the keys of resque-scheduler, which come after resqued:delayed for equal
	// times.
	Scheduler bool
	// Score is the due time as stored.
	Score float64
	// Index is how many jobs of this time came up to and including the job when it was read. The search
	// for the job starts there; it also distinguishes equal jobs.
	Index int64
	// Job is the beginning of the job's id.
	Job string
}

// placeID is how many characters of an id a place contains.
const placeID = 16

// String returns the place for ParseDelayedPlace.
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

// place returns the place after the job.
func (j *DelayedJob) place() DelayedPlace {
	return DelayedPlace{Scheduler: !j.own(), Score: j.score, Index: j.index, Job: j.ID()[:placeID]}
}

// is reports whether the place is after a job like this one.
func (p DelayedPlace) is(j *DelayedJob) bool { return j.score == p.Score && j.ID()[:placeID] == p.Job }

func (j *DelayedJob) own() bool { return strings.HasSuffix(j.key, rdb.KeyDelayed) }

// NextDelayed returns at most limit jobs after a place that want accepts, earliest first; next is the place
// after them, zero if there are no others. Jobs added after the place are seen. If the job at the place is
// gone, jobs due at the same time may be seen again.
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

// ranked is a member of a sorted set; index is its rank, from 1, among members of its score.
type ranked struct {
	member string
	score  float64
	index  int64
}

// rising iterates over a sorted set from a score on, without the first leave members of that score.
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

// ownDelayed iterates over the jobs of resqued:delayed after a place.
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
		case after.Scheduler: // for equal times, jobs here precede those there
			from = float64(last.UnixMilli() - 1)
		default:
			from = after.Score
			for _, skip := range []int64{after.Index - 1, 0} { // it is nearly always where it was
				for z, err := range s.rising(ctx, key, from, skip) {
					if err != nil {
						yield(DelayedJob{}, err)
						return
					}
					if job := read(z); after.is(&job) {
						leave = z.index
					}
					if leave > 0 || z.score != from || skip > 0 {
						break
					}
				}
				if leave > 0 {
					break
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

// scheduledDelayed iterates over the jobs in the keys of resque-scheduler after a place.
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
					continue // an earlier list of the same score
				}
				w.pos, w.tail, found = found.index, []string{found.item}, nil
			}
			if !delayedList(ctx, w, z.score, yield) {
				return
			}
		}
	}
}

// findScheduled returns the job at a place as it is now, nil if it is gone. Of equal jobs it returns the one
// nearest to the place.
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

// delayedList iterates over the rest of a list of jobs due at one time.
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

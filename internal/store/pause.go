package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

// Pause says who has paused a queue, or all of them.
type Pause struct {
	// Key is its key without the namespace: of this queue or of all.
	Key string `json:"key"`
	// By and Reason are empty if they are unknown.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// At is when it began, Until when it ends by itself; zero = unknown, or no end.
	At    time.Time `json:"at,omitzero"`
	Until time.Time `json:"until,omitzero"`

	other bool // the key is of another type
	gone  bool // there is none any more
}

// Subject says what is paused: "paused" is one queue.
func (p *Pause) Subject() string {
	switch p.Key {
	case keyPauseAll:
		return "all queues are paused"
	case keyPauseWorkers:
		return "all workers are paused, Ruby's as well"
	}
	return "paused"
}

// ByName reports whether it is a pause of one queue.
func (p *Pause) ByName() bool { return strings.HasPrefix(p.Key, keyPauseQueue) }

// PauseOptions are about a pause that begins.
type PauseOptions struct {
	// For is how long it lasts, in whole milliseconds; 0 = until it is ended.
	For time.Duration
	// By and Reason are for people.
	By, Reason string
}

// MaxReason is the most characters of a reason.
const MaxReason = 200

// Check returns why options are refused.
func (o PauseOptions) Check() error {
	switch {
	case o.For < 0 || o.For > 365*24*time.Hour || o.For%time.Millisecond != 0:
		return fmt.Errorf("for %s: use 1ms to 365d, or 0 for no end", o.For)
	case !utf8.ValidString(o.Reason):
		return errors.New("the reason is not UTF-8")
	case utf8.RuneCountInString(o.Reason) > MaxReason:
		return fmt.Errorf("the reason has %d characters; write at most %d", utf8.RuneCountInString(o.Reason), MaxReason)
	}
	return nil
}

// String returns the end and the reason, "for 30m0s: migration 4711", "" without any.
func (o PauseOptions) String() string {
	reason := wire.Printable(o.Reason, 0)
	switch {
	case o.For == 0:
		return reason
	case o.Reason == "":
		return "for " + o.For.String()
	}
	return "for " + o.For.String() + ": " + reason
}

// pauseNote is the JSON value of a pause's key. Other programs' values say nothing.
type pauseNote struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at"` // ms
}

// Pause keeps all workers from taking jobs of a queue, until Resume or the end of the pause. Running jobs
// continue. If the queue is paused already, the later end of both counts, and a reason replaces the other. It
// returns the pause before (nil = none) and the one now.
func (s *Store) Pause(ctx context.Context, queue string, o PauseOptions) (before, now *Pause, err error) {
	return s.setPause(ctx, keyPauseQueue+queue, o)
}

// PauseAll is Pause for all queues. Queues paused by name stay paused after ResumeAll.
func (s *Store) PauseAll(ctx context.Context, o PauseOptions) (before, now *Pause, err error) {
	return s.setPause(ctx, keyPauseAll, o)
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

func (s *Store) setPause(ctx context.Context, key string, o PauseOptions) (before, now *Pause, err error) {
	written := func() *Pause {
		p := &Pause{Key: key, By: o.By, Reason: o.Reason}
		if o.For > 0 {
			p.Until = time.Now().Add(o.For)
		}
		return p
	}
	for before == nil || before.gone { // it may end between the two
		made, err := s.putPause(ctx, key, o, true)
		if err != nil || made {
			return nil, written(), err
		}
		before = &Pause{Key: key}
		if err := s.readPauses(ctx, []*Pause{before}); err != nil {
			return nil, nil, err
		}
	}
	if before.other || o.Reason == "" && before.Until.IsZero() {
		return before, before, nil
	}
	// Whoever has paused it relies on that: it does not end sooner.
	if left := time.Until(before.Until); before.Until.IsZero() || o.For > 0 && o.For < left {
		o.For = max(left, 0).Truncate(time.Millisecond)
	}
	o.Reason = cmp.Or(o.Reason, before.Reason)
	_, err = s.putPause(ctx, key, o, false)
	return before, written(), err
}

// putPause writes a pause, with fresh only if there is none, and reports whether it did.
func (s *Store) putPause(ctx context.Context, key string, o PauseOptions, fresh bool) (done bool, err error) {
	value := []byte("true") // as resque-pause does, which looks for the key only
	if o.By+o.Reason != "" {
		if value, err = json.Marshal(pauseNote{By: o.By, Reason: o.Reason, At: time.Now().UnixMilli()}); err != nil {
			return false, err
		}
	}
	err = s.db.Once(ctx, func() (err error) {
		if fresh {
			done, err = s.db.Write.SetNX(ctx, s.db.Key(key), value, o.For).Result()
			return err
		}
		done = true
		return s.db.Write.Set(ctx, s.db.Key(key), value, o.For).Err()
	})
	if err != nil {
		return false, fmt.Errorf("pause: %w", err)
	}
	return done, nil
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
	pauses, every, err := s.pauses(ctx, queues)
	one = map[string]bool{}
	for queue := range pauses {
		one[queue] = true
	}
	return one, len(every) > 0, err
}

// pauses returns the pauses of some queues by name, and those of all queues.
func (s *Store) pauses(ctx context.Context, queues []string) (one map[string]*Pause, every []*Pause, err error) {
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
	one = map[string]*Pause{}
	for i, queue := range queues {
		if each[i].Val() > 0 {
			one[queue] = &Pause{Key: keyPauseQueue + queue}
		}
	}
	if all.Val() > 0 {
		every = append(every, &Pause{Key: keyPauseAll})
	}
	if strings.EqualFold(strings.TrimSpace(workers.Val()), "true") {
		every = append(every, &Pause{Key: keyPauseWorkers})
	}
	return one, every, nil
}

// maxPauseNote is how many bytes of a pause are read: other programs may write anything.
const maxPauseNote = 4096

// readPauses reads who has made pauses, and when they end, as far as it may.
func (s *Store) readPauses(ctx context.Context, pauses []*Pause) error {
	values, lives := make([]*redis.StringCmd, len(pauses)), make([]*redis.DurationCmd, len(pauses))
	if err := s.readEach(ctx, len(pauses), func(pipe redis.Pipeliner, i int) {
		key := s.db.Key(pauses[i].Key)
		values[i], lives[i] = pipe.GetRange(ctx, key, 0, maxPauseNote), pipe.PTTL(ctx, key)
	}); err != nil && rdb.Refusal(err) == "" {
		return fmt.Errorf("read pauses: %w", err)
	}
	now := time.Now()
	for i, p := range pauses {
		p.other = redis.HasErrorPrefix(values[i].Err(), "WRONGTYPE")
		var note pauseNote
		if json.Unmarshal([]byte(values[i].Val()), &note) == nil {
			p.By, p.Reason = note.By, note.Reason
			if at := time.UnixMilli(note.At); note.At > 0 && at.Year() < 10_000 {
				p.At = at
			}
		}
		left := lives[i].Val()
		if p.gone = left == -2; left > 0 { // as Redis answers for no key
			p.Until = now.Add(left)
		}
	}
	return nil
}

package longstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	subjectsScript = rdb.NewScript(Lua, "longjob_subjects", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/longjob", "subjects")
	recurScript    = rdb.NewScript(Lua, "longjob_recur", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/longjob", "lib/longjob_tenants", "lib/longjob_runs", "recur")
)

const (
	// recurChunk is how many runs one call may start, subjectChunk how many subjects it may note: a script
	// blocks the server.
	recurChunk   = 100
	subjectChunk = 500
	// recurShare: a late tick makes up at most 1/recurShare of the interval, so that a backlog does not start
	// at once.
	recurShare = 20
	// recurMemory is the minimum time for which the last starts are remembered.
	recurMemory = 8 * 24 * time.Hour
)

// Subject is one subject of a recurring long job; Run is enqueued for it.
type Subject struct {
	Run      NewRun
	Interval time.Duration
}

// Recurrence is a recurring long job with all of its subjects.
type Recurrence struct {
	Class string
	// Every is the time between ticks, Interval the interval shown to people.
	Every, Interval time.Duration
	// Backlog is how many runs may wait or run.
	Backlog  int
	Subjects []Subject
}

// RecurReply is the result of a tick: how many runs were enqueued, and how many further subjects are due.
type RecurReply struct{ Started, Waiting int }

type waitingSubject struct {
	*Subject
	note  string
	fresh bool
	due   int64 // earlier comes first; ms
}

// Recur makes one tick of a recurring long job: it starts runs for subjects that are due, the longest waiting
// first; see lua/recur.lua for how many. Concurrent ticks are harmless.
func (s *Store) Recur(ctx context.Context, r Recurrence) (RecurReply, error) {
	state, err := s.RecurState(ctx, r.Class)
	if err != nil {
		return RecurReply{}, err
	}
	longest, rate := r.Interval, 0.0
	subjects := make(map[string]*Subject, len(r.Subjects))
	for i := range r.Subjects {
		sub := &r.Subjects[i]
		if subjects[sub.Run.Kind] == nil {
			subjects[sub.Run.Kind] = sub
			longest = max(longest, sub.Interval)
			rate += 1 / float64(sub.Interval.Milliseconds())
		}
	}
	memory := max(recurMemory.Milliseconds(), 3*longest.Milliseconds())
	notes, now, err := s.noteSubjects(ctx, r.Class, subjects, memory)
	if err != nil {
		return RecurReply{}, err
	}
	due, next := dueSubjects(subjects, notes, now, r.Every)
	most := max(2*r.Every.Milliseconds(), (r.Interval / recurShare).Milliseconds())
	fields := map[string]string{
		"interval": millisText(r.Interval), "every": millisText(r.Every), "backlog": strconv.Itoa(r.Backlog),
		"subjects": strconv.Itoa(len(subjects)), "next": strconv.FormatInt(next, 10), "error": "",
	}
	var reply RecurReply
	known := state.Fields["at"]
	for begins := true; begins || len(due) > 0; begins = false {
		chunk := due[:min(len(due), recurChunk)]
		args := []any{
			s.db.Prefix, r.Class, rdb.Flag(begins), known, strconv.FormatFloat(rate, 'g', -1, 64), r.Every.Milliseconds(), most, r.Backlog,
			KeepSuperseded.Milliseconds(), memory,
		}
		if !begins {
			fields = nil
		}
		args = appendMap(args, fields)
		for _, w := range chunk {
			args = append(args, w.Run.UUID, w.Run.Kind, w.Run.Args, w.Run.Queue, w.Run.Again, w.Run.Tenant, Payload(r.Class, w.Run.UUID, 1), w.note, w.Interval.Milliseconds())
		}
		raw, err := s.db.Eval(ctx, recurScript, s.db.Key(keyRecur)+r.Class, args)
		if err != nil {
			return reply, err
		}
		list, _ := raw.([]any)
		if len(list) == 1 { // early, paused, removed, or overtaken by another tick
			return reply, nil
		}
		text := rdb.Texts(raw)
		if len(list) != 4 || len(text) != 4 || len(text[3]) != len(chunk) {
			return reply, fmt.Errorf("script longjob_recur: unexpected reply %v", raw)
		}
		known = text[1]
		more := due[len(chunk):]
		for i, outcome := range []byte(text[3]) {
			switch outcome {
			case 's':
				reply.Started++
			case 'r', 'm':
			case 'b': // nor may any other start
				reply.Waiting += len(chunk) - i + len(more)
				return reply, s.noteRecur(ctx, r.Class, reply)
			case 'c': // nor may any other new one start
				reply.Waiting++
				more = slices.DeleteFunc(more, func(w waitingSubject) bool {
					if w.fresh {
						reply.Waiting++
					}
					return w.fresh
				})
			}
		}
		due = more
	}
	return reply, s.noteRecur(ctx, r.Class, reply)
}

func millisText(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (s *Store) noteRecur(ctx context.Context, class string, r RecurReply) error {
	return s.db.Once(ctx, func() error {
		return s.db.Write.HSet(ctx, s.db.Key(keyRecur)+class, "started", r.Started, "waiting", r.Waiting).Err()
	})
}

// noteSubjects updates the stored subjects to the given ones, and returns their notes and the server's time
// (ms).
func (s *Store) noteSubjects(ctx context.Context, class string, subjects map[string]*Subject, memory int64) (notes map[string]string, now int64, err error) {
	key := s.db.Key(keySubjects) + class
	notes = map[string]string{}
	for cursor := uint64(0); ; {
		var page []string
		// On the connections for writes, to read its own writes.
		if page, cursor, err = s.db.Write.HScan(ctx, key, cursor, "", subjectChunk).Result(); err != nil {
			return nil, 0, fmt.Errorf("read the subjects of %q: %w", class, err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			notes[page[i]] = page[i+1]
		}
		if cursor == 0 {
			break
		}
	}
	var fresh, gone []string
	for _, kind := range slices.Sorted(maps.Keys(subjects)) {
		if notes[kind] == "" {
			fresh = append(fresh, kind)
		}
	}
	for kind := range notes {
		if subjects[kind] == nil {
			gone = append(gone, kind)
			delete(notes, kind)
		}
	}
	for once := true; once || len(fresh)+len(gone) > 0; once = false {
		some, old := fresh[:min(len(fresh), subjectChunk)], gone[:min(len(gone), subjectChunk)]
		args := []any{s.db.Prefix, memory, len(some)}
		for _, kind := range slices.Concat(some, old) {
			args = append(args, kind)
		}
		raw, err := s.db.Eval(ctx, subjectsScript, key, args)
		if err != nil {
			return nil, 0, err
		}
		list, _ := raw.([]any)
		if len(list) != 2 || len(rdb.Texts(list[1])) != len(some) {
			return nil, 0, fmt.Errorf("script longjob_subjects: unexpected reply %v", raw)
		}
		now = rdb.Number(list[0])
		for i, note := range rdb.Texts(list[1]) {
			notes[some[i]] = note
		}
		fresh, gone = fresh[len(some):], gone[len(old):]
	}
	return notes, now, nil
}

// dueSubjects returns the subjects that may start now, the longest waiting first, relative to their intervals;
// and when the next of the others is due (ms), 0 = never.
func dueSubjects(subjects map[string]*Subject, notes map[string]string, now int64, every time.Duration) (due []waitingSubject, next int64) {
	for kind, sub := range subjects {
		w := waitingSubject{Subject: sub, note: notes[kind]}
		n, err := strconv.ParseInt(w.note, 10, 64)
		if err != nil {
			n = 0 // not written by this program: counts as very long ago
		}
		at := max(n, -n) + sub.Interval.Milliseconds()
		w.fresh, w.due = n < 0 && now < at, at
		if n < 0 || at <= now+every.Milliseconds()/2 {
			due = append(due, w)
		} else if next == 0 || at < next {
			next = at
		}
	}
	slices.SortFunc(due, func(a, b waitingSubject) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.Run.Kind, b.Run.Kind))
	})
	return due, next
}

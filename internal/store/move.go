package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
)

var (
	moveJobsScript = rdb.NewScript(Lua, "move_jobs", "lib/base", "lib/records", "lib/rights", "lib/blocked_queues", "lib/lines", "lib/unique",
		"lib/deaths", "lib/taking", "lib/classlock", "move_jobs")
	moveSuspectsScript = rdb.NewScript(Lua, "move_suspects", "lib/base", "lib/records", "lib/rights", "lib/suspects", "lib/deaths", "lib/classlock", "move_suspects")
)

// suspectsPart is how many suspects one step of MoveSuspects reads.
const suspectsPart = 200

var errSeen = errors.New("seen enough")

// ScanQueue iterates over the payloads that wait in a queue from its head, then over those in its lines, in
// parts of bounded size, until look returns false. Other processes may push, take and move jobs into lines: a
// job that waits all the time is seen, perhaps twice, with its index when it was read. waits is what it waits for, if
// it is in a line.
func (s *Store) ScanQueue(ctx context.Context, queue string, look func(index int64, payload []byte, waits string) bool) error {
	before := int64(0)
	err := s.eachPlace(ctx, queue, func(p place) error {
		w := s.walk(p.key)
		for {
			from, page, err := w.next(ctx)
			if err != nil {
				return fmt.Errorf("read %q: %w", queue, err)
			}
			if len(page) == 0 {
				before += w.pos
				return nil
			}
			for i, payload := range page {
				if !look(before+from+int64(i), []byte(payload), p.waits()) {
					return errSeen
				}
			}
			w.done(from, page)
		}
	})
	if errors.Is(err, errSeen) {
		return nil
	}
	return err
}

// Length returns how many jobs wait in a queue and in its lines, without suspects.
func (s *Store) Length(ctx context.Context, queue string) (int64, error) {
	pipe := s.db.Read.Pipeline()
	size, lined := pipe.LLen(ctx, s.db.QueueKey(queue)), pipe.HGet(ctx, s.db.Key(keyLined), queue)
	_ = told(pipe.Exec(ctx))
	n, err := size.Result()
	if err != nil {
		return 0, fmt.Errorf("length of %q: %w", queue, err)
	}
	return n + lineCounts(map[string]string{queue: lined.Val()})[queue], nil
}

// MoveRequest selects waiting jobs and their new queue.
type MoveRequest struct {
	From, To string
	// Unique: equal payloads wait in To only once.
	Unique bool
	// Head: they go to the head of To, not to its tail.
	Head bool
	// Pick reports whether to move a payload, and returns the key of its loner marker, without the
	// namespace, or "".
	Pick func(payload []byte) (marker string, ok bool)
	// Limit is how many of the picked are moved at most, 0 = all: the first ones, or with Head the
	// last ones left after Skip.
	Limit int64
	// Skip is how many of the picked stay, counted from the tail of From; only for Head.
	Skip int64
	// Step, if not nil, is called after each part with the totals so far. Its error ends the call.
	Step func(MoveReport) error
}

// MoveReport counts the picked payloads by outcome.
type MoveReport struct {
	Moved int64
	// Duplicates stay, because an equal job waits in the other queue.
	Duplicates int64
}

// MoveJobs moves payloads from one queue to another, in parts of bounded size. A script takes out and pushes
// each payload in one step, so it always waits in exactly one of the queues. Their order is kept, except that
// jobs moved into lines during the call come behind the others. Suspects (see PollReply) stay, and so may jobs
// pushed during the call.
//
// After an error that is not Unexecuted, the last part may have been moved, too.
func (s *Store) MoveJobs(ctx context.Context, r MoveRequest) (MoveReport, error) {
	var report MoveReport
	if r.From == r.To {
		return report, fmt.Errorf("move from %q to itself", r.From)
	}
	var err error
	if r.Head {
		err = s.eachPlace(ctx, r.From, func(p place) error { return s.moveBackward(ctx, &r, p, &report) })
	} else {
		err = s.oldestFirst(ctx, r.From, func(p place) error {
			if p.line == "" {
				report.Duplicates = 0 // the lines are visited again
			}
			return s.moveForward(ctx, r, p, &report)
		})
	}
	if err != nil {
		return report, fmt.Errorf("move from %q to %q: %w", r.From, r.To, err)
	}
	return report, nil
}

type picked struct{ payload, marker string }

func (s *Store) moveForward(ctx context.Context, r MoveRequest, place place, report *MoveReport) error {
	w := s.walk(place.key)
	for {
		from, page, err := w.next(ctx)
		if err != nil || len(page) == 0 || r.Limit > 0 && report.Moved+report.Duplicates >= r.Limit {
			return err
		}
		var wanted []picked
		for _, payload := range page {
			marker, ok := r.Pick([]byte(payload))
			if ok && (r.Limit == 0 || report.Moved+report.Duplicates+int64(len(wanted)) < r.Limit) {
				wanted = append(wanted, picked{payload, marker})
			}
		}
		marks, err := s.move(ctx, r, place, from, len(page), wanted, report)
		if err != nil {
			return err
		}
		if r.Limit > 0 && report.Moved+report.Duplicates >= r.Limit {
			return nil
		}
		var kept []string
		i := 0
		for _, payload := range page {
			if i < len(wanted) && wanted[i].payload == payload {
				if i++; marks[i-1] != '2' { // duplicates stay in their places
					continue
				}
			}
			kept = append(kept, payload)
		}
		w.done(from, kept)
	}
}

// moveBackward begins at the tail, so that payloads keep their order at the head of the other queue over all
// parts.
func (s *Store) moveBackward(ctx context.Context, r *MoveRequest, place place, report *MoveReport) error {
	end, err := s.db.Read.LLen(ctx, place.key).Result()
	for err == nil && end > 0 && (r.Limit == 0 || report.Moved+report.Duplicates < r.Limit) {
		start := max(0, end-pageElements/2)
		var page []string
		if page, err = s.db.Read.LRange(ctx, place.key, start, end-1).Result(); err != nil {
			return err
		}
		var wanted []picked
		for _, p := range slices.Backward(page) {
			marker, ok := r.Pick([]byte(p))
			switch {
			case !ok:
			case r.Skip > 0:
				r.Skip--
			case r.Limit == 0 || report.Moved+report.Duplicates+int64(len(wanted)) < r.Limit:
				wanted = append(wanted, picked{p, marker})
			}
		}
		// Equal payloads are only distinguished by their order.
		slices.Reverse(wanted)
		_, err = s.move(ctx, *r, place, start, len(page), wanted, report)
		end = start
	}
	return err
}

// move moves some payloads of a page, and returns the script's mark of each.
func (s *Store) move(ctx context.Context, r MoveRequest, place place, from int64, size int, wanted []picked, report *MoveReport) (marks string, err error) {
	if len(wanted) == 0 {
		return "", nil
	}
	args := make([]any, 0, 7+2*len(wanted))
	args = append(args, s.db.Prefix, r.From, r.To, from, size, letters(r.Unique, 'u', r.Head, 'h'), place.line)
	for _, p := range wanted {
		marker := ""
		if p.marker != "" {
			marker = s.db.Key(MarkerKey(p.marker))
		}
		args = append(args, p.payload, marker)
	}
	if marks, err = s.db.EvalMarks(ctx, moveJobsScript, place.key, args, len(wanted)); err != nil {
		return "", err
	}
	for _, mark := range marks {
		switch mark {
		case '1':
			report.Moved++
		case '2':
			report.Duplicates++
		}
	}
	if r.Step != nil {
		err = r.Step(*report)
	}
	return marks, err
}

// MoveSuspects moves the quarantined jobs of a queue to another queue's, if pick selects them (see MoveRequest), and
// returns how many. Other processes' changes may make it leave some.
func (s *Store) MoveSuspects(ctx context.Context, from, to string, pick func(payload []byte) (marker string, ok bool)) (moved int64, err error) {
	if from == to {
		return 0, fmt.Errorf("move from %q to itself", from)
	}
	key := s.db.Key(rdb.KeySuspects) + from
	for at := int64(0); ; {
		page, err := s.db.Read.LRange(ctx, key, at, at+suspectsPart-1).Result()
		if err != nil {
			return moved, fmt.Errorf("read suspects of %q: %w", from, err)
		}
		args := []any{s.db.Prefix, from, to}
		for _, element := range page {
			marker, ok := pick([]byte(suspectPayload(element)))
			switch {
			case !ok:
				at++
				continue
			case marker != "":
				marker = s.db.Key(MarkerKey(marker))
			}
			args = append(args, element, marker)
		}
		if len(args) > 3 {
			raw, err := s.db.Eval(ctx, moveSuspectsScript, key, args)
			if err != nil {
				return moved, fmt.Errorf("move suspects of %q to %q: %w", from, to, err)
			}
			moved += rdb.Number(raw)
		}
		if len(page) < suspectsPart {
			return moved, nil
		}
	}
}

// suspectPayload returns the payload of an element of resqued:suspects:<queue>, after its start time.
func suspectPayload(element string) string {
	start, payload, found := strings.Cut(element, " ")
	if !found || start == "" || strings.Trim(start, "0123456789-") != "" {
		return element
	}
	return payload
}

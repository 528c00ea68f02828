package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

var failedEditScript = rdb.NewScript(Lua, "failed_edit", "lib/base", "lib/records", "lib/rights", "lib/unique", "lib/append", "lib/failed_edits", "failed_edit")

// MainFailureList is the first of FailureLists, for failures without a list of their own.
const MainFailureList = keyFailed

// failedSuffix is appended to a queue's name by Resque's multi-queue failure backend, for the list of its
// failures.
const failedSuffix = "_failed"

// isFailureList reports whether a name in failed_queues can be a list of failures. Any program may have added
// it, and waiting jobs must not be taken for failures.
func isFailureList(name string) bool {
	return strings.HasSuffix(name, failedSuffix) && !strings.HasPrefix(name, "queue:") && !strings.HasPrefix(name, "resqued:")
}

// FailureLists returns the lists of failure records: failed, then, sorted, those of Resque's multi-queue failure
// backend.
func (s *Store) FailureLists(ctx context.Context) ([]string, error) {
	names, err := s.db.Read.SMembers(ctx, s.db.Key(keyFailedLists)).Result()
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // then that backend is not in use
		return nil, fmt.Errorf("list the lists of failures: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isFailureList(name) })
	slices.Sort(names)
	return append([]string{keyFailed}, names...), nil
}

// FailureRecord is one record of a list of failures.
type FailureRecord struct {
	List string
	// Index counts from the oldest record of the list, 0.
	Index int64
	Raw   []byte
}

// FailedList returns stored failure records of a list, newest first, and the total count. offset 0 is the
// newest.
func (s *Store) FailedList(ctx context.Context, list string, offset, limit int64) (records []FailureRecord, total int64, err error) {
	passed, total, err := s.failedLengths(ctx, list)
	if err != nil || limit <= 0 || offset >= total {
		return nil, total, err
	}
	from := max(0, total-offset-limit)
	raw, err := s.failedRange(ctx, list, passed, from, total-offset-1)
	if err != nil {
		return nil, 0, err
	}
	for i, r := range slices.Backward(raw) {
		records = append(records, FailureRecord{List: list, Index: from + int64(i), Raw: []byte(r)})
	}
	return records, total, nil
}

// failedLengths returns how many records of a list have passed (see lua/failed_edit_bulk.lua), and the total
// count.
func (s *Store) failedLengths(ctx context.Context, list string) (passed, total int64, err error) {
	var first, rest *redis.IntCmd
	if err := s.db.Together(ctx, func(pipe redis.Pipeliner) {
		first, rest = pipe.LLen(ctx, s.db.Key(keyPassed)+list), pipe.LLen(ctx, s.db.Key(list))
	}); err != nil {
		return 0, 0, fmt.Errorf("count failures of %q: %w", list, err)
	}
	return first.Val(), first.Val() + rest.Val(), nil
}

// failedRange returns the records between two indexes; passed is how many records have passed.
func (s *Store) failedRange(ctx context.Context, list string, passed, from, to int64) ([]string, error) {
	var parts []*redis.StringSliceCmd
	if err := s.db.Together(ctx, func(pipe redis.Pipeliner) {
		parts = nil
		if from < passed {
			parts = append(parts, pipe.LRange(ctx, s.db.Key(keyPassed)+list, from, min(to, passed-1)))
		}
		if to >= passed {
			parts = append(parts, pipe.LRange(ctx, s.db.Key(list), max(0, from-passed), to-passed))
		}
	}); err != nil {
		return nil, fmt.Errorf("list failures of %q: %w", list, err)
	}
	var records []string
	for _, part := range parts {
		records = append(records, part.Val()...)
	}
	return records, nil
}

// ScanFailed iterates over the records of a list, oldest first, until look returns false; it may skip records
// added during the scan. If other programs change very much, it starts again with index 0, and earlier calls
// no longer count.
func (s *Store) ScanFailed(ctx context.Context, list string, look func(index int64, record []byte) bool) error {
	if err := s.settleFailed(ctx, list); err != nil {
		return err
	}
	total, err := s.db.Read.LLen(ctx, s.db.Key(list)).Result()
	if err != nil {
		return fmt.Errorf("count failures of %q: %w", list, err)
	}
	w := s.walk(s.db.Key(list))
	for {
		from, page, err := w.next(ctx)
		if err != nil {
			return fmt.Errorf("read failures of %q: %w", list, err)
		}
		if len(page) == 0 {
			return nil
		}
		for i, record := range page {
			if from+int64(i) >= total || !look(from+int64(i), []byte(record)) {
				return nil
			}
		}
		w.done(from, page)
	}
}

// FailedTargets are the records of one list to edit, identified by their bytes: of equal records, as many as
// were added.
type FailedTargets struct {
	want map[[sha256.Size]byte]int
	n    int
	// low and high bound the indexes at which they were seen; bytes is their total size.
	low, high, bytes int64
}

// Add adds a record seen at an index.
func (t *FailedTargets) Add(index int64, record []byte) {
	if t.want == nil {
		t.want, t.low, t.high = map[[sha256.Size]byte]int{}, index, index
	}
	t.want[sha256.Sum256(record)]++
	t.n++
	t.bytes += int64(len(record))
	t.low, t.high = min(t.low, index), max(t.high, index)
}

// Len returns the number of records.
func (t *FailedTargets) Len() int { return t.n }

// FailedEdit is the change of one failure record. The zero value leaves it.
type FailedEdit struct {
	// Remove removes the record; otherwise Instead replaces it.
	Remove  bool
	Instead []byte
	// Queue gets Payload again; empty = push nothing. Unique: it holds a payload at most once.
	Queue   string
	Payload []byte
	Unique  bool
}

func (e *FailedEdit) none() bool { return !e.Remove && e.Instead == nil }

// FailedOutcome is the outcome of an edit.
type FailedOutcome byte

// The outcomes of edits.
const (
	FailedDone      FailedOutcome = 'r'
	FailedDuplicate FailedOutcome = 'u' // retried; an equal job waits, so nothing was pushed
	FailedGone      FailedOutcome = 'g' // already retried or removed
	FailedStuck     FailedOutcome = 'x' // its queue's key has the wrong type

	failedBusy FailedOutcome = 'b' // another process is sifting the list
)

// FailedWork is the input of EditFailed.
type FailedWork struct {
	List    string
	Targets *FailedTargets
	// Placed are, instead of Targets, records to edit only in their own places, not equal ones
	// elsewhere. They must stay in the list.
	Placed []FailureRecord
	// Remove: Edit removes each record.
	Remove bool
	// Edit returns the edit of a record. Done reports the outcome, once for each edited record; the
	// record is nil if it is gone.
	Edit func(record []byte) FailedEdit
	Done func(record []byte, edit FailedEdit, what FailedOutcome)
}

// The bounds of EditFailed. A script must stay far below 5 ms.
const (
	// failedBatch bounds the records of one script call.
	failedBatch = 100
	// pageTime (ns) bounds a call's edits by their cost: hop for each 8 KiB of records between an edit and the
	// end of the list.
	pageTime, hop, hopBytes = 1_500_000, 7, 8 << 10
	// nearTime (ns) bounds the cost of a removal in place, which passes through the list from one end: perRecord
	// for each record, and its bytes. The last few may cost twice as much.
	nearTime, perRecord, bytesPerNano, lastFew = 3_300_000, 15, 16, 16
	// siftShare: a long list is sifted if more than 1/siftShare of its records are replaced.
	siftShare = 20
	// failedPasses bounds the passes over a list that other programs change.
	failedPasses = 5
)

// EditFailed edits records of a list. An edit is made only if the record is still there, byte by byte, and is
// then reported to w.Done. The work per script is bounded, whatever the list's length.
//
// After an error that is not Unexecuted, some edits may have been made without a report.
func (s *Store) EditFailed(ctx context.Context, w FailedWork) error {
	if len(w.Placed) > 0 {
		return s.editPlaced(ctx, w)
	}
	left := *w.Targets
	left.want = maps.Clone(left.want)
	from := left.low
	for pass := range failedPasses {
		if left.n == 0 {
			return nil
		}
		if err := s.settleFailed(ctx, w.List); err != nil {
			return err
		}
		total, err := s.db.Read.LLen(ctx, s.db.Key(w.List)).Result()
		if err != nil {
			return fmt.Errorf("count failures of %q: %w", w.List, err)
		}
		var again bool
		if s.sifts(w, &left, total) {
			again, err = s.sift(ctx, w, &left)
		} else {
			again, err = s.editInPlace(ctx, w, &left, from)
		}
		if err != nil {
			return err
		}
		if !again && pass > 0 {
			break
		}
		from = 0 // the rest may have moved
	}
	for range left.n {
		w.Done(nil, FailedEdit{}, FailedGone)
	}
	return nil
}

// sifts reports whether there are too many edits, or too far from the ends of a list of n, to edit in place.
func (s *Store) sifts(w FailedWork, t *FailedTargets, n int64) bool {
	near, few := nearEnd(t.bytes/int64(max(t.Len(), 1))), lastFew
	if s.opts.Load().nearEnd > 0 {
		near, few = s.opts.Load().nearEnd, 0
	}
	depth := min(t.high+1, n-t.low, n/2)
	switch {
	case depth <= near, t.n <= few && depth <= 2*near:
		return false
	default:
		return w.Remove || int64(t.n) > n/siftShare // a replacement costs only the way to it
	}
}

// nearEnd returns how far from a list's end records of some size may be removed in place.
func nearEnd(size int64) int64 { return nearTime / (perRecord + size/bytesPerNano) }

// take reports whether a record is among the targets left; taken counts those already used on this page.
func (t *FailedTargets) take(record []byte, taken map[[sha256.Size]byte]int) bool {
	digest := sha256.Sum256(record)
	if t.want[digest] <= taken[digest] {
		return false
	}
	taken[digest]++
	return true
}

func (t *FailedTargets) ended(w FailedWork, record []byte, e FailedEdit, what FailedOutcome) {
	if what == FailedGone {
		return // it may be elsewhere
	}
	digest := sha256.Sum256(record)
	t.n--
	t.bytes -= int64(len(record))
	if t.want[digest]--; t.want[digest] == 0 {
		delete(t.want, digest)
	}
	if !e.none() {
		w.Done(record, e, what)
	}
}

type placedEdit struct {
	FailedEdit
	index  int64
	record []byte
}

func (e *placedEdit) args(to []any, index int64) []any {
	if e.Remove {
		e.Instead = nil
	}
	return append(to, index, e.record, e.Instead, e.Queue, e.Payload, rdb.Flag(e.Unique))
}

// editsOf returns the edits of a page whose first record has index from.
func (t *FailedTargets) editsOf(w FailedWork, from int64, page []string) (edits []placedEdit) {
	taken := map[[sha256.Size]byte]int{}
	for i, record := range page {
		raw := []byte(record)
		if !t.take(raw, taken) {
			continue
		}
		e := placedEdit{FailedEdit: w.Edit(raw), index: from + int64(i), record: raw}
		if e.none() {
			t.ended(w, raw, e.FailedEdit, FailedStuck)
			taken[sha256.Sum256(raw)]--
			continue
		}
		edits = append(edits, e)
	}
	return edits
}

// editInPlace edits records in place. again: other programs have changed the list, too.
func (s *Store) editInPlace(ctx context.Context, w FailedWork, t *FailedTargets, from int64) (again bool, err error) {
	pos, size := max(0, from), int64(16)
	for t.n > 0 {
		page, err := s.db.Read.LRange(ctx, s.db.Key(w.List), pos, pos+size-1).Result()
		if err != nil {
			return false, fmt.Errorf("read failures of %q: %w", w.List, err)
		}
		if len(page) == 0 {
			return false, nil
		}
		edits, removed := t.editsOf(w, pos, page), int64(0)
		batch := editBatch(pos, bytesOf(page)/int64(len(page)))
		for some := range slices.Chunk(edits, batch) {
			marks, err := s.failedEdit(ctx, w.List, some, removed, false)
			if err != nil {
				return false, err
			}
			for i := range some {
				what := FailedOutcome(marks[i])
				if what == failedBusy {
					return true, nil
				}
				t.ended(w, some[i].record, some[i].FailedEdit, what)
				if some[i].Remove && (what == FailedDone || what == FailedDuplicate) {
					removed++
				}
			}
		}
		pos += int64(len(page)) - removed
		size = nextPage(size, page, pageBytes, pageElements)
	}
	return false, nil
}

// failedEdit edits records that are before places ahead of their indexes, and returns a letter for each. With
// placed, they must be exactly there.
func (s *Store) failedEdit(ctx context.Context, list string, some []placedEdit, before int64, placed bool) (marks string, err error) {
	args := []any{s.db.Prefix, list, rdb.Flag(placed)}
	for i := range some {
		args = some[i].args(args, some[i].index-before)
	}
	if marks, err = s.db.EvalMarks(ctx, failedEditScript, s.db.Key(list), args, len(some)); err != nil {
		return "", fmt.Errorf("edit failures of %q: %w", list, err)
	}
	return marks, nil
}

// editPlaced edits records in their places. Records that have moved are searched, as removals shift them.
func (s *Store) editPlaced(ctx context.Context, w FailedWork) error {
	left := slices.Clone(w.Placed)
	for pass := 0; len(left) > 0 && pass < failedPasses; pass++ {
		if err := s.settleFailed(ctx, w.List); err != nil {
			return err
		}
		if pass > 0 {
			moved, err := s.findAgain(ctx, left)
			if err != nil {
				return err
			}
			for range len(left) - len(moved) {
				w.Done(nil, FailedEdit{}, FailedGone)
			}
			left = moved
		}
		slices.SortFunc(left, func(a, b FailureRecord) int { return cmp.Compare(a.Index, b.Index) })
		var missed []FailureRecord
		for len(left) > 0 {
			batch := left[:min(len(left), editBatch(left[len(left)-1].Index, int64(len(left[0].Raw))))]
			left = left[len(batch):]
			var edits []placedEdit
			for _, record := range batch {
				if e := w.Edit(record.Raw); !e.none() {
					edits = append(edits, placedEdit{FailedEdit: e, index: record.Index, record: record.Raw})
				}
			}
			if len(edits) == 0 {
				continue
			}
			marks, err := s.failedEdit(ctx, w.List, edits, 0, true)
			if err != nil {
				return err
			}
			for i, e := range edits {
				switch what := FailedOutcome(marks[i]); what {
				case FailedGone, failedBusy:
					missed = append(missed, FailureRecord{List: w.List, Index: e.index, Raw: e.record})
				default:
					w.Done(e.record, e.FailedEdit, what)
				}
			}
		}
		left = missed
	}
	for range left {
		w.Done(nil, FailedEdit{}, FailedGone)
	}
	return nil
}

// findAgain returns the current places of records that are still in their list.
func (s *Store) findAgain(ctx context.Context, records []FailureRecord) (found []FailureRecord, err error) {
	refs := make([]FailureRef, len(records))
	for i, record := range records {
		sum := sha256.Sum256(record.Raw)
		refs[i] = FailureRef{Digest: hex.EncodeToString(sum[:]), At: record.Index}
	}
	places, err := s.FindFailures(ctx, refs)
	if err != nil {
		return nil, err
	}
	taken := map[int64]bool{}
	for _, one := range places {
		if len(one) == 1 && one[0].List == records[0].List && !taken[one[0].Index] {
			taken[one[0].Index] = true
			found = append(found, one[0])
		}
	}
	return found, nil
}

// editBatch bounds the edits of one script at an index of a list whose records have some size.
func editBatch(index, size int64) int {
	perEdit := 1 + index*min(max(size, 1), hopBytes)/hopBytes*hop
	return int(min(max(pageTime/perEdit, 1), failedBatch))
}

package sqlscan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/resqued/resqued/longjob"
)

const (
	// maxLeft is how many locked rows a scan remembers. If there are more it returns to them
	// before it goes on. A review counts the calls for as many rows.
	maxLeft = 1000
	// maxLeftBytes is the same limit for long keys, in bytes.
	maxLeftBytes = 128 << 10
	// quickEnough is how many quick batches in a row make batches larger.
	quickEnough = 10
	// lockedPause is the pause at the end of a scan before it checks locked rows again.
	lockedPause = 250 * time.Millisecond
)

// place is the state of a scan between batches. Keys are text.
type place struct {
	Begun bool  `json:"begun,omitempty"`
	Total int64 `json:"total,omitempty"`
	// End is the highest key at the beginning. Rows up to Last are done, except for those in
	// Left. Edge is how far the rows after Last may be examined.
	End  []string   `json:"end,omitempty"`
	Last []string   `json:"last,omitempty"`
	Edge []string   `json:"edge,omitempty"`
	Left [][]string `json:"left,omitempty"`
	// Over: only the rows in Left remain.
	Over bool `json:"over,omitempty"`
	// Waited is for how long none of Left was free.
	Waited time.Duration `json:"waited,omitempty"`
	// Shrink is how often batches were halved, Quick how many were quick since then.
	Shrink int `json:"shrink,omitempty"`
	Quick  int `json:"quick,omitempty"`
}

// scan is a scan under way in a slice.
type scan struct {
	r    *longjob.Runner
	db   DB
	q    Query
	o    Options
	step string

	t       *table        // once it is known
	pages   int           // that this slice has done
	slowest time.Duration // of the statements since it was last reset to 0
}

func newScan(r *longjob.Runner, step string, db DB, q Query, o Options) (*scan, error) {
	s := &scan{r: r, db: db, q: q, o: o.defaults(), step: step}
	if len(q.Table) == 0 {
		return nil, s.wrap(errors.New("no table"))
	}
	return s, nil
}

// ScanDelete deletes the rows that match a query. It is the step key of the run: a later slice
// continues with the batch that is not done, and once the step has ended it does nothing.
//
// It deletes the rows that match when it begins, unless they no longer match when their batch is
// deleted. It ends at the highest key that exists when it begins: rows that are added above that
// key stay; of the rows that are added below it, some are deleted.
func ScanDelete(ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options) error {
	return rows(ctx, r, key, db, q, o, nil)
}

// ScanDestroy is like ScanDelete, but calls fn for each row before it is deleted. scan converts a
// row: pgx.RowToStructByName, pgx.RowToMap or a similar function.
//
// A batch is one transaction: its rows are locked, fn is called for each of them with that
// transaction, the rows are deleted, and the transaction is committed, at the latest when fn has
// worked for Options.HoldFor. If fn returns an error, the transaction is rolled back. What fn does
// in tx happens once. What it does elsewhere may happen again for the rows of a batch whose
// transaction could not be committed; with Options.KeepRows also for those of the batch during
// which a process died. fn must not call units or steps of the runner.
func ScanDestroy[T any](ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options,
	scan pgx.RowToFunc[T], fn func(ctx context.Context, tx pgx.Tx, row T) error,
) error {
	return rows(ctx, r, key, db, q, o, func(ctx context.Context, s *rowScan, tx pgx.Tx, keys [][]string) (int, error) {
		all, err := fetch(ctx, s.scan, tx, keys, scan)
		if err != nil {
			return 0, err
		}
		if len(all) != len(keys) {
			return 0, fmt.Errorf("%d rows are locked, %d are read", len(keys), len(all))
		}
		if err := s.release(ctx, tx); err != nil {
			return 0, err
		}
		handled, err := s.call(len(all), func(i int) error { return fn(ctx, tx, all[i]) })
		if err == nil {
			err = s.byKey(ctx, tx)
		}
		return handled, err
	})
}

// fetch reads rows in the order of their keys.
func fetch[T any](ctx context.Context, s *scan, tx pgx.Tx, keys [][]string, scan pgx.RowToFunc[T]) (all []T, err error) {
	columns := "*"
	if len(s.q.Columns) > 0 {
		columns = columnList(s.q.Columns)
	}
	st := &statement{}
	unnested, values := s.t.unnest(st, keys)
	st.add("SELECT resqued_row.* FROM %s CROSS JOIN LATERAL (SELECT %s FROM %s WHERE %s = %s OFFSET 0) resqued_row ORDER BY resqued_key.place",
		unnested, columns, s.t.name, s.t.row(), tuple(values))
	err = s.each(ctx, tx, st, func(rows pgx.Rows) error {
		row, err := scan(rows)
		all = append(all, row)
		return err
	})
	return all, err
}

// rowScan is a scan that visits each row once.
type rowScan struct {
	*scan
	longest time.Duration // of the calls of the function in this transaction
	// visit processes the rows of a batch, and returns how many of them are done; nil means
	// that the rows are only deleted.
	visit func(ctx context.Context, s *rowScan, tx pgx.Tx, keys [][]string) (int, error)
}

func rows(ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options,
	visit func(ctx context.Context, s *rowScan, tx pgx.Tx, keys [][]string) (int, error),
) error {
	base, err := newScan(r, key, db, q, o)
	if err != nil {
		return err
	}
	s := &rowScan{scan: base, visit: visit}
	return s.wrap(longjob.WorkPages(ctx, r, key, s.page))
}

// call calls fn for at most n rows, as long as locks may be held, and returns the number of
// rows.
func (s *rowScan) call(n int, fn func(i int) error) (int, error) {
	began := time.Now()
	for i := range n {
		call := time.Now()
		err := fn(i)
		s.longest = max(s.longest, time.Since(call))
		if err != nil {
			return i, fnError{err}
		}
		if time.Since(began) >= s.o.HoldFor {
			return i + 1, nil
		}
	}
	return n, nil
}

// page processes one batch.
func (s *rowScan) page(ctx context.Context, at place) (page longjob.Page[place], err error) {
	var next place
	var done int64
	err = s.again(ctx, s.shrink(&at), func(ctx context.Context) error {
		// A unit, so that what fn sets in the state is forgotten with its transaction.
		return s.r.WorkUnit(ctx, func(ctx context.Context) error {
			s.slowest, s.longest = 0, 0
			err := s.transaction(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
				next, done, err = s.batch(ctx, tx, at)
				return err
			})
			if _, lost := errors.AsType[lostError](err); lost && s.longest >= s.o.IdleTimeout {
				// The next try would take as long.
				return fnError{errors.New(fmt.Sprint("the function took ", s.longest, ", a transaction may stand still for ", s.o.IdleTimeout, " (IdleTimeout): ", err))}
			}
			return err
		})
	})
	if err != nil {
		return page, err
	}
	if next.Waited > at.Waited {
		s.rest(ctx, lockedPause)
	}
	s.pages++
	s.grow(&next)
	return longjob.Page[place]{Next: next, Done: done, Total: next.Total, Last: next.Over && len(next.Left) == 0}, nil
}

// shrink returns a function that halves the batches.
func (s *scan) shrink(at *place) func() bool {
	return func() bool {
		if s.o.Batch>>at.Shrink <= 1 {
			return false
		}
		at.Shrink++
		at.Quick = 0
		at.Edge = nil // it is as far away as a larger one would look
		return true
	}
}

// grow makes batches larger again after some quick ones.
func (s *scan) grow(at *place) {
	if at.Shrink == 0 || s.slowest > s.o.StatementTimeout/4 {
		return
	}
	if at.Quick++; at.Quick >= quickEnough {
		at.Shrink--
		at.Quick = 0
	}
}

// batch processes one batch in its transaction, and returns where the next one begins.
func (s *rowScan) batch(ctx context.Context, tx pgx.Tx, at place) (next place, done int64, err error) {
	if next, err = s.begin(ctx, tx, at); err != nil {
		return next, 0, err
	}
	size := max(s.o.Batch>>at.Shrink, 1)
	if len(next.Left) > 0 && (next.Over || full(next.Left)) {
		return s.revisit(ctx, tx, next, size)
	}
	if next.Over {
		return next, 0, nil
	}
	if err := s.look(ctx, tx, &next); err != nil {
		return next, 0, err
	}
	found, err := s.candidates(ctx, tx, span{from: next.Last, to: next.Edge}, size, true)
	if err != nil {
		return next, 0, err
	}
	if err := s.byKey(ctx, tx); err != nil {
		return next, 0, err
	}
	var free [][]string
	for _, c := range found {
		if c.mine {
			free = append(free, c.key)
		}
	}
	handled, done, err := s.work(ctx, tx, free)
	if err != nil {
		return next, 0, err
	}
	passed := found
	if handled < len(free) { // the time is over: up to the last one that is done
		last := slices.IndexFunc(found, func(c candidate) bool { return c.mine && slices.Equal(c.key, free[handled-1]) })
		passed = found[:last+1]
	}
	for _, c := range passed {
		if !c.mine {
			next.Left = append(next.Left, c.key)
		}
	}
	if len(passed) < len(found) || len(found) == size {
		next.Last = passed[len(passed)-1].key
	} else {
		next.leap()
	}
	return next, done, nil
}

// begin starts the scan: it records where the table ends.
func (s *scan) begin(ctx context.Context, tx pgx.Tx, at place) (next place, err error) {
	next = at
	next.Left = slices.Clone(at.Left)
	if err := s.know(ctx, tx); err != nil {
		return next, err
	}
	if at.Begun {
		return next, nil
	}
	next.Begun = true
	if next.End, err = s.highest(ctx, tx); err != nil || next.End == nil {
		next.Over = true
		return next, err
	}
	switch {
	case s.o.Total != 0:
		next.Total = max(s.o.Total, 0)
	case next.Total == 0:
		next.Total, err = s.estimate(ctx, tx)
	}
	return next, err
}

// know reads the properties of the table, unless they are known.
func (s *scan) know(ctx context.Context, tx pgx.Tx) (err error) {
	if s.t == nil {
		s.t, err = s.describe(ctx, tx)
	}
	return err
}

// look decides how far the rows after Last may be examined.
func (s *scan) look(ctx context.Context, tx pgx.Tx, at *place) (err error) {
	if at.Edge != nil {
		return nil
	}
	if s.o.Window > 0 {
		at.Edge, err = s.edge(ctx, tx, span{from: at.Last, to: at.End}, max(s.o.Window>>at.Shrink, 1))
	}
	if at.Edge == nil {
		at.Edge = at.End
	}
	return err
}

// leap moves to Edge: all rows before it are done.
func (p *place) leap() {
	p.Over = slices.Equal(p.Edge, p.End)
	p.Last, p.Edge = p.Edge, nil
}

// work visits rows and deletes them. It returns how many were handled, and how many of these
// count as done: a trigger may have kept some.
func (s *rowScan) work(ctx context.Context, tx pgx.Tx, keys [][]string) (handled int, done int64, err error) {
	handled = len(keys)
	if handled == 0 {
		return 0, 0, nil
	}
	if s.visit != nil {
		if handled, err = s.visit(ctx, s, tx, keys); err != nil {
			return 0, 0, err
		}
	}
	if s.o.KeepRows && s.visit != nil {
		return handled, int64(handled), nil
	}
	if done, err = s.remove(ctx, tx, keys[:handled]); s.visit != nil {
		done = int64(handled)
	}
	return handled, done, err
}

func full(keys [][]string) bool {
	size := 0
	for _, key := range keys {
		for _, part := range key {
			size += len(part)
		}
	}
	return len(keys) >= maxLeft || size >= maxLeftBytes
}

// revisit processes those of the locked rows that are free now.
func (s *rowScan) revisit(ctx context.Context, tx pgx.Tx, next place, size int) (place, int64, error) {
	if err := s.byKey(ctx, tx); err != nil {
		return next, 0, err
	}
	found, err := s.candidates(ctx, tx, span{keys: next.Left}, len(next.Left), true)
	if err != nil {
		return next, 0, err
	}
	before := len(next.Left)
	var free [][]string
	next.Left = nil
	for _, c := range found { // the others are gone, or do not match any more
		if c.mine {
			free = append(free, c.key)
		} else {
			next.Left = append(next.Left, c.key)
		}
	}
	free, later := free[:min(size, len(free))], free[min(size, len(free)):]
	handled, done, err := s.work(ctx, tx, free)
	if err != nil {
		return next, 0, err
	}
	next.Left = slices.Concat(next.Left, free[handled:], later)
	switch {
	case len(next.Left) < before:
		next.Waited = 0
	case next.Waited >= s.o.Patience:
		return next, 0, fmt.Errorf("%w for %s: %d, one of them is %q", ErrLocked, s.o.Patience, len(next.Left), next.Left[0])
	default:
		next.Waited += lockedPause
	}
	return next, done, nil
}

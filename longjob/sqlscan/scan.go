package sqlscan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

const (
	// maxLeft is how many locked rows a scan remembers. With more, it returns to them before it
	// continues. A review counts the calls for as many rows.
	maxLeft = 1000
	// maxLeftBytes is the same limit for long keys, in bytes.
	maxLeftBytes = 128 << 10
	// lockedPause is the pause at the end of a scan before it checks locked rows again.
	lockedPause = 250 * time.Millisecond

	// statementTime is the target duration of a statement, to which the size of batches adapts.
	statementTime = 100 * time.Millisecond
	// statementLimit ends a statement that takes longer, if the next try can do less.
	statementLimit = 250 * time.Millisecond
	// maxSwept is how many rows ScanDelete deletes in one statement.
	maxSwept = DefaultWindow * DefaultBatch
	// sweepLock is how long a statement that deletes many rows waits for a lock, and so holds
	// the rows that it has deleted, before rows are locked one by one.
	sweepLock = 20 * time.Millisecond
	// quickEnough is how many batches in a row must be quick after one that took too long, or
	// must lock their rows after one that met a lock.
	quickEnough = 10

	// lagEvery is how often Options.Lag is called, lagPatience how long a slice waits for
	// replicas, and lagPause how long the run then waits outside of it.
	lagEvery    = time.Second
	lagPatience = 5 * time.Second
	lagPause    = 15 * time.Second
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
	// Over means that only the rows in Left remain.
	Over bool `json:"over,omitempty"`
	// Waited is how long no row in Left was free.
	Waited time.Duration `json:"waited,omitempty"`
	// Size is the number of rows of a batch, 0 = the initial size. Quick counts the quick
	// batches since one took too long; negative = more are needed.
	Size  int `json:"size,omitempty"`
	Quick int `json:"quick,omitempty"`
}

type scan struct {
	r    *longjob.Runner
	d    dialect
	o    Options
	step string
	most int // rows of a batch
	// chosen means that the program has set Batch.
	chosen bool
	// statement is the target duration of a statement, limit the time after which it is ended.
	statement, limit time.Duration

	pages   int           // done in this slice
	mu      sync.Mutex    // guards slowest while functions may begin transactions
	slowest time.Duration // of the statements since it was last reset to 0
	careful int           // number of batches whose rows are locked one by one
	// sweeping means that this batch is deleted without locking its rows one by one.
	sweeping bool
	asked    time.Time // when Options.Lag was called
}

func newScan(r *longjob.Runner, step string, o Options) *scan {
	s := &scan{r: r, step: step, o: o.defaults(), chosen: o.Batch > 0, statement: statementTime, limit: statementLimit}
	s.most = s.o.Batch
	if o.StatementTimeout > 0 {
		s.limit = o.StatementTimeout
		s.statement = s.limit * 2 / 5
	}
	return s
}

type rowScan struct {
	*scan
	longest time.Duration // of the calls of the function in this transaction
	allowed time.Duration // for a statement of this transaction
	begun   *place        // result of the first try, for later tries of the first batch
	// visit processes the rows of a batch, and returns how many of them are done; nil = only
	// delete the rows.
	visit visit
}

type visit func(ctx context.Context, s *rowScan, tx transaction, keys [][]string) (int, error)

// fetch reads the rows of some keys, in their order.
type fetch[T any] func(ctx context.Context, tx transaction, keys [][]string) ([]T, error)

// each returns a visit that calls fn for each row, with the transaction that is lent to it.
func each[T any](read fetch[T], fn func(ctx context.Context, tx transaction, row T) error) visit {
	return func(ctx context.Context, s *rowScan, tx transaction, keys [][]string) (int, error) {
		all, err := read(ctx, tx, keys)
		if err != nil {
			return 0, err
		}
		if len(all) != len(keys) {
			return 0, fmt.Errorf("%d rows are locked, %d are read", len(keys), len(all))
		}
		if err := tx.lend(ctx); err != nil {
			return 0, err
		}
		handled, err := s.call(tx, len(all), func(i int) error { return fn(ctx, tx, all[i]) })
		if err == nil {
			err = tx.back(ctx)
		}
		return handled, err
	}
}

func (s *scan) rows(ctx context.Context, visit visit) error {
	if visit == nil && !s.chosen {
		s.most = maxSwept
	}
	return s.wrap(longjob.WorkPages(ctx, s.r, s.step, (&rowScan{scan: s, visit: visit}).page))
}

func (s *rowScan) call(tx transaction, n int, fn func(i int) error) (int, error) {
	began := time.Now()
	for i := range n {
		call := time.Now()
		err := fn(i)
		s.longest = max(s.longest, time.Since(call))
		if err != nil {
			return i, s.failed(err, s.allowed)
		}
		if err := tx.intact(); err != nil {
			return i, err
		}
		if time.Since(began) >= s.o.HoldFor {
			return i + 1, nil
		}
	}
	return n, nil
}

func (s *scan) size(at place) int {
	if at.Size == 0 {
		return min(DefaultBatch, s.most)
	}
	return max(1, min(at.Size, s.most))
}

// limits returns the limits of a transaction. A statement that can do less at the next try ends
// early.
func (s *scan) limits(k kind, at place) limits {
	l := limits{kind: k, statement: s.limit, lock: s.o.LockTimeout}
	if s.size(at) == 1 {
		l.statement = s.o.StatementTimeout
	}
	if k == sweeping {
		l.lock = min(l.lock, sweepLock)
	}
	return l
}

func (s *rowScan) page(ctx context.Context, at place) (page longjob.Page[place], err error) {
	if err := s.brake(ctx); err != nil {
		return page, err
	}
	var next place
	var done int64
	err = s.again(ctx, &at, func(ctx context.Context) error {
		s.slowest, s.longest = 0, 0
		k := locking
		if s.sweeping = s.visit == nil && s.careful == 0 && !at.returns(); s.sweeping {
			k = sweeping
		}
		l := s.limits(k, at)
		s.allowed = l.statement
		try := func(ctx context.Context) error {
			return s.stoodStill(s.transaction(ctx, l, func(tx transaction) (err error) {
				next, done, err = s.batch(ctx, tx, at)
				return err
			}), s.longest)
		}
		if s.visit == nil {
			return try(ctx)
		}
		return s.r.WorkUnit(ctx, try) // a unit, so that changes of the state by fn are dropped with its transaction
	})
	if err != nil {
		return page, err
	}
	if next.Waited > at.Waited {
		s.rest(ctx, lockedPause)
	}
	s.pages++
	s.careful = max(s.careful-1, 0)
	s.adapt(&next, done)
	return longjob.Page[place]{Next: next, Done: done, Total: next.Total, Last: next.Over && len(next.Left) == 0}, nil
}

func (s *scan) brake(ctx context.Context) error {
	if s.o.Lag == nil || time.Since(s.asked) < lagEvery {
		return nil
	}
	for began := time.Now(); ; {
		lag, err := s.lag(ctx)
		if err != nil {
			return fmt.Errorf("how far the replicas are behind: %w", err)
		}
		s.asked = time.Now()
		if lag <= s.o.MaxLag {
			return nil
		}
		if time.Since(began) >= lagPatience {
			s.r.Message(fmt.Sprint("the replicas are ", lag.Round(time.Millisecond), " behind"))
			return resqued.Requeue(lagPause)
		}
		s.rest(ctx, min(lag, lagEvery))
		if err := s.r.Continue(ctx); err != nil {
			return err
		}
	}
}

// lag calls Options.Lag. A missing right is final.
func (s *scan) lag(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	lag, err := s.o.Lag(ctx)
	if denied(err) {
		err = refusal{err}
	}
	return lag, err
}

// shrink makes batches smaller after a statement that took too long or met a lock. It returns
// false if that is not possible.
func (s *scan) shrink(at *place) bool {
	size := s.size(*at)
	if size == 1 {
		return false
	}
	at.Size, at.Quick = size/2, -quickEnough
	at.Edge = nil // it is as far away as the larger batch needed
	return true
}

// adapt chooses the size of the next batch by the time that statements took.
func (s *scan) adapt(at *place, done int64) {
	size := s.size(*at)
	switch {
	case s.slowest > s.statement*3/2 && size > 1:
		at.Size = max(1, int(int64(size)*int64(s.statement)/int64(s.slowest)))
		at.Edge = nil
	case s.slowest > s.statement/2 || size == s.most:
	case at.Quick < 0:
		at.Quick++
	case done >= int64(size) || size < min(DefaultBatch, s.most): // or too few rows to judge
		at.Size = min(2*size, s.most)
	}
}

// batch processes one batch in its transaction, and returns where the next one begins.
func (s *rowScan) batch(ctx context.Context, tx transaction, at place) (next place, done int64, err error) {
	if !at.Begun && s.begun != nil {
		// Another try ends where the table ended at the first one, whatever was added since.
		begun := *s.begun
		begun.Size, begun.Quick = at.Size, at.Quick
		at = begun
	}
	if next, err = s.begin(ctx, tx, at); err != nil {
		return next, 0, err
	}
	if !at.Begun {
		begun := next
		s.begun = &begun
	}
	size := s.size(at)
	if next.returns() {
		return s.revisit(ctx, tx, next, size)
	}
	if next.Over {
		return next, 0, nil
	}
	if err := s.look(ctx, tx, &next); err != nil {
		return next, 0, err
	}
	if s.sweeping {
		return s.sweep(ctx, tx, next, size)
	}
	size = min(size, s.o.Batch)
	found, err := tx.candidates(ctx, span{from: next.Last, to: next.Edge}, size, true)
	if err != nil {
		return next, 0, err
	}
	if err := tx.byKey(ctx); err != nil {
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
	if handled < len(free) { // out of time: up to the last row that is done
		last := slices.IndexFunc(found, func(c candidate) bool { return c.mine && slices.Equal(c.key, free[handled-1]) })
		passed = found[:last+1]
	}
	for _, c := range passed {
		if !c.mine {
			next.Left = append(next.Left, c.key)
		}
	}
	if len(passed) < len(found) || len(found) == size {
		last := passed[len(passed)-1].key
		err = next.behind(last)
		next.Last = last
	} else {
		next.leap()
	}
	return next, done, err
}

// sweep deletes a batch in one statement, which fails if a row is locked.
func (s *rowScan) sweep(ctx context.Context, tx transaction, next place, size int) (place, int64, error) {
	sp := span{from: next.Last, to: next.Edge}
	last, err := tx.edge(ctx, sp, size, true)
	if err != nil {
		return next, 0, err
	}
	if last != nil {
		sp.to = last
	}
	done, err := tx.sweep(ctx, sp)
	if err != nil {
		return next, 0, err
	}
	if last != nil && !slices.Equal(last, next.Edge) {
		err = next.behind(last)
		next.Last = last
	} else {
		next.leap()
	}
	return next, done, err
}

func (s *scan) begin(ctx context.Context, tx transaction, at place) (next place, err error) {
	next = at
	next.Left = slices.Clone(at.Left)
	if err := tx.know(ctx); err != nil {
		return next, err
	}
	if at.Begun {
		return next, nil
	}
	next.Begun = true
	if next.End, err = tx.highest(ctx); err != nil || next.End == nil {
		next.Over = true
		return next, err
	}
	switch {
	case s.o.Total != 0:
		next.Total = max(s.o.Total, 0)
	case next.Total == 0:
		next.Total, err = tx.estimate(ctx)
	}
	return next, err
}

func (s *scan) look(ctx context.Context, tx transaction, at *place) (err error) {
	if at.Edge != nil {
		return nil
	}
	if s.o.Window > 0 {
		n := s.o.Window
		if size, usual := s.size(*at), min(DefaultBatch, s.most); size < usual {
			n = max(n*size/usual, 1)
		}
		if at.Edge, err = tx.edge(ctx, span{from: at.Last, to: at.End}, n, false); err == nil && at.Edge != nil {
			err = at.behind(at.Edge)
		}
	}
	if at.Edge == nil {
		at.Edge = at.End
	}
	return err
}

func (p *place) leap() {
	p.Over = slices.Equal(p.Edge, p.End)
	p.Last, p.Edge = p.Edge, nil
}

// behind returns an error if a row found after Last has the key of Last: the scan would loop
// forever.
func (p *place) behind(key []string) error {
	if p.Last == nil || !slices.Equal(key, p.Last) {
		return nil
	}
	return refusal{fmt.Errorf("row %q is found behind itself: the database does not read the key back from its text as it was", key)}
}

// work visits rows and deletes them. It returns how many were handled, and how many of these
// count as done: a trigger may have kept some.
func (s *rowScan) work(ctx context.Context, tx transaction, keys [][]string) (handled int, done int64, err error) {
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
	if done, err = s.delete(ctx, tx, keys[:handled]); s.visit != nil {
		done = int64(handled)
	}
	return handled, done, err
}

const (
	setPoint   = "SAVEPOINT resqued"
	backToIt   = "ROLLBACK TO SAVEPOINT resqued"
	withoutOne = "RELEASE SAVEPOINT resqued"
)

// delete deletes rows. If another table refers to one of them, the error names the first such
// row: halves of the rows are deleted and restored until one row is left.
func (s *scan) delete(ctx context.Context, tx transaction, keys [][]string) (int64, error) {
	if err := tx.exec(ctx, setPoint); err != nil {
		return 0, err
	}
	done, err := tx.remove(ctx, keys)
	if err == nil {
		return done, tx.exec(ctx, withoutOne)
	}
	if !s.d.judge(err).foreign {
		return 0, err
	}
	for len(keys) > 1 {
		if err := tx.exec(ctx, backToIt); err != nil {
			return 0, err
		}
		half := len(keys) / 2
		_, tried := tx.remove(ctx, keys[:half])
		switch {
		case tried == nil:
			keys = keys[half:]
		case s.d.judge(tried).foreign:
			keys, err = keys[:half], tried
		default:
			return 0, tried
		}
	}
	return 0, fmt.Errorf("row %q: %w", keys[0], err)
}

func (p place) returns() bool { return len(p.Left) > 0 && (p.Over || full(p.Left)) }

func full(keys [][]string) bool {
	size := 0
	for _, key := range keys {
		for _, part := range key {
			size += len(part)
		}
	}
	return len(keys) >= maxLeft || size >= maxLeftBytes
}

func (s *rowScan) revisit(ctx context.Context, tx transaction, next place, size int) (place, int64, error) {
	if err := tx.byKey(ctx); err != nil {
		return next, 0, err
	}
	found, err := tx.candidates(ctx, span{keys: next.Left}, len(next.Left), true)
	if err != nil {
		return next, 0, err
	}
	before := len(next.Left)
	var free [][]string
	next.Left = nil
	for _, c := range found { // the others are gone or no longer match
		if c.mine {
			free = append(free, c.key)
		} else {
			next.Left = append(next.Left, c.key)
		}
	}
	size = min(size, s.o.Batch)
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

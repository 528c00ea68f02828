package sqlscan

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

var errNoTurn = errors.New("sqlscan: Tx is for the function of ReviewingSelectLoop or ReviewingSelectBatches, with the context and during the call that it gets")

// Tx returns a transaction for the function of ReviewingSelectLoop or ReviewingSelectBatches
// that is called with ctx. It begins when the first call asks for it. Later calls share it, for
// a tenth of Options.HoldFor plus one call at most. Then it is committed, before the rows are
// reviewed, so many rows cost one commit.
//
// If the function returns an error, the transaction is rolled back. The earlier rows are
// processed again, in another transaction without this row, so only the changes for this row
// are undone. Changes in the transaction happen once, unless the outcome of the commit is
// unknown and the row still matches. Anything else that the function does may happen again for
// all rows that shared the transaction. The function must neither commit the transaction nor
// roll it back, and must not use it after its return. With Options.Parallel each row has a
// transaction of its own.
func Tx(ctx context.Context) (pgx.Tx, error) {
	tx, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	t, ok := tx.(*pgTx)
	if !ok {
		return nil, errNoTurn
	}
	return t.lent(), nil
}

// TxMySQL is Tx for ReviewingSelectLoopMySQL and ReviewingSelectBatchesMySQL.
func TxMySQL(ctx context.Context) (*sql.Tx, error) {
	tx, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	t, ok := tx.(*myTx)
	if !ok {
		return nil, errNoTurn
	}
	return t.tx, nil
}

type turnKey struct{}

type turn struct {
	h    *holder
	over bool // guarded by h.mu
}

// holder has the transaction of successive calls, once one of them has asked for it.
type holder struct {
	s       *scan
	longest time.Duration // of the calls

	mu    sync.Mutex
	tx    transaction
	err   error // why it could not begin
	since time.Time
}

func ask(ctx context.Context) (transaction, error) {
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil {
		return nil, errNoTurn
	}
	h := t.h
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.over:
		return nil, errNoTurn
	case h.tx == nil && h.err == nil:
		h.tx, h.err = h.s.d.open(ctx, limits{kind: shared, statement: h.s.o.StatementTimeout, lock: h.s.o.LockTimeout})
		h.since = time.Now()
	}
	return h.tx, h.err
}

func (h *holder) call(ctx context.Context, fn func(ctx context.Context) error) error {
	t, began := &turn{h: h}, time.Now()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.over = true
		h.longest = max(h.longest, time.Since(began))
	}()
	if err := fn(context.WithValue(ctx, turnKey{}, t)); err != nil {
		return h.s.failed(err, h.s.o.StatementTimeout)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tx != nil {
		return h.tx.intact()
	}
	return nil
}

func (h *holder) asked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tx != nil || h.err != nil
}

// held returns how long the transaction has been open; 0 = there is none.
func (h *holder) held() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tx == nil {
		return 0
	}
	return max(time.Since(h.since), 1)
}

// end commits the transaction if err is nil, or else rolls it back, if there is one.
func (h *holder) end(ctx context.Context, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil && err != nil:
		return h.err // whatever error the function has made of it
	case h.tx == nil:
		return err
	}
	return h.s.stoodStill(h.tx.end(ctx, err), h.longest)
}

// failed returns the error of the program's function. limit is the time limit of its
// statements.
func (s *scan) failed(err error, limit time.Duration) error {
	if s.d.judge(err).tooLong {
		err = fmt.Errorf("a statement of the function may take %s in its transaction (Options.StatementTimeout): %w", limit, err)
	}
	return fnError{err}
}

// stoodStill makes the error of a transaction that the server ended because a function took too
// long final: another try would take as long.
func (s *scan) stoodStill(err error, longest time.Duration) error {
	if _, lost := errors.AsType[lostError](err); lost && longest >= s.o.IdleTimeout {
		return fnError{errors.New(fmt.Sprint("the function took ", longest, ", a transaction may stand still for ", s.o.IdleTimeout, " (IdleTimeout): ", err))}
	}
	return err
}

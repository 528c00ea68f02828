package locker

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"
)

// ErrLockConnectionLost means that the connection that held an advisory lock is lost, and the
// lock with it. The block's context ends with it as its cause, and Advisory returns it.
var ErrLockConnectionLost = errors.New("locker: connection of the advisory lock lost")

// DefaultCheckEvery is the default of AdvisoryOptions.CheckEvery.
const DefaultCheckEvery = 5 * time.Second

const (
	waitSlice = 10 * time.Second
	// ping must have no parameters: such a statement leaves nothing open.
	ping = "SELECT 1"
)

// AdvisoryOptions configure an advisory lock.
type AdvisoryOptions struct {
	// Lockspace separates the keys of applications that share a database; nil = 1, as in the
	// Ruby gem.
	Lockspace *int32
	// Blocking makes Advisory wait until the lock is free, instead of returning false.
	Blocking bool
	// BlockTimeout limits how long Advisory waits, in whole milliseconds; 0 = no limit. It
	// requires Blocking.
	BlockTimeout time.Duration
	// CheckEvery is the time between two checks of the connection, by default
	// DefaultCheckEvery. The checks detect a connection that no longer answers; a closed one is
	// detected at once.
	CheckEvery time.Duration
}

// Advisory runs block while it holds a PostgreSQL advisory lock on key, and reports whether it
// did. It excludes the Ruby gem's Locker::Advisory.
//
// An advisory lock needs no table and is not renewed, but it occupies one connection of the
// pool, in a transaction, while block runs. It ends with that connection, at once: the server
// may give it to another client before this one notices, without a sequence to tell them apart.
// Keys are reduced to 32 bits, so two different keys may exclude each other. Use Run where that
// matters.
func Advisory[D DB](ctx context.Context, db D, key string, o AdvisoryOptions, block func(ctx context.Context) error) (bool, error) {
	d, err := open(db)
	if err != nil {
		return false, err
	}
	if err := checkKey(key); err != nil {
		return false, err
	}
	if o.CheckEvery == 0 {
		o.CheckEvery = DefaultCheckEvery
	}
	if o.CheckEvery < 0 || o.BlockTimeout < 0 {
		return false, fmt.Errorf("locker: CheckEvery %s and BlockTimeout %s must not be negative", o.CheckEvery, o.BlockTimeout)
	}
	if o.BlockTimeout > 0 && !o.Blocking {
		return false, fmt.Errorf("locker: BlockTimeout %s has no effect without Blocking", o.BlockTimeout)
	}
	s, err := d.session(ctx)
	if err != nil {
		return false, fmt.Errorf("locker: advisory lock %q: %w", key, err)
	}
	useless := true
	defer func() { s.close(useless) }()
	got, err := o.obtain(ctx, s, key)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return false, fmt.Errorf("locker: advisory lock %q: %w", key, err)
	}
	if !got {
		useless = false
		return false, nil
	}
	err = o.hold(ctx, s, block)
	if !errors.Is(err, ErrLockConnectionLost) {
		// The lock ends with the transaction, or else with the connection.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseFor)
		defer cancel()
		useless = s.exec(end, "COMMIT") != nil
	}
	return true, err
}

// obtain takes the lock in a transaction, or leaves none behind. It waits in slices: a waiting
// statement keeps vacuum from removing rows that died since it began.
func (o AdvisoryOptions) obtain(ctx context.Context, s session, key string) (bool, error) {
	began := time.Now()
	for {
		slice := waitSlice
		if o.BlockTimeout > 0 {
			slice = min(slice, max(o.BlockTimeout-time.Since(began), time.Millisecond))
		}
		got, err := o.take(ctx, s, key, slice)
		if err != nil {
			return false, err
		}
		if got {
			// ping closes what the last statement left open, which would also hold up vacuum.
			return true, s.exec(ctx, ping)
		}
		if err := s.exec(ctx, "ROLLBACK"); err != nil {
			return false, err
		}
		if !o.Blocking || o.BlockTimeout > 0 && time.Since(began) >= o.BlockTimeout {
			return false, nil
		}
	}
}

func (o AdvisoryOptions) take(ctx context.Context, s session, key string, slice time.Duration) (bool, error) {
	if err := s.exec(ctx, "BEGIN"); err != nil {
		return false, err
	}
	space := int64(1)
	if o.Lockspace != nil {
		space = int64(*o.Lockspace)
	}
	number := int64(int32(crc32.ChecksumIEEE([]byte(key)))) // as the gem does
	// No limit of the session may end the waiting or the block. The set of limits depends on
	// the server's version.
	var limits, nothing string
	wait := fmt.Sprintf("%dms", (slice+time.Millisecond-1)/time.Millisecond)
	_, err := s.row(ctx, `SELECT string_agg(set_config(name, CASE name WHEN 'lock_timeout' THEN $1 ELSE '0' END, true), '') FROM pg_settings
		WHERE name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')`, []any{wait}, &limits)
	if err != nil {
		return false, err
	}
	if !o.Blocking {
		var got bool
		_, err := s.row(ctx, "SELECT pg_try_advisory_xact_lock($1::int, $2::int)", []any{space, number}, &got)
		return got, err
	}
	_, err = s.row(ctx, "SELECT pg_advisory_xact_lock($1::int, $2::int)::text", []any{space, number}, &nothing)
	if sqlState(err) == "55P03" { // lock_timeout
		return false, nil
	}
	return err == nil, err
}

func (o AdvisoryOptions) hold(ctx context.Context, s session, block func(context.Context) error) (err error) {
	work, cancel := context.WithCancelCause(ctx)
	watching, quit := context.WithCancel(context.WithoutCancel(ctx))
	var lost error
	var watcher sync.WaitGroup
	watcher.Go(func() {
		if lost = o.watch(watching, s); lost != nil {
			cancel(lost)
		}
	})
	defer func() {
		quit()
		watcher.Wait()
		cancel(nil)
		switch {
		case err == nil:
			err = lost
		case lost != nil:
			err = errors.Join(err, lost)
		}
	}()
	return block(work)
}

// watch returns why the connection was lost, or nil when ctx ends.
func (o AdvisoryOptions) watch(ctx context.Context, s session) error {
	listens := true
	for {
		quiet, done := context.WithTimeout(ctx, o.CheckEvery)
		var err error
		if listens {
			for err == nil {
				_, err = s.notified(quiet) // of another LISTEN on this connection, if any
			}
			listens = !errors.Is(err, errors.ErrUnsupported)
		}
		if !listens {
			<-quiet.Done()
		}
		waited := quiet.Err() != nil
		done()
		if ctx.Err() != nil {
			return nil
		}
		if !waited {
			return fmt.Errorf("%w: %w", ErrLockConnectionLost, err)
		}
		// Not ended by ctx, which would cost the connection.
		asked, done := context.WithTimeout(context.WithoutCancel(ctx), o.CheckEvery)
		err = s.exec(asked, ping)
		done()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLockConnectionLost, err)
		}
	}
}

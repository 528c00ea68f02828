package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// What a Waiter waits with is BLMOVE of a queue's head onto itself. It changes nothing,
// whatever the length of the list and whoever else uses it, and yet it blocks until the
// list has an element.

// MaxWaits is how many queues a Waiter can wait for at a time.
const MaxWaits = 16

// awaitFor is how long one wait lasts. It is short, because some routers and proxies
// forget a connection on which nothing happens.
const awaitFor = 5 * time.Second

// seenQueues bounds what Waiter.Queues returns.
const seenQueues = 64

var (
	// ErrNoWaiting: this server, or the rights of its user, do not allow waiting for jobs.
	ErrNoWaiting = errors.New("cannot wait for jobs")
	// ErrNoQueue: the key of a queue holds no list.
	ErrNoQueue = errors.New("no queue")
)

// Waiter waits for jobs. It has connections of its own, one for each queue for which it
// waits, because a command that waits cannot be interrupted but by closing its
// connection. It is safe for concurrent use.
type Waiter struct {
	store  *Store
	client redis.UniversalClient
}

// OpenWaiter returns a Waiter, which connects when it is used.
func (s *Store) OpenWaiter() (*Waiter, error) {
	client, err := s.db.Another(MaxWaits)
	if err != nil {
		return nil, err
	}
	return &Waiter{store: s, client: client}, nil
}

// Await returns true when the queue holds something, at once if it does already, and
// false after some seconds without. Close and the end of ctx make it return at once if
// both happen.
func (w *Waiter) Await(ctx context.Context, queue string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitFor+rdb.IOTimeout)
	defer cancel()
	key := w.store.db.QueueKey(queue)
	err := w.client.BLMove(ctx, key, key, "LEFT", "LEFT", awaitFor).Err()
	switch {
	case err == nil:
		return true, nil
	case rdb.IsNil(err):
		return false, nil
	}
	return false, waitError(err)
}

// Queues returns names of queues that exist, not all if there are many.
func (w *Waiter) Queues(ctx context.Context) ([]string, error) {
	names, err := w.store.db.Read.SRandMemberN(ctx, w.store.db.Key(keyQueues), seenQueues).Result()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return names, nil
}

// Close ends all that waits.
func (w *Waiter) Close() error { return w.client.Close() }

// CanWait returns ErrNoWaiting, with the reason, if it is certain that no Waiter works.
func (s *Store) CanWait(ctx context.Context) error {
	key := s.db.Key("resqued:probe")
	err := waitError(s.db.Write.Do(ctx, "BLMOVE", key, key, "LEFT", "LEFT", "0.001").Err())
	if errors.Is(err, ErrNoWaiting) {
		return err
	}
	return nil
}

// waitError says what it means that a wait has failed.
func waitError(err error) error {
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrNoQueue, err)
	case rdb.Refusal(err) == "NOPERM", redis.HasErrorPrefix(err, "unknown command"):
		return fmt.Errorf("%w: %w", ErrNoWaiting, err)
	}
	return fmt.Errorf("wait for jobs: %w", err)
}

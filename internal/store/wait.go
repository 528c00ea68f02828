package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// A Waiter uses BLMOVE of a queue's head onto itself. It never changes the list, whatever other clients do, but
// blocks until the list has an element.

// MaxWaits is how many queues a Waiter can wait for at a time.
const MaxWaits = 16

// awaitFor is the length of one wait. It is short because some routers and proxies forget idle connections.
const awaitFor = 5 * time.Second

// SeenQueues bounds what Waiter.Queues returns.
const SeenQueues = 64

var (
	// ErrNoWaiting: the server, or its user's rights, do not allow waiting for jobs.
	ErrNoWaiting = errors.New("cannot wait for jobs")
	// ErrNoRoom: the server accepts no more connections.
	ErrNoRoom = errors.New("no connection to wait with")
	// ErrNoQueue: the key of a queue is not a list.
	ErrNoQueue = errors.New("no queue")
)

// Waiter waits for jobs. It has separate connections, one for each queue, because only closing its connection
// interrupts a waiting command. It is safe for concurrent use.
type Waiter struct {
	store  *Store
	client rdb.Conn
}

// OpenWaiter returns a Waiter for at most that many concurrent waits. It connects at its first use.
func (s *Store) OpenWaiter(waits int) (*Waiter, error) {
	client, err := s.db.Another(waits)
	if err != nil {
		return nil, err
	}
	return &Waiter{store: s, client: client}, nil
}

// Await returns true if the queue has an element, at once or later, and false after some seconds without. It
// returns at once after Close and the end of ctx together.
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

// Queues returns names of existing queues, at most SeenQueues of them.
func (w *Waiter) Queues(ctx context.Context) ([]string, error) {
	names, err := w.store.db.Read.SRandMemberN(ctx, w.store.db.Key(keyQueues), SeenQueues).Result()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return names, nil
}

// Close ends all waits.
func (w *Waiter) Close() error { return w.client.Close() }

// CanWait returns ErrNoWaiting, with the reason, if a Waiter certainly does not work.
func (s *Store) CanWait(ctx context.Context) error {
	key := s.db.Key("resqued:probe")
	err := waitError(s.db.Write.Do(ctx, "BLMOVE", key, key, "LEFT", "LEFT", "0.001").Err())
	if errors.Is(err, ErrNoWaiting) {
		return err
	}
	return nil
}

// Connections returns how many connections the server accepts, and how many are free. known is false if the
// server does not report them: its user lacks the rights to INFO and CONFIG, or a service hides its limit.
func (s *Store) Connections(ctx context.Context) (most, free int, known bool) {
	server, err := s.db.Server(ctx)
	if err != nil || server.Clients <= 0 || server.ClientLimit <= 0 {
		return 0, 0, false
	}
	return int(server.ClientLimit), int(max(server.ClientLimit-server.Clients, 0)), true
}

func waitError(err error) error {
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrNoQueue, err)
	case rdb.Refusal(err) == "ERR max number of clients":
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	case rdb.Refusal(err) == "NOPERM", redis.HasErrorPrefix(err, "unknown command"):
		return fmt.Errorf("%w: %w", ErrNoWaiting, err)
	}
	return fmt.Errorf("wait for jobs: %w", err)
}

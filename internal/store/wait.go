package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// SeenQueues bounds what Waiter.Queues returns.
const SeenQueues = 64

var (
	// ErrNoWaiting: this server, or the rights of its user, do not allow waiting for jobs.
	ErrNoWaiting = errors.New("cannot wait for jobs")
	// ErrNoRoom: the server takes no more connections.
	ErrNoRoom = errors.New("no connection to wait with")
	// ErrNoQueue: the key of a queue holds no list.
	ErrNoQueue = errors.New("no queue")
)

// Waiter waits for jobs. It has connections of its own, one for each queue for which it
// waits, because a command that waits cannot be interrupted but by closing its
// connection. It is safe for concurrent use.
type Waiter struct {
	store  *Store
	client rdb.Conn
}

// OpenWaiter returns a Waiter for at most so many waits at a time, which connects when it is
// used.
func (s *Store) OpenWaiter(waits int) (*Waiter, error) {
	client, err := s.db.Another(waits)
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
	names, err := w.store.db.Read.SRandMemberN(ctx, w.store.db.Key(keyQueues), SeenQueues).Result()
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

// Connections returns how many connections the server takes all in all, and how many it would still take. It
// reports false if the server does not say: its user has the right to neither INFO nor CONFIG, or a service
// hides its limit.
func (s *Store) Connections(ctx context.Context) (most, free int, known bool) {
	node, err := s.db.Node(ctx)
	if err != nil {
		return 0, 0, false
	}
	info, err := node.Info(ctx, "clients").Result()
	if err != nil {
		return 0, 0, false
	}
	used, err := strconv.Atoi(rdb.InfoField(info, "connected_clients"))
	if err != nil {
		return 0, 0, false
	}
	limit := rdb.InfoField(info, "maxclients") // since Redis 7
	if limit == "" {
		limit = node.ConfigGet(ctx, "maxclients").Val()["maxclients"]
	}
	most, err = strconv.Atoi(limit)
	if err != nil || most <= 0 {
		return 0, 0, false
	}
	return most, max(most-used, 0), true
}

// waitError says what it means that a wait has failed.
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

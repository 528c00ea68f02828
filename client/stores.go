package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/resqued/resqued/internal/selector"
)

// ErrNoStore means that no store has the queue of a job.
var ErrNoStore = errors.New("no store has this queue: add it to the Queues of one")

// Store is one of several stores; see NewStores.
type Store struct {
	// Name is the name of the store.
	Name string
	// Queues are the queues of the store: names, globs and "!" exclusions, "*" = all.
	Queues []string
	// URL, Namespace, CAFile, CertFile, KeyFile and PoolSize are as in Options; empty = the
	// value of the Options that NewStores gets.
	URL, Namespace, CAFile, CertFile, KeyFile string
	PoolSize                                  int
}

// Stores enqueues jobs to several stores, each to the store of its queue. It is safe for
// concurrent use. For all other operations use the Client of one store; see Store and Of.
type Stores struct {
	front   *Client
	stores  []Store
	clients []*Client
}

// NewStores returns a client for several stores. A queue belongs to the first store that has
// it. The options common apply to all stores. Like New it does not connect.
func NewStores(common Options, all ...Store) (*Stores, error) {
	if len(all) == 0 {
		return nil, errors.New("client: no stores")
	}
	if err := selector.CheckSet(common.UniqueQueues); err != nil {
		return nil, fmt.Errorf("client: UniqueQueues: %w", err)
	}
	s := &Stores{stores: slices.Clone(all)}
	for i, one := range all {
		err := selector.CheckSet(one.Queues)
		switch {
		case one.Name == "":
			err = errors.New("has no name")
		case len(one.Queues) == 0 && err == nil:
			err = errors.New("has no queues")
		case slices.ContainsFunc(all[:i], func(other Store) bool { return other.Name == one.Name }):
			err = errors.New("there are two of this name")
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("client: store %q: %w", one.Name, err), s.Close())
		}
		s.stores[i].Queues = slices.Clone(one.Queues)
		o := common
		o.URL, o.Namespace, o.CAFile = cmp.Or(one.URL, o.URL), cmp.Or(one.Namespace, o.Namespace), cmp.Or(one.CAFile, o.CAFile)
		o.PoolSize = cmp.Or(one.PoolSize, o.PoolSize)
		if one.CertFile+one.KeyFile != "" {
			o.CertFile, o.KeyFile = one.CertFile, one.KeyFile
		}
		c, err := New(o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("store %q: %w", one.Name, err), s.Close())
		}
		s.clients = append(s.clients, c)
	}
	s.front = &Client{opts: common, stores: s}
	return s, nil
}

// Close closes the connections of all stores.
func (s *Stores) Close() error {
	var errs []error
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Enqueue is Client.Enqueue for the store of the job's queue. Without one it returns
// ErrNoStore, for which NotEnqueued is true.
func (s *Stores) Enqueue(ctx context.Context, class string, args any, opts ...Option) (Result, error) {
	return s.front.Enqueue(ctx, class, args, opts...)
}

// EnqueueRaw is Client.EnqueueRaw for the store of the job's queue.
func (s *Stores) EnqueueRaw(ctx context.Context, payload []byte, opts ...Option) (Result, error) {
	return s.front.EnqueueRaw(ctx, payload, opts...)
}

// EnqueueMany is Client.EnqueueMany for jobs of several stores. The stores are used one after
// the other; one that cannot be reached does not fail the jobs of the others.
func (s *Stores) EnqueueMany(ctx context.Context, jobs []EnqueueParams) ([]EnqueueResult, error) {
	return s.front.EnqueueMany(ctx, jobs)
}

// StoreOf returns the name of the store that a queue belongs to, or ErrNoStore.
func (s *Stores) StoreOf(queue string) (string, error) {
	i, err := s.index(queue)
	if err != nil {
		return "", err
	}
	return s.stores[i].Name, nil
}

// Of returns the client of the store that a queue belongs to, or ErrNoStore.
func (s *Stores) Of(queue string) (*Client, error) {
	i, err := s.index(queue)
	if err != nil {
		return nil, err
	}
	return s.clients[i], nil
}

// Store returns the client of a store, or nil if no store has that name.
func (s *Stores) Store(name string) *Client {
	if i := slices.Index(s.Names(), name); i >= 0 {
		return s.clients[i]
	}
	return nil
}

// Names returns the names of the stores, in the order given to NewStores.
func (s *Stores) Names() []string {
	names := make([]string, len(s.stores))
	for i, one := range s.stores {
		names[i] = one.Name
	}
	return names
}

func (s *Stores) index(queue string) (int, error) {
	for i, one := range s.stores {
		if selector.MatchAny(one.Queues, queue) {
			return i, nil
		}
	}
	return 0, &refusedError{fmt.Errorf("queue %q: %w", queue, ErrNoStore)}
}

// home returns the client whose Redis has a queue: c itself, unless there are several stores.
func (c *Client) home(queue string) (*Client, error) {
	if c.stores == nil {
		return c, nil
	}
	return c.stores.Of(queue)
}

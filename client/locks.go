package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Locked reports whether a job of the class with these arguments holds its class lock. args are
// as for Enqueue. If another producer pushed other JSON for them, such as zeros for optional
// arguments, pass that as resqued.Args. The class must have a Lock in Options.Handlers.
func (c *Client) Locked(ctx context.Context, class string, args any) (bool, error) {
	_, state, err := c.stateOf(ctx, class, args)
	return state.Holder != "", err
}

// Enqueued reports whether a loner job of the class with these arguments waits. args are as for
// Enqueue. The class must have a Lock in Options.Handlers.
func (c *Client) Enqueued(ctx context.Context, class string, args any) (bool, error) {
	_, state, err := c.stateOf(ctx, class, args)
	return state.Marked, err
}

// LonerLocked reports whether a job of the class with these arguments runs or, if the class is
// a loner, waits: whether Enqueue would refuse it. args are as for Enqueue. The class must have
// a Lock in Options.Handlers.
func (c *Client) LonerLocked(ctx context.Context, class string, args any) (bool, error) {
	l, state, err := c.stateOf(ctx, class, args)
	return err == nil && (state.Holder != "" || l.class.Lock.Loner && state.Marked), err
}

// RefreshLock restarts the time limit of the class lock for these arguments: the job that holds
// it may hold it for another Timeout from now on. RefreshLock returns resqued.ErrNotLocked if
// no job holds the lock. For a lock without a time limit it only checks that a job holds it.
// args are as for Enqueue. The class must have a Lock in Options.Handlers.
func (c *Client) RefreshLock(ctx context.Context, class string, args any) error {
	l, err := c.lockOf(class, args)
	if err != nil {
		return err
	}
	timeout, err := wire.ClassLockTimeout(l.class.Lock, l.args)
	if err != nil {
		return l.failed(err)
	}
	held, err := l.store.ExtendLock(ctx, l.key, timeout, l.elsewhere)
	switch {
	case err != nil:
		return l.failed(err)
	case !held:
		return l.failed(resqued.ErrNotLocked)
	}
	return nil
}

type classLock struct {
	class     *resqued.Class
	args      resqued.Args
	key       string
	store     *store.Store
	elsewhere bool
}

func (c *Client) stateOf(ctx context.Context, class string, args any) (l *classLock, state store.LockState, err error) {
	if l, err = c.lockOf(class, args); err != nil {
		return nil, state, err
	}
	if state, err = l.store.LockState(ctx, l.key, l.elsewhere); err != nil {
		err = l.failed(err)
	}
	return l, state, err
}

func (l *classLock) failed(err error) error {
	return fmt.Errorf("class lock %s: %w", wire.Printable(l.key, 300), err)
}

func (c *Client) lockOf(name string, args any) (*classLock, error) {
	class := c.class(name)
	switch {
	case c.opts.Handlers == nil:
		return nil, fmt.Errorf("class %q: the client knows no locks: pass the handlers to client.New", name)
	case class == nil:
		return nil, fmt.Errorf("class %q is not among the client's handlers, so its lock is not known", name)
	case class.Lock == nil:
		return nil, fmt.Errorf("class %q has no Lock", name)
	}
	list, err := wire.Args(args)
	if err != nil {
		return nil, err
	}
	return c.classLock(class, name, list)
}

func (c *Client) class(name string) *resqued.Class {
	if c.opts.Handlers == nil {
		return nil
	}
	class, _ := c.opts.Handlers.Lookup(name)
	return class
}

// registered returns the class and arguments of a job that its registered handler sees: the
// wrapper's if only the wrapper of an Active Job is registered.
func (c *Client) registered(e wire.Envelope) (class string, args resqued.Args) {
	if wrapper := e.Wrapper(); wrapper != "" && c.class(e.Class) == nil && c.class(wrapper) != nil {
		return e.As(wrapper)
	}
	return e.Class, e.Args
}

func (c *Client) classLock(class *resqued.Class, name string, args resqued.Args) (*classLock, error) {
	style := wire.RubyUpTo33
	if c.opts.Ruby34 {
		style = wire.Ruby34
	}
	key, err := wire.ClassLockKey(class, name, args, style)
	if err != nil {
		return nil, err
	}
	if class.Lock.Store == resqued.StorePostgres {
		return nil, fmt.Errorf("lock of class %q: it is kept in PostgreSQL, which the client does not ask; package locker does", name)
	}
	l := &classLock{class: class, args: args, key: key, store: c.store}
	if url := class.Lock.Redis; url != "" && url != c.opts.URL {
		l.elsewhere = true
		if l.store, err = c.elsewhere.get(url, c.opts); err != nil {
			return nil, fmt.Errorf("lock of class %q: %w", name, err)
		}
	}
	return l, nil
}

func (c *Client) pushLoner(ctx context.Context, class *resqued.Class, job *Job, payload []byte) (Result, error) {
	l, err := c.classLock(class, job.Class, job.Args)
	if err != nil {
		return Result{}, &refusedError{err}
	}
	timeout, err := wire.ClassLockTimeout(class.Lock, job.Args)
	if err != nil {
		return Result{}, &refusedError{err}
	}
	reply, err := l.store.EnqueueLoner(ctx, store.LonerRequest{
		Key: l.key, Timeout: timeout, Queue: job.Queue, Payload: payload, Elsewhere: l.elsewhere,
		Unique: c.unique(job.Queue), Strict: c.opts.UniqueQueuesStrict,
	})
	if err != nil {
		return Result{}, public(err)
	}
	res := Result{Queue: job.Queue, Position: reply.Length, Status: StatusEnqueued}
	switch reply.Status {
	case store.LonerPushed:
		if l.elsewhere {
			return c.pushMarked(ctx, l, job.Queue, payload)
		}
		return res, nil
	case store.LonerLocked:
		res.Status = StatusLocked
	default:
		res.Status = StatusDuplicate
	}
	if class.Lock.OnLonerEnqueueFailed != nil {
		if err := class.Lock.OnLonerEnqueueFailed(ctx, job.Args); err != nil {
			return Result{}, &refusedError{err}
		}
	}
	return res, nil
}

// pushMarked pushes a job whose marker is in another Redis. If the job certainly was not
// pushed, the marker is removed.
func (c *Client) pushMarked(ctx context.Context, l *classLock, queue string, payload []byte) (Result, error) {
	res, err := c.pushTo(ctx, queue, payload)
	if err == nil && res.Status == StatusEnqueued || err != nil && !NotEnqueued(err) {
		return res, err
	}
	if _, unmark := l.store.Unmark(context.WithoutCancel(ctx), l.key, queue, payload); unmark != nil {
		err = errors.Join(err, l.failed(unmark))
	}
	return res, err
}

// stores has the stores of classes that keep their locks in another Redis, by URL.
type stores struct {
	mu   sync.Mutex
	open map[string]*store.Store
}

func (s *stores) get(url string, o Options) (*store.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.open[url]; known != nil {
		return known, nil
	}
	if o.URL = url; !rdb.OverTLS(url) {
		o.CAFile, o.CertFile, o.KeyFile = "", "", ""
	}
	opened, err := open(o)
	if err != nil {
		return nil, err
	}
	if s.open == nil {
		s.open = map[string]*store.Store{}
	}
	s.open[url] = opened
	return opened, nil
}

func (s *stores) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, one := range s.open {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Package client enqueues jobs for resqued, and for any other worker of Resque
// queues: what it pushes is what Ruby's Resque pushes. It links neither a
// command line nor a logger nor a configuration library.
//
//	c, err := client.New(client.Options{URL: "redis://127.0.0.1:6379"})
//	...
//	res, err := c.Enqueue(ctx, "Mail", Mail{User: 42, Subject: "hi"}, client.Queue("mail"))
package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Defaults of Options.
const (
	DefaultURL       = "redis://127.0.0.1:6379/0"
	DefaultNamespace = "resque"
)

// What became of a job: Result.Status.
const (
	// Enqueued: it was pushed.
	Enqueued = "enqueued"
	// Duplicate: its queue is unique, and an equal job waits there; or its class is a
	// loner, and a job with the same lock waits. It was not pushed.
	Duplicate = "duplicate"
	// Locked: its class is a loner, and a job with the same lock runs. It was not
	// pushed.
	Locked = "locked"
	// Delayed: it waits for its time (In, At) and is pushed then.
	Delayed = "delayed"
)

// ErrNoQueue: neither the call nor the class names a queue.
var ErrNoQueue = errors.New("no queue: pass client.Queue, or register the class with resqued.Queue and pass the handlers to client.New")

// ErrOutOfStep: the keys of a unique queue do not match, and UniqueQueuesStrict is set.
// Nothing was pushed. "resqued locks repair QUEUE" mends them.
var ErrOutOfStep = store.ErrOutOfStep

// Options say where jobs go. The zero value is a Redis on this machine.
type Options struct {
	// URL of the Redis: redis://, rediss:// (TLS), unix://, redis-sentinel:// or
	// redis-cluster://. Empty = DefaultURL.
	URL string
	// Namespace stands before every key; empty = DefaultNamespace.
	Namespace string
	// CAFile is a file of certificates (PEM) to trust for TLS instead of the
	// system's; empty = the system's.
	CAFile string
	// Handlers, if given, tell the queues of classes (resqued.Queue) and their locks
	// (resqued.Lock).
	Handlers *resqued.Handlers
	// Ruby34 writes hashes in the keys of class locks as Ruby prints them from 3.4
	// on. Set it where the workers have job_lock_key: ruby34.
	Ruby34 bool
	// UniqueQueues are the queues that hold an equal payload once: names, globs and
	// "!" exclusions, "*" = all. Every program that pushes to such a queue or takes
	// from it has to know that: it is unique_queues of the daemon's configuration.
	UniqueQueues []string
	// UniqueQueuesStrict refuses to push to a unique queue whose keys do not match;
	// else they are mended by the daemon.
	UniqueQueuesStrict bool
	// PoolSize is the most connections to Redis; 0 = 4.
	PoolSize int
	// Hooks are called around every push, in order.
	Hooks []Hooks
}

// Hooks see every job that is enqueued; nil ones are skipped.
type Hooks struct {
	// BeforeEnqueue runs before the push. Its error is the result of the call,
	// and nothing is pushed.
	BeforeEnqueue func(ctx context.Context, job *Job) error
	// AfterEnqueue runs after a push that succeeded, or when a job waits for its time.
	AfterEnqueue func(ctx context.Context, job *Job, res Result)
}

// Job is what is about to be pushed. A hook may change Queue, nothing else.
type Job struct {
	Class   string
	Queue   string
	Args    resqued.Args
	Payload []byte
	// In is how long the job waits before it is pushed, At the time from which on it
	// may be; both zero = it is pushed now.
	In time.Duration
	At time.Time
}

func (j *Job) later() bool { return j.In > 0 || !j.At.IsZero() }

// Result tells what became of a call.
type Result struct {
	// Queue is where the job was put, or would have been; Position its place there,
	// 1 = next, and 0 if it was not pushed.
	Queue    string
	Position int64
	// Status is Enqueued, Duplicate, Locked or Delayed.
	Status string
	// Due is when a Delayed job is pushed: not before the time that was asked for, and
	// less than a second after it.
	Due time.Time
}

// Option changes one call of Enqueue or EnqueueRaw.
type Option func(*Job)

// Queue sets the queue, whatever the class says.
func Queue(name string) Option { return func(j *Job) { j.Queue = name } }

// In has the job wait so long before it is pushed, by the clock of Redis. With 0 or less
// it is pushed now.
func In(d time.Duration) Option { return func(j *Job) { j.In, j.At = max(d, 0), time.Time{} } }

// At has the job wait until a time. One that has come is now.
func At(t time.Time) Option { return func(j *Job) { j.In, j.At = 0, t } }

// Client pushes jobs. It is safe for concurrent use. Close it when done.
type Client struct {
	store     *store.Store
	elsewhere stores
	opts      Options
}

// New returns a client. It connects at the first call, so that it only fails on
// options that cannot work.
func New(o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if err := selector.CheckSet(o.UniqueQueues); err != nil {
		return nil, fmt.Errorf("client: UniqueQueues: %w", err)
	}
	ca, err := rdb.ReadCA(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("client: CAFile: %w", err)
	}
	s, err := store.Open(store.Options{
		URL: o.URL, Namespace: o.Namespace, CA: ca, PoolSize: o.PoolSize, ClientName: "resqued-client",
	})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{store: s, opts: o}, nil
}

// Close ends the client's connections.
func (c *Client) Close() error { return errors.Join(c.store.Close(), c.elsewhere.close()) }

// Enqueue pushes a job: {"class":class,"args":[…]}.
//
// Args may be a struct, whose exported fields become the arguments in their
// order (the counterpart of resqued.Handle), a slice with one element for each
// argument, resqued.Args to be pushed byte by byte, nil for no arguments, or any
// other value as the only argument. To pass a list as one argument, put it into
// a slice of its own: []any{list}.
//
// A job of a loner class is not pushed while one with the same class lock waits or
// runs, and none to a unique queue in which an equal one waits: that is no error, the
// result's Status tells.
//
// After an error the job may or may not have been pushed; NotEnqueued tells when
// it certainly was not.
func (c *Client) Enqueue(ctx context.Context, class string, args any, opts ...Option) (Result, error) {
	payload, err := wire.EncodePayload(class, wire.ArgList(args))
	if err != nil {
		return Result{}, fmt.Errorf("enqueue: %w", &refusedError{err})
	}
	return c.EnqueueRaw(ctx, payload, opts...)
}

// EnqueueRaw pushes a payload as it is, with whatever other keys it holds. One
// that no worker could read is refused.
func (c *Client) EnqueueRaw(ctx context.Context, payload []byte, opts ...Option) (Result, error) {
	job, err := c.job(payload, opts...)
	if err != nil {
		return Result{}, fmt.Errorf("enqueue: %w", err)
	}
	// The bytes that were checked are the bytes that are pushed.
	payload = slices.Clone(payload)
	res, err := c.push(ctx, job, payload)
	if err != nil {
		return Result{}, fmt.Errorf("enqueue %q: %w", job.Class, err)
	}
	return res, nil
}

func (c *Client) job(payload []byte, opts ...Option) (*Job, error) {
	envelope, err := wire.Parse(payload, 0)
	if err != nil {
		return nil, err
	}
	job := &Job{Class: envelope.Class, Args: envelope.Args, Payload: payload}
	if class := c.class(job.Class); class != nil {
		job.Queue = class.Queue
	}
	for _, opt := range opts {
		opt(job)
	}
	return job, nil
}

func (c *Client) push(ctx context.Context, job *Job, payload []byte) (Result, error) {
	if err := c.before(ctx, job); err != nil {
		return Result{}, err
	}
	res, err := c.put(ctx, job, payload)
	if err == nil {
		c.after(ctx, job, res)
	}
	return res, err
}

// before calls the hooks and refuses what can go to no queue.
func (c *Client) before(ctx context.Context, job *Job) error {
	for _, h := range c.opts.Hooks {
		if h.BeforeEnqueue == nil {
			continue
		}
		if err := h.BeforeEnqueue(ctx, job); err != nil {
			return &refusedError{err}
		}
	}
	switch {
	case job.Queue == "":
		return ErrNoQueue
	case !utf8.ValidString(job.Queue):
		return &refusedError{fmt.Errorf("queue %q is not valid UTF-8", job.Queue)}
	case wire.CheckQueue(job.Queue) != nil:
		return &refusedError{wire.CheckQueue(job.Queue)}
	case job.At.Year() > 9999:
		return &refusedError{fmt.Errorf("At: %s is after the year 9999", job.At)}
	case job.later() && c.loner(job.Class) != nil:
		return c.now(ctx, job)
	}
	return nil
}

// now has a job of a loner class be enqueued now if its time has come.
func (c *Client) now(ctx context.Context, job *Job) error {
	if job.In > 0 {
		return ErrLonerLater
	}
	now, err := c.store.Now(ctx)
	switch {
	case err != nil:
		return &refusedError{err}
	case job.At.After(now):
		return ErrLonerLater
	}
	job.At = time.Time{}
	return nil
}

// after calls the hooks of a job that was pushed, or that waits for its time.
func (c *Client) after(ctx context.Context, job *Job, res Result) {
	if res.Status != Enqueued && res.Status != Delayed {
		return
	}
	for _, h := range c.opts.Hooks {
		if h.AfterEnqueue != nil {
			h.AfterEnqueue(ctx, job, res)
		}
	}
}

func (c *Client) put(ctx context.Context, job *Job, payload []byte) (Result, error) {
	if job.later() {
		return c.delay(ctx, job, payload)
	}
	if class := c.loner(job.Class); class != nil {
		return c.pushLoner(ctx, class, job, payload)
	}
	return c.pushTo(ctx, job.Queue, payload)
}

// loner returns a class that is one, else nil.
func (c *Client) loner(name string) *resqued.Class {
	if class := c.class(name); class != nil && class.Lock != nil && class.Lock.Loner {
		return class
	}
	return nil
}

// pushTo pushes a payload, unless its queue is unique and an equal one waits there.
func (c *Client) pushTo(ctx context.Context, queue string, payload []byte) (Result, error) {
	if !c.unique(queue) {
		length, err := c.store.Push(ctx, queue, payload)
		return Result{Queue: queue, Position: length, Status: Enqueued}, err
	}
	reply, err := c.store.PushUnique(ctx, queue, c.opts.UniqueQueuesStrict, payload)
	switch {
	case err != nil:
		return Result{}, err
	case !reply.Pushed[0]:
		return Result{Queue: queue, Status: Duplicate}, nil
	}
	return Result{Queue: queue, Position: reply.Length, Status: Enqueued}, nil
}

func (c *Client) unique(queue string) bool { return selector.MatchAny(c.opts.UniqueQueues, queue) }

// NotEnqueued reports whether err, from Enqueue or EnqueueRaw, proves that
// nothing was pushed, so that the call may be repeated without a second job.
func NotEnqueued(err error) bool {
	var invalid *wire.InvalidError
	var refused *refusedError
	return errors.Is(err, ErrNoQueue) || errors.Is(err, ErrLonerLater) || errors.Is(err, ErrOutOfStep) || errors.As(err, &invalid) || errors.As(err, &refused) || rdb.Unexecuted(err)
}

// Unreachable reports whether err says that no Redis answered.
func Unreachable(err error) bool { return rdb.Unreachable(err) }

// refusedError marks what was refused before anything was sent.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

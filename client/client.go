// Package client enqueues jobs for resqued and for any other worker of Resque queues: it pushes
// the same payloads as Ruby's Resque. It also removes jobs from queues, pauses queues, retries
// failed jobs and queries class locks. It links no command line, no logger and no configuration
// library.
//
// If Redis cannot be reached, calls return an error. go-redis also prints a line to standard
// error; see SetRedisLog.
//
//	c, err := client.New(client.Options{URL: "redis://127.0.0.1:6379"})
//	...
//	res, err := c.Enqueue(ctx, "Mail", Mail{User: 42, Subject: "hi"}, client.Queue("mail"))
//
// If Redis does not answer, Enqueue returns when its context ends. Other calls return at a
// deadline, and up to five seconds after a cancellation. The error wraps the context's.
package client

import (
	"cmp"
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

// Status says what happened to a job that was to be enqueued.
type Status string

// The statuses.
const (
	// StatusEnqueued means that the job was pushed.
	StatusEnqueued Status = "enqueued"
	// StatusDuplicate means that the job was not pushed. Either its queue is unique and an equal
	// job waits there, or its class is a loner and a job with the same class lock waits.
	StatusDuplicate Status = "duplicate"
	// StatusLocked means that the job was not pushed, because its class is a loner and a job
	// with the same class lock runs.
	StatusLocked Status = "locked"
	// StatusDelayed means that the job waits for its time and is then pushed; see In and At.
	StatusDelayed Status = "delayed"
)

// ErrNoQueue means that neither the call nor the class of the job names a queue.
var ErrNoQueue = errors.New("no queue: pass client.Queue, or register the class with resqued.Queue and pass the handlers to client.New")

// ErrOutOfStep means that the keys of a unique queue do not match each other and
// Options.UniqueQueuesStrict is set. Nothing was pushed. The command "resqued locks repair
// QUEUE" repairs the keys.
var ErrOutOfStep = errors.New("its keys are out of step")

// outOfStepError makes an error of the store match ErrOutOfStep.
type outOfStepError struct{ error }

func (e *outOfStepError) Unwrap() error        { return e.error }
func (e *outOfStepError) Is(target error) bool { return target == ErrOutOfStep }

func public(err error) error {
	if errors.Is(err, store.ErrOutOfStep) {
		return &outOfStepError{err}
	}
	return err
}

// Options configure a Client. The zero value means a Redis on this machine.
type Options struct {
	// URL is the URL of Redis: redis://, rediss:// (TLS), unix://, redis-sentinel:// or
	// redis-cluster://; empty = DefaultURL.
	URL string
	// Namespace is the prefix of every key; empty = DefaultNamespace.
	Namespace string
	// CAFile is a PEM file with the certificates to trust for TLS; empty = the system's.
	CAFile string
	// CertFile and KeyFile are PEM files with the certificate that is presented to Redis, and
	// its key; empty = none. They are read once.
	CertFile, KeyFile string
	// Handlers, if not nil, provides the queues (resqued.Queue) and locks (resqued.Lock) of the
	// classes.
	Handlers *resqued.Handlers
	// Ruby34 writes hashes in the keys of class locks as Ruby 3.4 and later print them. Set it
	// if the workers have job_lock_key: ruby34.
	Ruby34 bool
	// UniqueQueues has the queues in which no two equal payloads wait: names, globs and "!"
	// exclusions, "*" = all. Every program that pushes to such a queue or takes jobs from it
	// must have the same setting, which is unique_queues in the daemon's configuration.
	UniqueQueues []string
	// UniqueQueuesStrict makes a push to a unique queue fail with ErrOutOfStep if the queue's
	// keys do not match. Otherwise the daemon repairs them.
	UniqueQueuesStrict bool
	// PoolSize is the maximum number of connections to Redis; 0 = 4.
	PoolSize int
	// Hooks are the sets of hooks that are called for every job, in order.
	Hooks []Hooks
}

// Hooks are functions that are called for every job that is enqueued. A nil function is
// skipped.
type Hooks struct {
	// BeforeEnqueue is called before the push. If it returns an error, the job is not pushed,
	// and the call returns that error.
	BeforeEnqueue func(ctx context.Context, job *Job) error
	// AfterEnqueue is called after the job was pushed or delayed.
	AfterEnqueue func(ctx context.Context, job *Job, res Result)
}

// Job is a job to be enqueued, as Hooks see it. A hook may change only Queue.
type Job struct {
	// Class and Args are the payload's, or those of the Active Job in it. They are the
	// wrapper's if only the wrapper's class is among the handlers.
	Class string
	// Queue is the queue to which the job goes.
	Queue string
	Args  resqued.Args
	// Payload holds the bytes that are pushed.
	Payload []byte
	// In is how long the job waits before it is pushed, and At is the time at which it is
	// pushed. If both are zero, it is pushed now.
	In time.Duration
	At time.Time
}

func (j *Job) later() bool { return j.In > 0 || !j.At.IsZero() }

// Result says what happened to a job that was to be enqueued.
type Result struct {
	// Queue is the queue to which the job was pushed, or would have been.
	Queue string
	// Position is the place of the job in its queue: 1 = next, 0 = not pushed.
	Position int64
	// Status says whether the job was pushed, and if not, why.
	Status Status
	// Due is the time at which a delayed job is pushed: never before the requested time, and less
	// than a second after it. It is zero unless Status is StatusDelayed.
	Due time.Time
}

// Option changes one call of Enqueue or EnqueueRaw: Queue, In or At.
type Option interface{ apply(j *Job) }

type optionFunc func(j *Job)

func (f optionFunc) apply(j *Job) { f(j) }

// Queue sets the queue of the job, instead of its class's.
func Queue(name string) Option { return optionFunc(func(j *Job) { j.Queue = name }) }

// In delays the job: it is pushed after the duration d, by the clock of Redis. If d is 0 or
// less, it is pushed now.
func In(d time.Duration) Option {
	return optionFunc(func(j *Job) { j.In, j.At = max(d, 0), time.Time{} })
}

// At delays the job: it is pushed at the time t, by the clock of Redis. If t has passed, it is
// pushed now.
func At(t time.Time) Option { return optionFunc(func(j *Job) { j.In, j.At = 0, t }) }

// Client is a connection to the queues, made by New. It is safe for concurrent use. Call Close
// when it is no longer needed.
type Client struct {
	store     *store.Store
	elsewhere stores
	opts      Options
	// stores, if not nil, has the clients that push the jobs: this one has no Redis.
	stores *Stores
}

// New returns a client. It does not connect, and returns an error only if the options are
// invalid.
func New(o Options) (*Client, error) {
	o.URL, o.Namespace = cmp.Or(o.URL, DefaultURL), cmp.Or(o.Namespace, DefaultNamespace)
	if err := selector.CheckSet(o.UniqueQueues); err != nil {
		return nil, fmt.Errorf("client: UniqueQueues: %w", err)
	}
	s, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{store: s, opts: o}, nil
}

// SetRedisLog passes what go-redis prints to log instead of standard error; with nil it prints
// nothing. Like redis.SetLogger of go-redis it applies to the whole program, including clients
// of go-redis that the program opens itself. No Client calls it.
func SetRedisLog(log func(text string)) {
	if log == nil {
		log = func(string) {}
	}
	rdb.SetLogger(log)
}

func open(o Options) (*store.Store, error) {
	ca, err := rdb.ReadCA(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("CAFile: %w", err)
	}
	cert, err := rdb.ReadCert(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("CertFile and KeyFile: %w", err)
	}
	return store.Open(store.Options{
		URL: o.URL, Namespace: o.Namespace, CA: ca, Cert: cert, PoolSize: o.PoolSize, ClientName: "resqued-client",
	})
}

// Close closes the client's connections.
func (c *Client) Close() error { return errors.Join(c.store.Close(), c.elsewhere.close()) }

// Enqueue pushes a job with the payload {"class":class,"args":[…]}.
//
// args may be:
//   - a struct, whose exported fields become the arguments in order, as the counterpart of
//     resqued.Handle; trailing fields that are optional and zero are left out
//   - a slice with one element for each argument
//   - resqued.Args, which are pushed unchanged
//   - nil for no arguments
//   - any other value, as the only argument
//
// To pass a list as one argument, put it into another slice: []any{list}.
//
// A job of a loner class is not pushed while a job with the same class lock waits or runs. A
// job is not pushed to a unique queue in which an equal job waits. Neither is an error; see the
// Status of the result.
//
// Jobs that several goroutines push at the same time share a call to Redis where possible.
//
// After an error the job may have been pushed. NotEnqueued reports whether it certainly was
// not, for example because ctx ended while the job waited for a connection.
func (c *Client) Enqueue(ctx context.Context, class string, args any, opts ...Option) (Result, error) {
	payload, err := wire.EncodePayload(class, wire.ArgList(args))
	if err != nil {
		return Result{}, fmt.Errorf("enqueue: %w", &refusedError{err})
	}
	return c.EnqueueRaw(ctx, payload, opts...)
}

// EnqueueRaw pushes a payload unchanged, including keys other than "class" and "args". It
// returns an error if no worker could read the payload. Otherwise it is like Enqueue.
func (c *Client) EnqueueRaw(ctx context.Context, payload []byte, opts ...Option) (Result, error) {
	job, err := c.job(payload, opts...)
	if err != nil {
		return Result{}, fmt.Errorf("enqueue: %w", err)
	}
	// A hook may change job.Payload; the bytes that were checked are pushed.
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
	job := &Job{Payload: payload}
	job.Class, job.Args = c.registered(envelope)
	if class := c.class(job.Class); class != nil {
		job.Queue = class.Queue
	}
	for _, opt := range opts {
		opt.apply(job)
	}
	return job, nil
}

func (c *Client) push(ctx context.Context, job *Job, payload []byte) (Result, error) {
	if err := c.before(ctx, job); err != nil {
		return Result{}, err
	}
	home, err := c.home(job.Queue)
	if err != nil {
		return Result{}, err
	}
	res, err := home.put(ctx, job, payload)
	if err == nil {
		c.after(ctx, job, res)
	}
	return res, err
}

// before calls the hooks and refuses jobs that cannot be pushed.
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
		home, err := c.home(job.Queue)
		if err != nil {
			return err
		}
		return home.now(ctx, job)
	}
	return nil
}

// now lets a job of a loner class be enqueued if its time has come.
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

func (c *Client) after(ctx context.Context, job *Job, res Result) {
	if res.Status != StatusEnqueued && res.Status != StatusDelayed {
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

func (c *Client) loner(name string) *resqued.Class {
	if class := c.class(name); class != nil && class.Lock != nil && class.Lock.Loner {
		return class
	}
	return nil
}

func (c *Client) pushTo(ctx context.Context, queue string, payload []byte) (Result, error) {
	if !c.unique(queue) {
		length, err := c.store.PushTogether(ctx, queue, payload)
		return Result{Queue: queue, Position: length, Status: StatusEnqueued}, err
	}
	reply, err := c.store.PushUnique(ctx, queue, c.opts.UniqueQueuesStrict, payload)
	if err != nil {
		return Result{}, public(err)
	}
	return pushed(queue, reply.Length, reply.Pushed[0]), nil
}

// pushed is the result of a push to a queue that may refuse an equal job.
func pushed(queue string, position int64, pushed bool) Result {
	if !pushed {
		return Result{Queue: queue, Status: StatusDuplicate}
	}
	return Result{Queue: queue, Position: position, Status: StatusEnqueued}
}

func (c *Client) unique(queue string) bool { return selector.MatchAny(c.opts.UniqueQueues, queue) }

// NotEnqueued reports whether err proves that the job was not pushed, so repeating the call
// cannot enqueue it twice. err must come from Enqueue or EnqueueRaw, or from one result of
// EnqueueMany.
func NotEnqueued(err error) bool {
	var invalid *wire.InvalidError
	var refused *refusedError
	return errors.Is(err, ErrNoQueue) || errors.Is(err, ErrLonerLater) || errors.Is(err, ErrOutOfStep) || errors.As(err, &invalid) || errors.As(err, &refused) || rdb.Unexecuted(err)
}

// Unreachable reports whether err means that Redis could not be reached.
func Unreachable(err error) bool { return rdb.Unreachable(err) }

// refusedError marks an error that occurred before anything was sent.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

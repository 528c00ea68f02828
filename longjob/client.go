package longjob

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/wire"
)

// Errors of a Client.
var (
	// ErrNotFound means that there is no such run, or that it is no longer kept.
	ErrNotFound = errors.New("longjob: no such run")
	// ErrOver means that the run has already ended.
	ErrOver = errors.New("longjob: the run is over")
	// ErrNotOver means that the run waits or runs, so it cannot be requeued.
	ErrNotOver = errors.New("longjob: the run is not over")
	// ErrEnding means that a slice of the run has not returned yet: the run is over or paused,
	// but that slice still runs.
	ErrEnding = errors.New("longjob: a slice of the run is still running")
	// ErrNotPaused means that the run is not paused, so it cannot be resumed.
	ErrNotPaused = errors.New("longjob: the run is not paused")
	// ErrNewer means that a newer run with the same class and arguments waits or runs.
	ErrNewer = errors.New("longjob: a newer run waits or runs")
	// ErrNoQueue means that neither the call nor the class of the run names a queue.
	ErrNoQueue = errors.New("longjob: no queue: pass Queue, or give the handlers to NewClient")
)

// Outcome says what a call that enqueues a run has done.
type Outcome string

// The outcomes.
const (
	// OutcomeNew means that a run was enqueued.
	OutcomeNew Outcome = "new"
	// OutcomeExisting means that a run waits or runs already, and that nothing was done.
	OutcomeExisting Outcome = "existing"
	// OutcomeRerun means that a run that has begun waits or runs, and that one more follows it.
	OutcomeRerun Outcome = "rerun"
)

// Result is the result of a call that enqueues a run.
type Result struct {
	// UUID is the id of the new run, or of the existing one.
	UUID    string
	Outcome Outcome
}

// Form says what EnqueueBulk does when a run with the same class and arguments waits or runs.
type Form byte

// The forms.
const (
	// Always is the form of Enqueue: the new run supersedes the other.
	Always Form = 'a'
	// Unique is the form of EnqueueUnique: no run is enqueued.
	Unique Form = 'u'
	// Debounce is the form of EnqueueDebounce: one more run follows one that has begun.
	Debounce Form = 'd'
)

// ClientOptions configure a Client. The zero value means a Redis on this machine.
type ClientOptions struct {
	// URL, Namespace, CAFile, CertFile, KeyFile and PoolSize are as in client.Options.
	URL, Namespace, CAFile, CertFile, KeyFile string
	PoolSize                                  int
	// Handlers, if not nil, provides the queues of the classes.
	Handlers *resqued.Handlers
}

// Client enqueues, inspects and cancels runs. It is made by NewClient or ClientFrom and is safe
// for concurrent use.
type Client struct {
	store    *longstore.Store
	handlers *resqued.Handlers
	redis    *rdb.Client // nil: the store's connections belong to a worker process
}

// NewClient returns a client with connections of its own. It does not connect, and returns an
// error only if the options are invalid. Call Close when the client is no longer needed.
func NewClient(o ClientOptions) (*Client, error) {
	if o.URL == "" {
		o.URL = "redis://127.0.0.1:6379/0"
	}
	if o.Namespace == "" {
		o.Namespace = "resque"
	}
	ca, err := rdb.ReadCA(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("longjob: CAFile: %w", err)
	}
	cert, err := rdb.ReadCert(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("longjob: CertFile and KeyFile: %w", err)
	}
	redis, err := rdb.Open(rdb.Options{URL: o.URL, Namespace: o.Namespace, CA: ca, Cert: cert, PoolSize: o.PoolSize, ClientName: "resqued-longjob"})
	if err != nil {
		return nil, fmt.Errorf("longjob: %w", err)
	}
	return &Client{store: longstore.New(redis), handlers: o.Handlers, redis: redis}, nil
}

// ClientFrom returns a client that shares the connections of the worker process that runs the
// job of ctx. It returns nil if ctx is not a handler's. h is as in ClientOptions.
func ClientFrom(ctx context.Context, h *resqued.Handlers) *Client {
	s := longstore.FromContext(ctx)
	if s == nil {
		return nil
	}
	return &Client{store: s, handlers: h}
}

// Close closes the client's connections, unless the client is from ClientFrom.
func (c *Client) Close() error {
	if c.redis == nil {
		return nil
	}
	return c.redis.Close()
}

// EnqueueOption changes one call of Enqueue or another form: Queue, RequeueQueue or Tenant.
type EnqueueOption interface{ apply(o *enqueueOptions) }

type enqueueOptions struct{ queue, requeueQueue, tenant string }

type enqueueOption func(o *enqueueOptions)

func (f enqueueOption) apply(o *enqueueOptions) { f(o) }

// Queue sets the queue of the first slice.
func Queue(name string) EnqueueOption {
	return enqueueOption(func(o *enqueueOptions) { o.queue = name })
}

// RequeueQueue sets the queue of the slices after the first one, instead of the class's.
func RequeueQueue(name string) EnqueueOption {
	return enqueueOption(func(o *enqueueOptions) { o.requeueQueue = name })
}

// Tenant sets the tenant, such as a customer, to which the run belongs. Tenants take turns; see
// Options.TenantSlices. Enqueue and the other forms ignore the tenant when they compare runs by
// class and arguments.
func Tenant(name string) EnqueueOption {
	return enqueueOption(func(o *enqueueOptions) { o.tenant = name })
}

// Enqueue enqueues a new run. args are as for Enqueue in package client. An older run with the
// same class and arguments that waits or runs is superseded: it saves nothing more and does not
// continue. The new run begins when the code of the old one has returned.
//
// After an error the run may have been enqueued.
func (c *Client) Enqueue(ctx context.Context, class string, args any, opts ...EnqueueOption) (Result, error) {
	return c.one(ctx, Always, class, args, opts)
}

// EnqueueUnique enqueues a new run, unless the newest run with the same class and arguments
// waits or runs. Then it returns the UUID of that run. args are as for Enqueue in package
// client.
//
// After an error the run may have been enqueued.
func (c *Client) EnqueueUnique(ctx context.Context, class string, args any, opts ...EnqueueOption) (Result, error) {
	return c.one(ctx, Unique, class, args, opts)
}

// EnqueueDebounce is like EnqueueUnique, but if the run has begun, one more run follows when it
// has ended: only one, however often EnqueueDebounce is called until then.
//
// After an error the run may have been enqueued.
func (c *Client) EnqueueDebounce(ctx context.Context, class string, args any, opts ...EnqueueOption) (Result, error) {
	return c.one(ctx, Debounce, class, args, opts)
}

func (c *Client) one(ctx context.Context, form Form, class string, args any, opts []EnqueueOption) (Result, error) {
	results, err := c.EnqueueBulk(ctx, form, class, []any{args}, opts...)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

const bulk = 200

// EnqueueBulk enqueues one run for each element of list, which is the args of one call of
// Enqueue. It returns the results in the order of list. After an error, the runs with a result
// are enqueued, and others may be.
func (c *Client) EnqueueBulk(ctx context.Context, form Form, class string, list []any, opts ...EnqueueOption) ([]Result, error) {
	runs := make([]longstore.NewRun, len(list))
	for i, args := range list {
		run, err := c.newRun(class, args, opts)
		if err != nil {
			return nil, err
		}
		runs[i] = run
	}
	results := make([]Result, 0, len(runs))
	for len(runs) > 0 {
		n := min(len(runs), bulk)
		added, err := c.store.AddRuns(ctx, longstore.Way(form), runs[:n])
		if err != nil {
			return results, fmt.Errorf("longjob: enqueue %q: %w", class, err)
		}
		for _, a := range added {
			outcome := map[byte]Outcome{'n': OutcomeNew, 'e': OutcomeExisting, 'r': OutcomeRerun}[a.Outcome]
			results = append(results, Result{UUID: a.UUID, Outcome: outcome})
		}
		runs = runs[n:]
	}
	return results, nil
}

func (c *Client) newRun(class string, args any, opts []EnqueueOption) (longstore.NewRun, error) {
	if class == "" || !utf8.ValidString(class) {
		return longstore.NewRun{}, fmt.Errorf("longjob: %q is not a name of a class", class)
	}
	list, err := wire.Args(args)
	if err != nil {
		return longstore.NewRun{}, fmt.Errorf("longjob: enqueue %q: %w", class, err)
	}
	var o enqueueOptions
	if c.handlers != nil {
		if known, ok := c.handlers.Lookup(class); ok {
			o.queue = known.Queue
		}
	}
	for _, opt := range opts {
		opt.apply(&o)
	}
	run := runFor(class, list)
	run.Queue, run.Again, run.Tenant = o.queue, o.requeueQueue, o.tenant
	switch {
	case run.Queue == "":
		return run, ErrNoQueue
	case !utf8.ValidString(run.Queue) || !utf8.ValidString(run.Again):
		return run, fmt.Errorf("longjob: queue %q is not valid UTF-8", run.Queue)
	}
	for _, queue := range []string{run.Queue, run.Again} {
		if err := wire.CheckQueue(queue); err != nil {
			return run, fmt.Errorf("longjob: %w", err)
		}
	}
	return run, checkTenant(run.Tenant)
}

// maxTenant is the maximum length of a tenant's name in bytes.
const maxTenant = 200

func checkTenant(name string) error {
	if !utf8.ValidString(name) || len(name) > maxTenant {
		return fmt.Errorf("longjob: tenant %.250q: use at most %d bytes of valid UTF-8", name, maxTenant)
	}
	return nil
}

func runFor(class string, args resqued.Args) longstore.NewRun {
	return longstore.NewRun{UUID: newUUID(), Kind: kindOf(class, args), Class: class, Args: []byte(args.String())}
}

// Cancel ends a run for good. If a slice of it runs, the slice can save nothing more, and its
// context ends within seconds; Cancel then returns ErrEnding. It returns ErrOver if the run has
// already ended, and ErrNotFound if there is no such run.
func (c *Client) Cancel(ctx context.Context, uuid string) error {
	return wrap(uuid, c.store.Cancel(ctx, uuid, DefaultKeep))
}

// Requeue continues a run that failed or was cancelled, from its saved state. It returns
// ErrNotOver if the run waits or runs, ErrNewer if a newer run with the same class and
// arguments does, and ErrNotFound if there is no such run.
func (c *Client) Requeue(ctx context.Context, uuid string) error {
	r, err := c.store.Run(ctx, uuid)
	if err != nil {
		return wrap(uuid, err)
	}
	if s := Status(r.Fields["status"]); !s.Over() {
		return fmt.Errorf("%w: %s is %s", ErrNotOver, uuid, s)
	}
	return wrap(uuid, c.store.Again(ctx, r, false))
}

// Pause stops a run that waits or runs until Resume. The run keeps its state, and Enqueue and
// the other forms still find it. If a slice of it runs, the slice ends before its next unit;
// Pause then returns ErrEnding. It returns ErrOver if the run has ended, and ErrNotFound if
// there is no such run. Pausing a paused run does nothing.
func (c *Client) Pause(ctx context.Context, uuid string) error {
	return wrap(uuid, c.store.Pause(ctx, uuid))
}

// Resume continues a paused run from its saved state. It returns ErrNotPaused if the run is not
// paused, ErrOver if it has ended, and ErrNotFound if there is no such run.
func (c *Client) Resume(ctx context.Context, uuid string) error {
	for {
		r, err := c.store.Run(ctx, uuid)
		if err == nil {
			err = c.store.Resume(ctx, r)
		}
		if !errors.Is(err, longstore.ErrStale) { // a slice has ended since Run
			return wrap(uuid, err)
		}
	}
}

func wrap(uuid string, err error) error {
	for from, to := range map[error]error{
		longstore.ErrGone: ErrNotFound, longstore.ErrOver: ErrOver, longstore.ErrEnding: ErrEnding, longstore.ErrNewer: ErrNewer,
		longstore.ErrNotPaused: ErrNotPaused,
	} {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %s", to, uuid)
		}
	}
	if err != nil {
		return fmt.Errorf("longjob: %s: %w", uuid, err)
	}
	return nil
}

// Get returns a run, including its state. It returns ErrNotFound if there is no such run.
func (c *Client) Get(ctx context.Context, uuid string) (Run, error) {
	r, err := c.store.Run(ctx, uuid)
	if err != nil {
		return Run{}, wrap(uuid, err)
	}
	return runOf(r), nil
}

// Filter selects runs.
type Filter struct {
	// Class is the class of the runs; empty = any.
	Class string
	// Status is the status of the runs; empty = any.
	Status Status
	// Limit is the maximum number of runs; 0 = all.
	Limit int
}

// List returns the selected runs, without their state: first runs that wait or run, then runs
// that have ended, the newest first.
func (c *Client) List(ctx context.Context, f Filter) ([]Run, error) {
	var runs []Run
	err := c.store.Runs(ctx, func(r longstore.Record) bool {
		run := runOf(r)
		if (f.Class == "" || f.Class == run.Class) && (f.Status == "" || f.Status == run.Status) {
			runs = append(runs, run)
		}
		return f.Limit <= 0 || len(runs) < f.Limit
	})
	return runs, err
}

const waitPatience = time.Minute

// Wait waits until a run has ended and returns it, whatever its status. A run that follows it
// is another run. Wait returns an error when ctx ends, when there is no such run, or when Redis
// has not answered for a minute.
func (c *Client) Wait(ctx context.Context, uuid string) (Run, error) {
	well := time.Now()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		run, err := c.Get(ctx, uuid)
		switch {
		case err == nil:
			well = time.Now()
			if run.Status.Over() {
				return run, nil
			}
		case errors.Is(err, ErrNotFound), time.Since(well) > waitPatience:
			return run, err
		}
		if !sleep(ctx, pause) {
			return run, context.Cause(ctx)
		}
	}
}

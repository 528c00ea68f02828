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
	// ErrNotFound: there is no such run, or not any more.
	ErrNotFound = errors.New("longjob: no such run")
	// ErrOver: the run has ended before.
	ErrOver = errors.New("longjob: the run is over")
	// ErrNotOver: the run waits or runs.
	ErrNotOver = errors.New("longjob: the run is not over")
	// ErrEnding: the run is over, but the code of its last slice runs still.
	ErrEnding = errors.New("longjob: a slice of the run is still running")
	// ErrNewer: a newer run with the same class and arguments waits or runs.
	ErrNewer = errors.New("longjob: a newer run waits or runs")
	// ErrNoQueue: neither the call nor the class names a queue.
	ErrNoQueue = errors.New("longjob: no queue: pass Queue, or give the handlers to NewClient")
)

// Outcome is what became of an enqueueing.
type Outcome string

// The outcomes.
const (
	// New: a run was enqueued.
	New Outcome = "new"
	// Existing: one waits or runs, nothing was done.
	Existing Outcome = "existing"
	// RerunSet: one waits or runs, and one more follows it.
	RerunSet Outcome = "rerun"
)

// Result tells what became of an enqueueing, and which run counts.
type Result struct {
	UUID    string
	Outcome Outcome
}

// Form is how runs are enqueued that have the same class and arguments.
type Form byte

// The forms: see Enqueue, EnqueueUnique and EnqueueDebounce.
const (
	Always   Form = 'a'
	Unique   Form = 'u'
	Debounce Form = 'd'
)

// ClientOptions say where runs go; the zero value is a Redis on this machine.
type ClientOptions struct {
	// URL, Namespace, CAFile and PoolSize are as in client.Options.
	URL, Namespace, CAFile string
	PoolSize               int
	// Handlers, if given, tell the queues of classes.
	Handlers *resqued.Handlers
}

// Client enqueues runs and looks at them. It is safe for concurrent use.
type Client struct {
	store    *longstore.Store
	handlers *resqued.Handlers
	redis    *rdb.Client // nil: the connections of store are not its own
}

// NewClient returns a client. It connects at the first call. Close it when done.
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
	redis, err := rdb.Open(rdb.Options{URL: o.URL, Namespace: o.Namespace, CA: ca, PoolSize: o.PoolSize, ClientName: "resqued-longjob"})
	if err != nil {
		return nil, fmt.Errorf("longjob: %w", err)
	}
	return &Client{store: longstore.New(redis), handlers: o.Handlers, redis: redis}, nil
}

// ClientFrom returns a client that uses the connections of the worker process to which the
// job of ctx belongs, nil anywhere else. h is as in ClientOptions.
func ClientFrom(ctx context.Context, h *resqued.Handlers) *Client {
	s := longstore.FromContext(ctx)
	if s == nil {
		return nil
	}
	return &Client{store: s, handlers: h}
}

// Close ends the client's connections, if they are its own.
func (c *Client) Close() error {
	if c.redis == nil {
		return nil
	}
	return c.redis.Close()
}

// EnqueueOption changes one enqueueing.
type EnqueueOption func(*longstore.NewLongRun)

// Queue sets the queue of the first slice.
func Queue(name string) EnqueueOption { return func(r *longstore.NewLongRun) { r.Queue = name } }

// RequeueQueue sets the queue of further slices, whatever the class says.
func RequeueQueue(name string) EnqueueOption { return func(r *longstore.NewLongRun) { r.Again = name } }

// Tenant says whose run it is, so that tenants take turns: see Options.TenantSlices. It does
// not tell runs apart, arguments do.
func Tenant(name string) EnqueueOption { return func(r *longstore.NewLongRun) { r.Tenant = name } }

// Enqueue makes a new run. Args are as for client.Enqueue. An older run of the same class
// and arguments that waits or runs is superseded: it saves nothing more and does not go on,
// and the new one begins when its code has ended.
//
// After an error of this and the other forms the run may or may not have been enqueued.
func (c *Client) Enqueue(ctx context.Context, class string, args any, opts ...EnqueueOption) (Result, error) {
	return c.one(ctx, Always, class, args, opts)
}

// EnqueueUnique makes a new run unless the newest one of the same class and arguments
// waits or runs: then it returns that.
func (c *Client) EnqueueUnique(ctx context.Context, class string, args any, opts ...EnqueueOption) (Result, error) {
	return c.one(ctx, Unique, class, args, opts)
}

// EnqueueDebounce is EnqueueUnique, but a run that exists is followed by one more when it
// has ended, however often this is called until then.
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

// bulk is how many runs one call of the server enqueues at most.
const bulk = 200

// EnqueueBulk enqueues one run for each element of list, whose elements are each what
// Enqueue takes as args. After an error those before the results' end are enqueued.
func (c *Client) EnqueueBulk(ctx context.Context, form Form, class string, list []any, opts ...EnqueueOption) ([]Result, error) {
	runs := make([]longstore.NewLongRun, len(list))
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
		added, err := c.store.AddLongRuns(ctx, longstore.LongWay(form), runs[:n])
		if err != nil {
			return results, fmt.Errorf("longjob: enqueue %q: %w", class, err)
		}
		for _, a := range added {
			outcome := map[byte]Outcome{'n': New, 'e': Existing, 'r': RerunSet}[a.Outcome]
			results = append(results, Result{UUID: a.UUID, Outcome: outcome})
		}
		runs = runs[n:]
	}
	return results, nil
}

func (c *Client) newRun(class string, args any, opts []EnqueueOption) (longstore.NewLongRun, error) {
	if class == "" || !utf8.ValidString(class) {
		return longstore.NewLongRun{}, fmt.Errorf("longjob: %q is no name of a class", class)
	}
	list, err := wire.Args(args)
	if err != nil {
		return longstore.NewLongRun{}, fmt.Errorf("longjob: enqueue %q: %w", class, err)
	}
	run := runFor(class, list)
	if c.handlers != nil {
		if known, ok := c.handlers.Lookup(class); ok {
			run.Queue = known.Queue
		}
	}
	for _, opt := range opts {
		opt(&run)
	}
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

// maxTenant is how long the name of a tenant may be, in bytes.
const maxTenant = 200

func checkTenant(name string) error {
	if !utf8.ValidString(name) || len(name) > maxTenant {
		return fmt.Errorf("longjob: tenant %.250q: use at most %d bytes of valid UTF-8", name, maxTenant)
	}
	return nil
}

// runFor is a new run of a class. Those of one kind have the same class and arguments.
func runFor(class string, args resqued.Args) longstore.NewLongRun {
	return longstore.NewLongRun{UUID: newUUID(), Kind: kindOf(class, args), Class: class, Args: []byte(args.String())}
}

// Cancel ends a run for good. What its slice does can be saved no more from then on; its
// context ends within seconds, and with ErrEnding Cancel tells that its code runs still.
func (c *Client) Cancel(ctx context.Context, uuid string) error {
	return wrap(uuid, c.store.LongCancel(ctx, uuid, DefaultKeep))
}

// Requeue has a run go on that has failed or was cancelled, from where it was.
func (c *Client) Requeue(ctx context.Context, uuid string) error {
	r, err := c.store.LongRun(ctx, uuid)
	if err != nil {
		return wrap(uuid, err)
	}
	if s := Status(r.Fields["status"]); !s.Over() {
		return fmt.Errorf("%w: %s is %s", ErrNotOver, uuid, s)
	}
	return wrap(uuid, c.store.LongAgain(ctx, r, false))
}

func wrap(uuid string, err error) error {
	for from, to := range map[error]error{
		longstore.ErrLongGone: ErrNotFound, longstore.ErrLongOver: ErrOver, longstore.ErrLongEnding: ErrEnding, longstore.ErrLongNewer: ErrNewer,
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

// Get returns a run, with its state.
func (c *Client) Get(ctx context.Context, uuid string) (Run, error) {
	r, err := c.store.LongRun(ctx, uuid)
	if err != nil {
		return Run{}, wrap(uuid, err)
	}
	return runOf(r), nil
}

// Filter says which runs are meant; empty fields mean any.
type Filter struct {
	Class  string
	Status Status
	// Limit is how many at most; 0 = all.
	Limit int
}

// List returns runs: first those that wait or run, then those that have ended, the newest
// first.
func (c *Client) List(ctx context.Context, f Filter) ([]Run, error) {
	var runs []Run
	err := c.store.LongRuns(ctx, func(r longstore.LongRecord) bool {
		run := runOf(r)
		if (f.Class == "" || f.Class == run.Class) && (f.Status == "" || f.Status == run.Status) {
			runs = append(runs, run)
		}
		return f.Limit <= 0 || len(runs) < f.Limit
	})
	return runs, err
}

// waitPatience is for how long Wait puts up with errors.
const waitPatience = time.Minute

// Wait returns a run when it has ended, however it has. A run that follows it is another.
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

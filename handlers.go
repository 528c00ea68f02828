package resqued

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"time"

	"github.com/resqued/resqued/internal/cmdslice"
)

// Handler performs one job. It should return soon after ctx ends; one that does
// not costs its worker process (see docs/signals.md). A nil error is success;
// Discard and Requeue end the job without a failure, any other error fails it.
type Handler func(ctx context.Context, job *Job) error

// Middleware wraps a handler: code around every job of every class.
type Middleware func(next Handler) Handler

// Command is a handler that runs an external program; see docs/handlers.md for
// what the program gets and what its exit code means.
type Command struct {
	// Argv is the program and its arguments. No shell is involved and nothing of
	// the job is added to it.
	Argv []string
	// Dir is the working directory; empty = the daemon's.
	Dir string
	// Env are additional environment variables, NAME=value.
	Env []string
	// KillAfter is the time from TERM to KILL when the job is killed; 0 = 10 s.
	KillAfter time.Duration

	// slices, if not nil, makes each job a slice of a long job. longjob.Command sets it.
	slices cmdslice.Func
}

func init() {
	cmdslice.Provide(func(command any) *cmdslice.Func { return &command.(*Command).slices })
}

// Class is what is registered under one class name: a Go function or a command,
// and its options.
type Class struct {
	Name string
	// Exactly one of Handler and Command is set.
	Handler Handler
	Command *Command
	// Queue is where the class's jobs are enqueued by default.
	Queue string
	// Timeout ends a job that runs longer; 0 = never.
	Timeout time.Duration
	// AtMostOnce: a job never runs again by itself; see the option.
	AtMostOnce bool
	// Resumes: its jobs are slices of long jobs. One whose worker process dies is never
	// recorded as failed: the next run of the same payload sees how far it has come.
	Resumes bool
	// Every, if not 0, has a job of the class without arguments enqueued so often, each time
	// once over all daemons whose program registers it, unless one waits or runs: a schedule,
	// as docs/cron.md describes them, with the name of the class. Whole seconds; it needs a
	// Queue.
	Every time.Duration
	// Lock, if not nil, is the class lock that a job must get before it runs.
	Lock *ClassLock
	// Retry, if not nil, says when a job that has failed runs again.
	Retry *Retry
	// JobLockKey computes what of a job stands in the key of its job lock; nil, or
	// an empty result = as the registry or the configuration says.
	JobLockKey func(job *Job) string
}

// Option sets something of a class when it is registered: Queue, Timeout,
// AtMostOnce, JobLockKey, a Lock or a Retry.
type Option interface{ apply(c *Class) }

type optionFunc func(c *Class)

func (f optionFunc) apply(c *Class) { f(c) }

// Queue sets the queue in which jobs of the class are enqueued by default.
func Queue(name string) Option { return optionFunc(func(c *Class) { c.Queue = name }) }

// Timeout limits how long a job of the class may run. Past it the job's context
// ends with ErrTimeout; a job that ignores that costs its worker process.
func Timeout(d time.Duration) Option { return optionFunc(func(c *Class) { c.Timeout = d }) }

// AtMostOnce makes jobs of the class run once or not at all, where others run once or
// more often. A job whose worker process dies has failed, also if it had not begun
// yet, whatever on_worker_death and max_deaths say; so has one that has lost its lock,
// whatever on_lock_lost says. It runs again only if its handler returns Requeue, or if
// a person wants that.
func AtMostOnce() Option { return optionFunc(func(c *Class) { c.AtMostOnce = true }) }

// JobLockKey makes fn compute what of a job of the class stands in the key of
// its job lock: of jobs with the same result one runs at a time, whatever their
// class. An empty result leaves it to the configuration (job_lock_key). fn must
// be quick and always return the same for the same job: it is called before the
// job is reserved, so that of the job only Class, Queue, Args, Payload and ID (if
// the payload has one) are known.
func JobLockKey(fn func(job *Job) string) Option {
	return optionFunc(func(c *Class) { c.JobLockKey = fn })
}

// Hooks are called at fixed points of a job's or a worker process's life; nil
// ones are skipped. None of them may block for long.
type Hooks struct {
	// BeforePerform runs before each job; an error fails the job unperformed.
	BeforePerform func(ctx context.Context, job *Job) error
	// AfterPerform runs after each job that succeeded.
	AfterPerform func(ctx context.Context, job *Job)
	// OnFailure runs after each job that failed, before it is recorded.
	OnFailure func(ctx context.Context, job *Job, err error)
	// BeforeFork runs in the master before it starts a worker process.
	BeforeFork func()
	// AfterFork runs in a new worker process before it takes its first job; an
	// error ends the process.
	AfterFork func(ctx context.Context) error
	// BeforePause and AfterPause run in a worker process when it is paused and
	// when it is resumed.
	BeforePause func()
	AfterPause  func()
}

// Handlers is a registry of classes. Fill it before the daemon starts; it is
// not safe for changes afterwards. The zero value is not ready: use New.
type Handlers struct {
	classes    map[string]*Class
	middleware []Middleware
	hooks      []Hooks
	jobLockKey func(job *Job) string
}

// New returns an empty registry.
func New() *Handlers { return &Handlers{classes: map[string]*Class{}} }

// Register adds a class. It panics on an empty or already registered name, on a
// class with no handler or two and on a lock or a retry that contradicts itself: these
// are mistakes of the program, found at its first start.
func (h *Handlers) Register(c Class, opts ...Option) {
	for _, opt := range opts {
		opt.apply(&c)
	}
	switch {
	case c.Name == "":
		panic("resqued: a class needs a name")
	case h.classes[c.Name] != nil:
		panic(fmt.Sprintf("resqued: class %q is registered twice", c.Name))
	case (c.Handler == nil) == (c.Command == nil):
		panic(fmt.Sprintf("resqued: class %q needs either a function or a command", c.Name))
	case c.Command != nil && len(c.Command.Argv) == 0:
		panic(fmt.Sprintf("resqued: the command of class %q is empty", c.Name))
	case c.Timeout < 0:
		panic(fmt.Sprintf("resqued: the timeout of class %q is negative: %s", c.Name, c.Timeout))
	case c.Every < 0 || c.Every%time.Second != 0:
		panic(fmt.Sprintf("resqued: class %q cannot be enqueued every %s: use whole seconds", c.Name, c.Every))
	case c.Every > 366*24*time.Hour:
		panic(fmt.Sprintf("resqued: class %q cannot be enqueued every %s: use a year at most", c.Name, c.Every))
	case c.Every > 0 && c.Queue == "":
		panic(fmt.Sprintf("resqued: class %q is enqueued every %s, and needs a Queue", c.Name, c.Every))
	}
	if c.Lock != nil {
		if err := c.Lock.check(); err != nil {
			panic(fmt.Sprintf("resqued: the lock of class %q: %s", c.Name, err))
		}
	}
	if c.Retry != nil {
		err := c.Retry.check()
		if err == nil && c.AtMostOnce {
			err = errors.New("its jobs run at most once, so none of them can run again")
		}
		if err != nil {
			panic(fmt.Sprintf("resqued: the retry of class %q: %s", c.Name, err))
		}
	}
	h.classes[c.Name] = &c
}

// HandleArgs registers a function that takes the arguments as they came.
func (h *Handlers) HandleArgs(class string, fn func(ctx context.Context, args Args) error, opts ...Option) {
	h.Register(Class{Name: class, Handler: func(ctx context.Context, job *Job) error {
		return fn(ctx, job.Args)
	}}, opts...)
}

// Handle registers a function whose positional JSON arguments are decoded into
// a T: the fields of a struct in their order, or one argument into any other
// type. Arguments that do not fit fail the job, naming the one at fault.
func Handle[T any](h *Handlers, class string, fn func(ctx context.Context, args T) error, opts ...Option) {
	for _, opt := range opts {
		l, ok := opt.(interface{ argsType() reflect.Type })
		if ok && l.argsType() != reflect.TypeFor[T]() && l.argsType() != reflect.TypeFor[Args]() {
			panic(fmt.Sprintf("resqued: class %q takes a %s, its lock a %s", class, reflect.TypeFor[T](), l.argsType()))
		}
	}
	h.Register(Class{Name: class, Handler: func(ctx context.Context, job *Job) error {
		var args T
		if err := job.Args.Decode(&args); err != nil {
			return fmt.Errorf("arguments of %s: %w", class, err)
		}
		return fn(ctx, args)
	}}, opts...)
}

// Command registers an external program.
func (h *Handlers) Command(class string, argv []string, opts ...Option) {
	h.Register(Class{Name: class, Command: &Command{Argv: argv}}, opts...)
}

// Use adds middleware; what was added first is outermost.
func (h *Handlers) Use(m ...Middleware) { h.middleware = append(h.middleware, m...) }

// Hook adds a set of hooks. Several sets run in the order in which they were added.
func (h *Handlers) Hook(hooks Hooks) { h.hooks = append(h.hooks, hooks) }

// JobLockKey makes fn compute what of a job stands in the key of its job lock,
// for every class that has no JobLockKey of its own, registered or not; see the
// option JobLockKey.
func (h *Handlers) JobLockKey(fn func(job *Job) string) { h.jobLockKey = fn }

// JobLockKeyFunc returns what JobLockKey has set, or nil.
func (h *Handlers) JobLockKeyFunc() func(job *Job) string { return h.jobLockKey }

// Lookup returns what is registered under a class name, exactly as spelled.
func (h *Handlers) Lookup(class string) (*Class, bool) {
	c, ok := h.classes[class]
	return c, ok
}

// Classes returns the registered names, sorted.
func (h *Handlers) Classes() []string {
	names := make([]string, 0, len(h.classes))
	for name := range h.classes {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Middleware returns what Use added, outermost first.
func (h *Handlers) Middleware() []Middleware { return h.middleware }

// AllHooks returns what Hook added, in order.
func (h *Handlers) AllHooks() []Hooks { return h.hooks }

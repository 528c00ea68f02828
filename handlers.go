package resqued

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/selector"
)

// Handler performs one job. A nil error is success, Discard and Requeue end the job without a
// failure, and any other error fails it.
//
// A handler should return soon after ctx ends. If it does not, its worker process is killed;
// see docs/signals.md.
type Handler func(ctx context.Context, job *Job) error

// Middleware returns a handler that runs code around next. It applies to every job.
type Middleware func(next Handler) Handler

// Command is a handler that runs an external program. docs/handlers.md describes the
// program's input and the meaning of its exit code.
type Command struct {
	// Argv is the program and its arguments. It runs without a shell, and nothing of the job is
	// added.
	Argv []string
	// Runner names a runner of the configuration. Its processes perform the jobs, so no program
	// is started per job, and Argv, Dir and Env are empty.
	Runner string
	// Dir is the working directory; empty = the daemon's.
	Dir string
	// Env has additional environment variables as NAME=value.
	Env []string
	// KillAfter is the time between TERM and KILL when the job is killed; 0 = 10 s.
	KillAfter time.Duration
	// OnLeaving is the signal that asks the program, once, to make room when the channel of
	// Leaving is closed; 0 = none. It is sent as soon as the program catches it. The program's
	// exit code decides how the job ends.
	OnLeaving syscall.Signal

	// slices, if not nil, makes each job a slice of a long job; set by longjob.Command.
	slices cmdslice.Func
}

func init() {
	cmdslice.Provide(func(command any) *cmdslice.Func { return &command.(*Command).slices })
	jobctx.ProvideArgs(func(class any) reflect.Type { return class.(*Class).args })
}

// Class is a job class: its name, its handler, and its options.
type Class struct {
	// Name is the "class" of the payloads, or a pattern: "*" matches every class that is not
	// registered, "Billing::*" every class with that prefix. A name takes precedence over a
	// pattern, and a longer pattern over a shorter one. Locks, counts and logs use the class of
	// the job. A pattern cannot have Every or be a long job.
	Name string
	// Handler or Command performs the jobs. Exactly one of them must be set.
	Handler Handler
	Command *Command
	// Queue is the default queue for jobs of the class.
	Queue string
	// FurtherQueue is another queue in which jobs of the class wait; empty = none. Package
	// longjob sets it to the queue of the slices after the first.
	FurtherQueue string
	// Timeout is how long a job may run; 0 = no limit. See the option Timeout.
	Timeout time.Duration
	// MaxRun is how long a job runs before it is asked to make room; 0 = no limit. See the
	// option MaxRun.
	MaxRun time.Duration
	// AtMostOnce makes a job run once or not at all. See the option AtMostOnce.
	AtMostOnce bool
	// Resumes makes a job whose worker process died run again, whatever on_worker_death and
	// max_deaths say. Package longjob sets it, because the next run of a slice continues where
	// the last one ended.
	Resumes bool
	// Every, if not 0, is the interval at which a job of the class without arguments is
	// enqueued: once for all daemons whose program registers the class, and not while such a
	// job waits or runs. It must be whole seconds, at most 366 days, and the class needs a
	// Queue. It is a schedule as in docs/cron.md, named after the class.
	Every time.Duration
	// Lock, if not nil, is the class lock that a job must get before it runs.
	Lock *ClassLock
	// Retry, if not nil, says when a failed job runs again.
	Retry *Retry
	// JobLockKey, if not nil, computes the part of the job lock's key that identifies the job.
	// If it returns "", Handlers.JobLockKey or the configuration decides.
	JobLockKey func(job *Job) string

	// args is the type that Handle decodes arguments into; nil if the class was registered
	// otherwise.
	args reflect.Type
}

// Option configures a class when it is registered: Queue, Timeout, MaxRun, AtMostOnce,
// JobLockKey, a Lock or a Retry.
type Option interface{ apply(c *Class) }

type optionFunc func(c *Class)

func (f optionFunc) apply(c *Class) { f(c) }

// Queue sets the default queue for jobs of the class.
func Queue(name string) Option { return optionFunc(func(c *Class) { c.Queue = name }) }

// Timeout limits how long a job of the class may run. Then the job's context ends with
// ErrTimeout; if the handler ignores that, its worker process is killed.
func Timeout(d time.Duration) Option { return optionFunc(func(c *Class) { c.Timeout = d }) }

// MaxRun asks a job of the class to make room after the duration d: the channel of Leaving is
// closed, as when the worker process exits. The job may continue; Timeout ends it.
func MaxRun(d time.Duration) Option { return optionFunc(func(c *Class) { c.MaxRun = d }) }

// AtMostOnce makes jobs of the class run once or not at all; other jobs run at least once. A
// job whose worker process dies has failed, even if its handler had not started, whatever
// on_worker_death and max_deaths say. A job that lost its lock has failed, whatever
// on_lock_lost says. The job runs again only if its handler returns Requeue or if the failure
// is retried by hand.
func AtMostOnce() Option { return optionFunc(func(c *Class) { c.AtMostOnce = true }) }

// JobLockKey sets the function that computes the part of the job lock's key that identifies a
// job of the class. Of all jobs with the same result, whatever their class, one runs at a time.
// If the result is empty, the configuration (job_lock_key) decides.
//
// fn must be quick and return the same result for the same job each time. It is called before
// the job is reserved: only Class, Queue, Args, Payload and the ID of the payload are set.
func JobLockKey(fn func(job *Job) string) Option {
	return optionFunc(func(c *Class) { c.JobLockKey = fn })
}

// Hooks are functions that the daemon calls at fixed points in the life of a job or a worker
// process. A nil function is skipped. Hooks must not block for long.
type Hooks struct {
	// BeforePerform runs before each job. An error fails the job without running it.
	BeforePerform func(ctx context.Context, job *Job) error
	// AfterPerform runs after each job that succeeded.
	AfterPerform func(ctx context.Context, job *Job)
	// OnFailure runs after each job that failed, before the failure is recorded.
	OnFailure func(ctx context.Context, job *Job, err error)
	// BeforeFork runs in the master before it starts a worker process.
	BeforeFork func()
	// AfterFork runs in a new worker process before its first job. An error ends the process.
	AfterFork func(ctx context.Context) error
	// BeforePause runs in a worker process when it is paused, AfterPause when it is resumed.
	BeforePause func()
	AfterPause  func()
}

// Handlers is a registry of classes, made by New. Register all classes before the daemon
// starts: a Handlers must not change while it is used.
type Handlers struct {
	classes    map[string]*Class
	patterns   []string // patterns among the classes, in order of precedence
	middleware []Middleware
	hooks      []Hooks
	jobLockKey func(job *Job) string
	fair       map[string]Fair // by queue
	limits     []Limit
}

// New returns an empty registry.
func New() *Handlers { return &Handlers{classes: map[string]*Class{}} }

// Register adds a class. It panics if the name is empty or already registered, if not exactly
// one of Handler and Command is set, or if an option is invalid.
func (h *Handlers) Register(c Class, opts ...Option) {
	for _, opt := range opts {
		opt.apply(&c)
	}
	switch {
	case c.Name == "":
		panic("resqued: a class needs a name")
	case h.classes[c.Name] != nil:
		panic(fmt.Sprintf("resqued: class %q is registered twice", c.Name))
	case selector.CheckPattern(c.Name) != nil:
		panic(fmt.Sprintf("resqued: class %q is not a pattern: %s", c.Name, selector.CheckPattern(c.Name)))
	case selector.IsPattern(c.Name) && c.Every > 0:
		panic(fmt.Sprintf("resqued: class %q cannot be enqueued every %s: it is a pattern", c.Name, c.Every))
	case selector.IsPattern(c.Name) && c.Resumes:
		panic(fmt.Sprintf("resqued: a long job needs its class's own name, %q is a pattern", c.Name))
	case (c.Handler == nil) == (c.Command == nil):
		panic(fmt.Sprintf("resqued: class %q needs either a function or a command", c.Name))
	case c.Command != nil && len(c.Command.Argv) == 0 && c.Command.Runner == "":
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
	if selector.IsPattern(c.Name) {
		h.patterns = selector.Patterns(h.Classes())
	}
}

// HandleArgs registers a function that takes undecoded arguments. It panics as Register does,
// and if fn is nil.
func (h *Handlers) HandleArgs(class string, fn func(ctx context.Context, args Args) error, opts ...Option) {
	if fn == nil {
		panic(fmt.Sprintf("resqued: the function of class %q is nil", class))
	}
	h.Register(Class{Name: class, Handler: func(ctx context.Context, job *Job) error {
		return fn(ctx, job.Args)
	}}, opts...)
}

// Handle registers a function whose arguments are decoded into a T as by Args.Decode: a struct
// takes one argument for each exported field, any other type takes one argument. A job whose
// arguments do not fit fails with an error that names the argument. Handle panics as
// Handlers.Register does, and if fn is nil.
func Handle[T any](h *Handlers, class string, fn func(ctx context.Context, args T) error, opts ...Option) {
	if fn == nil {
		panic(fmt.Sprintf("resqued: the function of class %q is nil", class))
	}
	for _, opt := range opts {
		l, ok := opt.(interface{ argsType() reflect.Type })
		if ok && l.argsType() != reflect.TypeFor[T]() && l.argsType() != reflect.TypeFor[Args]() {
			panic(fmt.Sprintf("resqued: class %q takes a %s, its lock a %s", class, reflect.TypeFor[T](), l.argsType()))
		}
	}
	h.Register(Class{Name: class, args: reflect.TypeFor[T](), Handler: func(ctx context.Context, job *Job) error {
		var args T
		if err := job.Args.Decode(&args); err != nil {
			return fmt.Errorf("arguments of %s: %w", class, err)
		}
		return fn(ctx, args)
	}}, opts...)
}

// Command registers an external program; argv is the program and its arguments. It panics as
// Register does.
func (h *Handlers) Command(class string, argv []string, opts ...Option) {
	h.Register(Class{Name: class, Command: &Command{Argv: argv}}, opts...)
}

// Use adds middleware. The first one added is the outermost.
func (h *Handlers) Use(m ...Middleware) { h.middleware = append(h.middleware, m...) }

// Hook adds a set of hooks. Sets are called in the order in which they were added.
func (h *Handlers) Hook(hooks Hooks) { h.hooks = append(h.hooks, hooks) }

// JobLockKey sets the function that computes the part of the job lock's key that identifies a
// job, for every class without a JobLockKey of its own, registered or not. See the option
// JobLockKey.
func (h *Handlers) JobLockKey(fn func(job *Job) string) { h.jobLockKey = fn }

// JobLockKeyFunc returns the function set by JobLockKey, or nil.
func (h *Handlers) JobLockKeyFunc() func(job *Job) string { return h.jobLockKey }

// Lookup returns the class registered under a name, or else under the longest pattern that
// matches it. Case matters.
func (h *Handlers) Lookup(class string) (*Class, bool) {
	if c, ok := h.classes[class]; ok {
		return c, true
	}
	for _, pattern := range h.patterns {
		if selector.Matches(pattern, class) {
			return h.classes[pattern], true
		}
	}
	return nil, false
}

// Classes returns the registered names and patterns, sorted.
func (h *Handlers) Classes() []string {
	names := make([]string, 0, len(h.classes))
	for name := range h.classes {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Middleware returns the middleware added by Use, outermost first.
func (h *Handlers) Middleware() []Middleware { return h.middleware }

// AllHooks returns the sets of hooks added by Hook, in order.
func (h *Handlers) AllHooks() []Hooks { return h.hooks }

package longjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
)

// Defaults of Options.
const (
	DefaultSlice      = 15 * time.Second
	DefaultCheckIn    = 30 * time.Second
	DefaultMaxDeaths  = 3
	DefaultRetries    = 3
	DefaultRetryAfter = 5 * time.Minute
	DefaultKeep       = 8 * 24 * time.Hour
	DefaultStateLimit = 1 << 20

	DefaultTenantSlices = 1
)

// Options say how the runs of a class are worked; the zero value of each is its default.
type Options struct {
	// Queue is where first slices go, RequeueQueue where further ones go; empty = Queue.
	Queue, RequeueQueue string
	// Slice is for how long a slice works: units begin as long as it is not over, and at
	// least one does.
	Slice time.Duration
	// CheckIn is the longest time between two saves while a unit goes on.
	CheckIn time.Duration
	// SaveEvery lets the steps of WorkOnce, WorkEach and WorkTree be saved less often
	// than each: those of such a time may be done again after a crash. 0 = each is saved.
	SaveEvery time.Duration
	// MaxUnits ends a slice after so many units, for tests, those within others counted
	// instead of them; 0 = no limit.
	MaxUnits int
	// MaxDeaths is how often in a row a slice may take its process with it without any
	// progress before the run has failed.
	MaxDeaths int
	// Retries is how often a run whose function returns an error goes on from what was
	// saved, RetryAfter after each. Negative = never.
	Retries    int
	RetryAfter time.Duration
	// Keep is how long the newest run of its kind can be looked at when it has ended.
	// Others are kept for 15 minutes.
	Keep time.Duration
	// TenantSlices is how many runs of one Tenant, of whatever classes, may have a slice that
	// waits or runs for one of this class to join them; the others stand in line.
	TenantSlices int
	// UUIDArgument: an ordinary job of the class whose only argument is a UUID is a new run with
	// that argument. Otherwise it fails: it looks like a slice of a run that is not in this
	// Redis, as programs with long jobs of their own enqueue them.
	UUIDArgument bool
	// StateLimit is how many bytes a run may remember, keys included.
	StateLimit int
	// Grace is for commands: how long one may run on when it was told that its slice is
	// over, before it is killed; and how much later one is told that has not reported
	// anything by then. SaveEvery and MaxUnits mean nothing to a command.
	Grace time.Duration
}

func (o Options) defaults() Options {
	if o.RequeueQueue == "" {
		o.RequeueQueue = o.Queue
	}
	orDefault(&o.Slice, DefaultSlice)
	orDefault(&o.CheckIn, DefaultCheckIn)
	orDefault(&o.MaxDeaths, DefaultMaxDeaths)
	orDefault(&o.Retries, DefaultRetries)
	orDefault(&o.RetryAfter, DefaultRetryAfter)
	orDefault(&o.Keep, DefaultKeep)
	orDefault(&o.TenantSlices, DefaultTenantSlices)
	orDefault(&o.StateLimit, DefaultStateLimit)
	orDefault(&o.Grace, DefaultGrace)
	return o
}

// check panics on what contradicts itself, as a class without a queue does.
func (o Options) check(class string) {
	if o.Queue == "" {
		panic(fmt.Sprintf("longjob: class %q needs a Queue", class))
	}
	for name, value := range map[string]time.Duration{
		"Slice": o.Slice, "CheckIn": o.CheckIn, "SaveEvery": o.SaveEvery, "RetryAfter": o.RetryAfter, "Keep": o.Keep, "Grace": o.Grace,
	} {
		if value < 0 {
			panic(fmt.Sprintf("longjob: class %q: %s is %s; use a positive duration, or 0 for the default", class, name, value))
		}
	}
	for name, value := range map[string]int{"MaxUnits": o.MaxUnits, "MaxDeaths": o.MaxDeaths, "TenantSlices": o.TenantSlices, "StateLimit": o.StateLimit} {
		if value < 0 {
			panic(fmt.Sprintf("longjob: class %q: %s is %d; use a positive number, or 0 for the default", class, name, value))
		}
	}
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// The errors by which a slice ends. A function returns what a call of its Runner returned;
// it may wrap it.
var (
	// ErrYield: the slice is over. It is no failure: the run goes on with the next one.
	ErrYield = errors.New("longjob: the slice is over")
	// ErrCancelled: the run was cancelled, or a newer one takes its place.
	ErrCancelled = errors.New("longjob: the run is over")
	// ErrTakenOver: this slice is not the one that counts any more, because its process
	// was believed to be dead. It can save nothing.
	ErrTakenOver = errors.New("longjob: another slice has taken over")
	// ErrStateLimit: the run would remember more than Options.StateLimit.
	ErrStateLimit = errors.New("longjob: the state is too large")
)

// Func is the function of a class. It runs from its beginning in each slice.
type Func[A any] func(ctx context.Context, r *Runner, args A) error

// Register adds a class of long jobs. Args are decoded as resqued.Handle does. It panics
// where resqued.Handlers.Register does, without a queue, and on negative options; Retries alone
// may be negative.
func Register[A any](h *resqued.Handlers, class string, fn Func[A], o Options) {
	o.check(class)
	o = o.defaults()
	call := func(ctx context.Context, r *Runner, raw resqued.Args) error {
		var args A
		if err := raw.Decode(&args); err != nil {
			return fmt.Errorf("arguments of %s: %w", class, err)
		}
		return fn(ctx, r, args)
	}
	h.Register(resqued.Class{Name: class, Queue: o.Queue, Resumes: true, Handler: func(ctx context.Context, job *resqued.Job) error {
		return perform(ctx, job, class, o, call)
	}})
}

package longjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
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
)

// Options configure a class of long jobs. Queue is required. For each other field the zero
// value means its default.
type Options struct {
	// Queue is the queue of first slices, RequeueQueue the queue of later slices. RequeueQueue
	// defaults to Queue.
	Queue, RequeueQueue string
	// Slice is the duration of a slice: no further unit begins after it. A slice has at least
	// one unit.
	Slice time.Duration
	// CheckIn is the longest time between two saves during a unit.
	CheckIn time.Duration
	// SaveEvery is how long the progress of WorkOnce, WorkEach and WorkTree may stay unsaved.
	// After a crash, what was done in that time is repeated. 0 = each unit is saved.
	SaveEvery time.Duration
	// MaxUnits ends a slice after a number of units; it is meant for tests. Of nested units
	// only the innermost count. 0 = no limit.
	MaxUnits int
	// MaxDeaths is how many worker processes may die in a row while they run a slice, without
	// progress in between. With one more death the run has failed.
	MaxDeaths int
	// Retries is how often a run continues from its saved state after its function returned an
	// error, without progress in between; negative = never. RetryAfter is the time until it
	// does.
	Retries    int
	RetryAfter time.Duration
	// Keep is how long the newest run with the same class and arguments is kept after it has
	// ended. Other runs are kept for 15 minutes.
	Keep time.Duration
	// TenantSlices is how many runs of one tenant, of any class, may have a slice that waits or
	// runs. Further runs of this class wait in the tenant's line. 0 = as many as there are
	// threads that tenants with fewer slices do not need.
	TenantSlices int
	// UUIDArgument makes an ordinary job of the class whose only argument is a UUID a new run
	// with that argument. Without it such a job fails, because it looks like a slice of a run
	// in another Redis.
	UUIDArgument bool
	// StateLimit is the maximum size of the state of a run in bytes, including keys.
	StateLimit int
	// Grace, for commands, is the time between TERM, which says that the slice is over, and
	// KILL. A command that has not reported anything by the end of its slice gets TERM that
	// much later. SaveEvery and MaxUnits have no effect on commands.
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
	orDefault(&o.StateLimit, DefaultStateLimit)
	orDefault(&o.Grace, DefaultGrace)
	return o
}

func (o Options) share() int {
	if o.TenantSlices == 0 {
		return longstore.Adaptive
	}
	return o.TenantSlices
}

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

// Errors that end a slice. The methods of Runner return them, and the function of the class
// must return them in turn. It may wrap them.
var (
	// ErrYield means that the slice is over. It is not a failure: the run continues in the next
	// slice.
	ErrYield = errors.New("longjob: the slice is over")
	// ErrCancelled means that the run was cancelled, or superseded by a newer one.
	ErrCancelled = errors.New("longjob: the run was cancelled or superseded")
	// ErrTakenOver means that another process runs this slice now, because this one was taken
	// for dead. This one can save nothing.
	ErrTakenOver = errors.New("longjob: another slice has taken over")
	// ErrFinal makes a run fail at once, without further attempts, when its function returns or
	// wraps it: fmt.Errorf("%w: no such shop", longjob.ErrFinal).
	ErrFinal = errors.New("longjob: another attempt would not help")
	// ErrStateLimit means that the state would be larger than Options.StateLimit.
	ErrStateLimit = errors.New("longjob: the state is too large")
)

// Func is the function of a class of long jobs. It runs from its beginning in each slice.
type Func[A any] func(ctx context.Context, r *Runner, args A) error

// Register registers a class of long jobs. The arguments are decoded into an A as by
// resqued.Handle. Register panics as resqued.Handlers.Register does, and if fn is nil,
// Options.Queue is empty, or an option other than Retries is negative.
func Register[A any](h *resqued.Handlers, class string, fn Func[A], o Options) {
	if fn == nil {
		panic(fmt.Sprintf("longjob: the function of class %q is nil", class))
	}
	o.check(class)
	o = o.defaults()
	call := func(ctx context.Context, r *Runner, raw resqued.Args) error {
		var args A
		if err := raw.Decode(&args); err != nil {
			return fmt.Errorf("arguments of %s: %w", class, err)
		}
		return fn(ctx, r, args)
	}
	h.Register(resqued.Class{Name: class, Queue: o.Queue, FurtherQueue: o.RequeueQueue, Resumes: true, Handler: func(ctx context.Context, job *resqued.Job) error {
		return perform(ctx, job, class, o, call)
	}})
}

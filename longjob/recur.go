package longjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/wire"
)

// Defaults of Recurring.
const (
	DefaultEvery   = 5 * time.Minute
	DefaultBacklog = 100
)

// recurSuffix is what the name of the class ends with whose jobs look for due subjects.
const recurSuffix = ".recurring"

// Subject is what a recurring long job is run for again and again: a shop, say.
type Subject struct {
	// Args are the arguments of its runs, as for Enqueue. They tell subjects apart.
	Args any
	// Interval is its own; 0 = Recurring.Interval.
	Interval time.Duration
	// Tenant is whose runs they are; see the option Tenant.
	Tenant string
}

// Recurring says for what runs of a class are enqueued by themselves, and how often.
type Recurring struct {
	// Interval is the time from one run of a subject to its next.
	Interval time.Duration
	// Each returns all subjects that there are; nil = one subject without arguments. It runs
	// in a worker process, at each tick.
	Each func(ctx context.Context) ([]Subject, error)
	// If, if not nil, is asked before Each: false = nothing is started for now.
	If func(ctx context.Context) bool
	// Args are further arguments of all runs, behind those of the subject.
	Args []any
	// Backlog is how many runs may wait or run at most before another is started; 0 = 100.
	Backlog int
	// Every is the time between ticks, whole seconds; 0 = 5 minutes, or a tenth of Interval
	// if that is less.
	Every time.Duration
	// Queue is where the small job goes that sees to a tick; empty = the queue of the class.
	Queue string
}

// Each makes a function for Recurring.Each from one that returns the first arguments of the
// runs: ids from a database, say.
func Each[T any](list func(ctx context.Context) ([]T, error)) func(ctx context.Context) ([]Subject, error) {
	return func(ctx context.Context) ([]Subject, error) {
		ids, err := list(ctx)
		subjects := make([]Subject, len(ids))
		for i, id := range ids {
			subjects[i] = Subject{Args: id}
		}
		return subjects, err
	}
}

// Recur has runs of a class enqueued by themselves, evenly spread: at each tick as many as
// belong to it for all subjects to have their turn within the interval, those first that have
// waited longest. None is started for a subject while one waits or runs. A run that somebody
// else enqueues counts as the subject's.
//
// Register comes first; Recur panics if it has not been called for the class, and on a
// Recurring that contradicts itself. It may be called once for a class.
func Recur(h *resqued.Handlers, class string, r Recurring) {
	known, ok := h.Lookup(class)
	switch {
	case !ok:
		panic(fmt.Sprintf("longjob: class %q must be registered before it can recur", class))
	case r.Interval < time.Second:
		panic(fmt.Sprintf("longjob: class %q cannot recur every %s: use one second or more", class, r.Interval))
	case r.Backlog < 0 || r.Every < 0 || r.Every%time.Second != 0:
		panic(fmt.Sprintf("longjob: class %q: Backlog and Every cannot be negative, and Every is whole seconds", class))
	}
	if r.Every == 0 {
		r.Every = min(DefaultEvery, max(time.Second, (r.Interval/10).Truncate(time.Second)))
	}
	if r.Backlog == 0 {
		r.Backlog = DefaultBacklog
	}
	if r.Queue == "" {
		r.Queue = known.Queue
	}
	further, err := wire.Args(r.Args)
	if err != nil {
		panic(fmt.Sprintf("longjob: the arguments of class %q: %s", class, err))
	}
	t := &recurrence{Recurring: r, class: class, queue: known.Queue, further: further}
	h.Register(resqued.Class{Name: class + recurSuffix, Queue: r.Queue, Every: r.Every, Handler: func(ctx context.Context, _ *resqued.Job) error {
		return t.tick(ctx)
	}})
}

type recurrence struct {
	Recurring
	class, queue string
	further      resqued.Args
}

// tick is the handler of the job that sees to one.
func (t *recurrence) tick(ctx context.Context) error {
	s := longstore.FromContext(ctx)
	if s == nil {
		return errors.New("longjob: ticks run in a worker process of resqued only")
	}
	state, err := s.LongRecurState(ctx, t.class)
	if err != nil {
		return err
	}
	if state.Fields["paused"] == "1" || t.If != nil && !t.If(ctx) {
		return s.KeepLongRecur(ctx, t.class, t.Interval)
	}
	subjects, err := t.subjects(ctx)
	if err != nil {
		return t.failed(ctx, s, err)
	}
	_, err = s.LongRecur(ctx, longstore.LongRecurrence{Class: t.class, Every: t.Every, Interval: t.Interval, Backlog: t.Backlog, Subjects: subjects})
	return err
}

// subjects asks Each.
func (t *recurrence) subjects(ctx context.Context) ([]longstore.LongSubject, error) {
	list := []Subject{{}}
	if t.Each != nil {
		var err error
		if list, err = t.Each(ctx); err != nil {
			return nil, err
		}
	}
	subjects := make([]longstore.LongSubject, len(list))
	for i, sub := range list {
		args, err := wire.Args(sub.Args)
		if err != nil {
			return nil, fmt.Errorf("subject %d: %w", i+1, err)
		}
		if sub.Interval < 0 {
			return nil, fmt.Errorf("subject %s: its interval is negative: %s", args, sub.Interval)
		}
		run := runFor(t.class, slices.Concat(args, t.further))
		run.Queue, run.Tenant = t.queue, sub.Tenant
		if err := checkTenant(run.Tenant); err != nil {
			return nil, err
		}
		subjects[i] = longstore.LongSubject{Run: run, Interval: max(time.Second, cmp.Or(sub.Interval, t.Interval))}
	}
	return subjects, nil
}

// failed notes an error of Each. The job fails if it is another one than at the last tick:
// a database that is away for a day is one failure, not hundreds.
func (t *recurrence) failed(ctx context.Context, s *longstore.Store, err error) error {
	err = fmt.Errorf("the subjects of %s are not known: %w", t.class, err)
	if ctx.Err() != nil {
		return err // the job was killed
	}
	news, noted := s.LongRecurFailed(ctx, t.class, cut(err.Error()))
	if noted != nil || news {
		return err
	}
	return fmt.Errorf("%w: %w", resqued.Discard, err)
}

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

// recurSuffix ends the name of the class whose jobs look for due subjects.
const recurSuffix = ".recurring"

// Subject is one of the things that a recurring long job runs for, such as a shop.
type Subject struct {
	// Args are the arguments of its runs, as for Enqueue. They identify the subject.
	Args any
	// Interval is the time between its runs; 0 = Recurring.Interval.
	Interval time.Duration
	// Tenant is the tenant of its runs; see the option Tenant.
	Tenant string
}

// Recurring configures Recur.
type Recurring struct {
	// Interval is the time between two runs of a subject.
	Interval time.Duration
	// Each returns all subjects; nil = one subject without arguments. It is called in a worker
	// process at each tick.
	Each func(ctx context.Context) ([]Subject, error)
	// If, if not nil, is called before Each. If it returns false, the tick does nothing.
	If func(ctx context.Context) bool
	// Args are further arguments of all runs, after the subject's.
	Args []any
	// Backlog is the number of waiting and running runs of the class at which no further run is
	// enqueued; 0 = DefaultBacklog.
	Backlog int
	// Every is the time between ticks, in whole seconds; 0 = DefaultEvery, or a tenth of
	// Interval if that is less.
	Every time.Duration
	// Queue is the queue of the jobs that perform the ticks; empty = the queue of the class.
	Queue string
}

// Each returns a function for Recurring.Each that makes each value that list returns a subject.
// The value, such as an id from a database, is the first argument of the runs.
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

// Recur makes the daemon enqueue runs of a class at intervals, spread evenly over time. Each
// tick enqueues as many runs as every subject needs to have one within its interval, first for
// the subjects that have waited longest. No run is enqueued for a subject while one waits or
// runs. Runs enqueued by a client count too.
//
// The class must be registered first. Recur panics if it is not, if Recurring is invalid, or if
// it is called twice for a class.
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
	r.fill()
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

// Tick enqueues the runs of a recurring class that are due, as each tick of Recur does. It is
// for programs that schedule the ticks themselves: call it every Recurring.Every, and do not
// use Recur for the class.
func (c *Client) Tick(ctx context.Context, class string, r Recurring, opts ...EnqueueOption) error {
	if r.Interval < time.Second || r.Backlog < 0 || r.Every < 0 {
		return fmt.Errorf("longjob: class %q cannot recur every %s: use one second or more, and nothing negative", class, r.Interval)
	}
	r.fill()
	further, err := wire.Args(r.Args)
	if err != nil {
		return fmt.Errorf("longjob: the arguments of class %q: %w", class, err)
	}
	run, err := c.newRun(class, []any{}, opts)
	if err != nil {
		return err
	}
	t := &recurrence{Recurring: r, class: class, queue: run.Queue, again: run.Again, further: further}
	return t.run(ctx, c.store)
}

func (r *Recurring) fill() {
	if r.Every == 0 {
		r.Every = min(DefaultEvery, max(time.Second, (r.Interval/10).Truncate(time.Second)))
	}
	if r.Backlog == 0 {
		r.Backlog = DefaultBacklog
	}
}

type recurrence struct {
	Recurring
	class, queue, again string
	further             resqued.Args
}

func (t *recurrence) tick(ctx context.Context) error {
	s := longstore.FromContext(ctx)
	if s == nil {
		return errors.New("longjob: ticks run in a worker process of resqued only")
	}
	return t.run(ctx, s)
}

func (t *recurrence) run(ctx context.Context, s *longstore.Store) error {
	state, err := s.RecurState(ctx, t.class)
	if err != nil {
		return err
	}
	if state.Fields["paused"] == "1" || t.If != nil && !t.If(ctx) {
		return s.KeepRecur(ctx, t.class, t.Interval)
	}
	subjects, err := t.subjects(ctx)
	if err != nil {
		return t.failed(ctx, s, err)
	}
	_, err = s.Recur(ctx, longstore.Recurrence{Class: t.class, Every: t.Every, Interval: t.Interval, Backlog: t.Backlog, Subjects: subjects})
	return err
}

func (t *recurrence) subjects(ctx context.Context) ([]longstore.Subject, error) {
	list := []Subject{{}}
	if t.Each != nil {
		var err error
		if list, err = t.Each(ctx); err != nil {
			return nil, err
		}
	}
	subjects := make([]longstore.Subject, len(list))
	for i, sub := range list {
		args, err := wire.Args(sub.Args)
		if err != nil {
			return nil, fmt.Errorf("subject %d: %w", i+1, err)
		}
		if sub.Interval < 0 {
			return nil, fmt.Errorf("subject %s: its interval is negative: %s", args, sub.Interval)
		}
		run := runFor(t.class, slices.Concat(args, t.further))
		run.Queue, run.Again, run.Tenant = t.queue, t.again, sub.Tenant
		if err := checkTenant(run.Tenant); err != nil {
			return nil, err
		}
		subjects[i] = longstore.Subject{Run: run, Interval: max(time.Second, cmp.Or(sub.Interval, t.Interval))}
	}
	return subjects, nil
}

// failed notes an error of Each. The job fails only if the error differs from the one at the
// last tick: a database that is down for a day is one failure, not hundreds.
func (t *recurrence) failed(ctx context.Context, s *longstore.Store, err error) error {
	err = fmt.Errorf("the subjects of %s are not known: %w", t.class, err)
	if ctx.Err() != nil {
		return err // the job was killed
	}
	news, noted := s.RecurFailed(ctx, t.class, cut(err.Error()))
	if noted != nil || news {
		return err
	}
	return fmt.Errorf("%w: %w", resqued.Discard, err)
}

// Package handler runs the class of a job, a Go function or an external command, with middleware
// and hooks. Every problem, panics included, becomes an error that Describe turns into the
// fields of a failure record.
//
// The first command makes a Set start a goroutine locked to its own thread: commands must die
// with the worker process, and the kernel ties that to the thread that starts them. Close ends
// it.
package handler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// Options say how classes are run. The zero value is ready for Go functions.
type Options struct {
	// Commands are the classes of the configuration's handlers section. A class that is also
	// registered in Go is refused.
	Commands map[string]resqued.Class
	// KillGrace is how long a killed job may take before its process has to end
	// (resque_term_timeout). A command gets SIGKILL after half of it at the latest. 0 = only the
	// command's KillAfter counts.
	KillGrace time.Duration
	// Proc names the worker process, for RESQUED_PROC in the environment of commands.
	Proc string
	// Environ is the daemon's environment, the source of the commands'.
	Environ []string
	// Env selects from it.
	Env program.EnvRules
	// Runners perform the classes whose Command names one.
	Runners map[string]Runner
	// RunnerClasses are the classes and patterns that each runner performs; runners not listed
	// perform any.
	RunnerClasses map[string][]string
	// Stray, if not nil, is called for a job that looks like a slice of a long job but whose
	// class is unknown, or registered without slices. It returns false if the job is not a
	// slice.
	Stray func(ctx context.Context, job *resqued.Job) (err error, is bool)
	Log   *zap.Logger
}

// Runner performs jobs in long-lived processes; *runner.Pool implements it.
type Runner interface {
	// Perform blocks until the job has ended or no process performs it any more. When ctx ends,
	// the job is told to stop and gets killAfter for that. s is nil unless the job is a slice.
	// After a *jobctx.DeathError the job's progress is unknown.
	Perform(ctx context.Context, job *resqued.Job, killAfter time.Duration, s *cmdslice.Slice) error
	// Owns reports whether a process is its own; other code must not reap it.
	Owns(pid int) bool
}

// Set holds the classes that a worker process can run. All threads share it.
type Set struct {
	classes map[string]*entry
	names   []string
	// patterns are the entries with patterns as names, in order of precedence.
	patterns []*entry
	hooks    []resqued.Hooks
	runner   *runner
	stray    func(ctx context.Context, job *resqued.Job) (err error, is bool)
	log      *zap.Logger
}

// entry is a class and the function that performs it, with middleware.
type entry struct {
	class *resqued.Class
	run   resqued.Handler
	// only are the classes that its runner performs; nil = any.
	only []string
}

// New joins the classes registered in Go with the configuration's.
func New(h *resqued.Handlers, o Options) (*Set, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	s := &Set{
		classes: map[string]*entry{},
		hooks:   h.AllHooks(),
		runner:  newRunner(o),
		stray:   o.Stray,
		log:     o.Log,
	}
	for _, name := range h.Classes() {
		class, _ := h.Lookup(name)
		if err := s.add(*class, h.Middleware(), o.RunnerClasses); err != nil {
			return nil, err
		}
	}
	for name, class := range o.Commands {
		if s.classes[name] != nil {
			return nil, fmt.Errorf("class %q is registered in Go and named under handlers in the configuration: remove one of them", name)
		}
		class.Name = name
		if err := s.add(class, h.Middleware(), o.RunnerClasses); err != nil {
			return nil, err
		}
	}
	slices.Sort(s.names)
	for _, pattern := range selector.Patterns(s.names) {
		s.patterns = append(s.patterns, s.classes[pattern])
	}
	return s, nil
}

// Lookup returns the class for a payload's class name. A name that is not registered as spelled
// is resolved like in Ruby's Resque: without a leading "::", and foo-bar as FooBar. Then come
// the wrappers of an Active Job, as wire.Envelope has them, and last the patterns, longest
// first. A class that its runner does not perform is not found.
func (s *Set) Lookup(name string, wrappers ...string) (*resqued.Class, bool) {
	e := s.lookup(name, wrappers)
	if e == nil || !e.takes(name, wrappers) {
		return nil, false
	}
	return e.class, true
}

// Classes returns the names of all classes and patterns, sorted.
func (s *Set) Classes() []string { return slices.Clone(s.names) }

// Owns reports whether the process pid is the leader of a running command, or a runner's. Other
// code must not reap it.
func (s *Set) Owns(pid int) bool { return s.runner.owns(pid) }

// Close ends the goroutine that starts commands. No command may be performed afterwards.
func (s *Set) Close() { s.runner.launcher.Close() }

// Abandon suppresses the ends of jobs from now on: neither hooks nor callers of Perform see
// them. It is for a process about to end itself and its descendants, so that no job seems to
// have failed for that.
func (s *Set) Abandon() { s.runner.told.Lock() }

// Perform runs the job and calls done with its error when its code has returned; for a command,
// when its last process is gone. Everything happens on the caller's goroutine. If a handler ends
// that goroutine (runtime.Goexit), done is called, but Perform does not return.
//
// After ctx has ended, an error wraps the cause: ErrKilled, ErrTimeout or ErrLockLost. Requeue
// and Discard stay as they are. ctx must be from jobctx.WithJob.
func (s *Set) Perform(ctx context.Context, job *resqued.Job, done func(err error)) {
	left := true
	defer func() {
		if left {
			s.end(ctx, job, &GoexitError{stack: stack()}, done)
		}
	}()
	wrappers := jobctx.RunOf(job).Wrappers
	e := s.lookup(job.Class, wrappers)
	err, stray := s.strays(ctx, job, e)
	switch {
	case stray:
	case e == nil:
		err = newUnknownClass(job.Class, s.names)
	case !e.takes(job.Class, wrappers):
		err = &UnknownClassError{Class: job.Class, Runner: e.class.Command.Runner, Known: e.only[:min(len(e.only), shownClasses)], Others: max(0, len(e.only)-shownClasses)}
	default:
		err = s.survive(ctx, job, e)
	}
	left = false
	s.end(ctx, job, err, done)
}

// strays checks whether a job that this process cannot perform is a slice of a long job.
func (s *Set) strays(ctx context.Context, job *resqued.Job, e *entry) (err error, is bool) {
	const slice = 36 // the position of the dot in a slice's id, after the run's UUID
	if s.stray == nil || len(job.ID) <= slice+1 || job.ID[slice] != '.' || e != nil && e.class.Resumes && e.takes(job.Class, nil) {
		return nil, false
	}
	return s.stray(ctx, job)
}

func (s *Set) survive(ctx context.Context, job *resqued.Job, e *entry) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, stack: stack()}
		}
	}()
	return s.perform(ctx, job, e)
}

func (s *Set) end(ctx context.Context, job *resqued.Job, err error, done func(err error)) {
	s.runner.tells()
	if err != nil && isFailure(err) {
		s.tellFailure(ctx, job, err)
	}
	done(err)
}

// Refuse calls the failure hooks for a job that ends with err without being performed, because
// it could not get its class lock. It returns err, or a replacement if inspecting it panics.
func (s *Set) Refuse(ctx context.Context, job *resqued.Job, err error) error {
	if err = sound(err); isFailure(err) {
		s.tellFailure(ctx, job, err)
	}
	return err
}

func (s *Set) perform(ctx context.Context, job *resqued.Job, e *entry) error {
	timeout := e.class.Timeout
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, resqued.ErrTimeout)
		defer cancel()
		// The class lock may have a time limit, too.
		if end, _ := ctx.Deadline(); job.Deadline.IsZero() || end.Before(job.Deadline) {
			job.Deadline = end
		}
	}
	if e.class.MaxRun > 0 {
		var end func()
		ctx, end = leavingAfter(ctx, e.class.MaxRun)
		defer end()
	}
	err := sound(s.surrounded(ctx, job, e))
	if err != nil && ctx.Err() != nil && isFailure(err) {
		return stoppedBy(context.Cause(ctx), timeout, err)
	}
	return err
}

// leavingAfter returns a context whose job should also make room after d. The caller must call
// end.
func leavingAfter(ctx context.Context, d time.Duration) (leaving context.Context, end func()) {
	over, end := context.WithTimeout(jobctx.LeavingContext(ctx), d)
	return jobctx.WithLeaving(ctx, over), end
}

func (s *Set) surrounded(ctx context.Context, job *resqued.Job, e *entry) error {
	for _, h := range s.hooks {
		if h.BeforePerform == nil {
			continue
		}
		if err := h.BeforePerform(ctx, job); err != nil {
			return fmt.Errorf("before perform: %w", err)
		}
	}
	if err := e.run(ctx, job); err != nil {
		return err
	}
	for _, h := range s.hooks {
		if h.AfterPerform != nil {
			h.AfterPerform(ctx, job)
		}
	}
	return nil
}

// tellFailure runs the hooks for a failed job. The job's own error is what
// counts, so what goes wrong here is only logged.
func (s *Set) tellFailure(ctx context.Context, job *resqued.Job, failure error) {
	ctx = context.WithoutCancel(ctx)
	for _, h := range s.hooks {
		if h.OnFailure == nil {
			continue
		}
		err := Guard(func() error {
			h.OnFailure(ctx, job, failure)
			return nil
		})
		if err != nil {
			s.log.Error("the OnFailure hook broke", zap.String("class", wire.Printable(job.Class, 200)), zap.Error(err),
				zap.Strings("backtrace", backtraceOf(err)))
		}
	}
}

func (s *Set) add(class resqued.Class, middleware []resqued.Middleware, runnerClasses map[string][]string) error {
	run := class.Handler
	var only []string
	if class.Command != nil {
		c, err := newCommand(class, s.runner)
		if err != nil {
			return err
		}
		run, only = c.perform, runnerClasses[class.Command.Runner]
	}
	if run == nil {
		return fmt.Errorf("class %q has neither a function nor a command", class.Name)
	}
	for _, m := range slices.Backward(middleware) {
		run = m(run)
	}
	s.classes[class.Name] = &entry{class: &class, run: run, only: only}
	s.names = append(s.names, class.Name)
	return nil
}

func (s *Set) lookup(name string, wrappers []string) *entry {
	if e := s.classes[name]; e != nil { // as nearly always
		return e
	}
	if len(wrappers) == 0 && len(s.patterns) > 0 && !strings.HasPrefix(name, "::") && !strings.Contains(name, "-") { // it has one spelling
		return s.covering(name)
	}
	names := wire.ClassNames(name)
	for _, wrapper := range wrappers {
		names = append(names, wire.ClassNames(wrapper)...)
	}
	for _, n := range names {
		if e := s.classes[n]; e != nil {
			return e
		}
	}
	return s.covering(names...)
}

// covering returns the entry of the first pattern that matches any spelling of a class.
func (s *Set) covering(names ...string) *entry {
	for _, e := range s.patterns {
		for _, name := range names {
			if selector.Matches(e.class.Name, name) {
				return e
			}
		}
	}
	return nil
}

// takes reports whether the runner performs a class or one of its wrappers.
func (e *entry) takes(class string, wrappers []string) bool {
	return e.only == nil || wire.Performs(e.only, append([]string{class}, wrappers...)...)
}

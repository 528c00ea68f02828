// Package jobctx holds what the daemon attaches to a job and to the context of its handler.
// Programs read it through package resqued, which imports this package; the setters are here
// to stay out of the public API. Package resqued cannot be imported from here, so a
// *resqued.Job is passed as any.
package jobctx

import (
	"context"
	"reflect"
)

// Run describes one run of a job.
type Run struct {
	// Proc names the worker process, Token the job's reservation. Both are empty outside a daemon.
	Proc, Token string
	// Fence is the fencing token of the job.
	Fence int64
	// Wrappers are the classes around an Active Job, as in wire.Envelope.
	Wrappers []string
	// Refused is why the job must end without running; nil = it runs.
	Refused error
	// Interrupted: a job that succeeded has pushed the rest of its work.
	Interrupted bool
}

var runOf func(job any) *Run

// Provide sets how to find the Run of a *resqued.Job. Package resqued calls it once, in init.
func Provide(find func(job any) *Run) { runOf = find }

// RunOf returns the Run of a *resqued.Job. Until the job ends, only the code that performs it
// may change the Run. It panics if job is of another type.
func RunOf(job any) *Run { return runOf(job) }

var argsOf func(class any) reflect.Type

// ProvideArgs sets how to find the type of the arguments of a *resqued.Class. Package resqued
// calls it once, in init.
func ProvideArgs(find func(class any) reflect.Type) { argsOf = find }

// ArgsOf returns the type of the arguments of a *resqued.Class that resqued.Handle
// registered, or nil. It panics if class is of another type.
func ArgsOf(class any) reflect.Type { return argsOf(class) }

type jobKey struct{}

// WithJob returns a context that carries a *resqued.Job, for resqued.JobFrom.
func WithJob(ctx context.Context, job any) context.Context {
	return context.WithValue(ctx, jobKey{}, job)
}

// Job returns what WithJob has put into ctx, or nil.
func Job(ctx context.Context) any { return ctx.Value(jobKey{}) }

type leavingKey struct{}

// WithLeaving returns a context whose job should make room when leaving ends.
func WithLeaving(ctx, leaving context.Context) context.Context {
	return context.WithValue(ctx, leavingKey{}, leaving)
}

// LeavingContext returns the context that WithLeaving has put into ctx, or one that never ends.
func LeavingContext(ctx context.Context) context.Context {
	if leaving, ok := ctx.Value(leavingKey{}).(context.Context); ok {
		return leaving
	}
	return context.Background()
}

// Leaving returns the channel that is closed when the job of ctx should make room, or nil.
func Leaving(ctx context.Context) <-chan struct{} { return LeavingContext(ctx).Done() }

// Locks answers a handler's questions about class locks, for resqued.Locked, Enqueued,
// LonerLocked and RefreshLock.
type Locks interface {
	// Locked reports whether a job of the class with these arguments holds its lock.
	Locked(ctx context.Context, class string, args any) (bool, error)
	// Enqueued reports whether a loner job of the class with these arguments waits.
	Enqueued(ctx context.Context, class string, args any) (bool, error)
	// LonerLocked reports whether a job of the class with these arguments runs or, if
	// the class is a loner, waits.
	LonerLocked(ctx context.Context, class string, args any) (bool, error)
	// RefreshLock restarts the time limit of the lock of ctx's job.
	RefreshLock(ctx context.Context) error
}

type locksKey struct{}

// WithLocks returns a context whose handler asks l about class locks.
func WithLocks(ctx context.Context, l Locks) context.Context {
	return context.WithValue(ctx, locksKey{}, l)
}

// LocksFrom returns what WithLocks has put into ctx, or nil.
func LocksFrom(ctx context.Context) Locks {
	l, _ := ctx.Value(locksKey{}).(Locks)
	return l
}

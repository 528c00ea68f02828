// Package resqued contains what handlers of jobs need: the job and its arguments, the registry
// of handlers, their options (a timeout, a class lock, retries) and the errors that a handler
// may return. It imports only the standard library, so a program that registers handlers or
// enqueues jobs links no command line, no logger and no configuration library.
//
// A worker program registers its handlers and passes them to daemon.Main, which gives the
// program the whole resqued command line:
//
//	h := resqued.New()
//	resqued.Handle(h, "Mail", func(ctx context.Context, m Mail) error { ... })
//	daemon.Main(h)
//
// Package client enqueues jobs, package longjob runs jobs of hours or days in slices, and
// package locker is a lock in PostgreSQL that works without the daemon.
package resqued

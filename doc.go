// Package resqued is the vocabulary of the resqued job daemon: jobs, their
// arguments, the handlers that perform them and the errors that a handler may
// return. It imports the standard library only, so that a program which merely
// registers handlers or enqueues jobs pulls in no command line, no logger and
// no configuration library.
//
// A program of its own registers handlers and hands them to daemon.Main, which
// gives it the whole resqued command line:
//
//	h := resqued.New()
//	resqued.Handle(h, "Mail", func(ctx context.Context, m Mail) error { ... })
//	daemon.Main(h)
package resqued

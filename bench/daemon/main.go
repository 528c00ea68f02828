// Command daemon is the daemon of resqued that bench measures, with its worker processes. It is
// like a user's program with the handler of the bench's jobs.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/bench/job"
	"github.com/resqued/resqued/daemon"
)

func main() {
	handlers, err := handlers()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	daemon.Main(handlers)
}

func handlers() (*resqued.Handlers, error) {
	spec, err := job.FromEnv()
	if err != nil {
		return nil, err
	}
	shared, _, err := job.Open(spec.Shared)
	if err != nil {
		return nil, err
	}
	h := &job.Handler{Spec: spec, Shared: shared}
	handlers := resqued.New()
	if spec.Command {
		handlers.Hook(resqued.Hooks{
			BeforePerform: func(context.Context, *resqued.Job) error { shared.Begin(); return nil },
			AfterPerform:  func(context.Context, *resqued.Job) { shared.End() },
		})
	} else {
		resqued.Handle(handlers, job.Class, func(_ context.Context, a job.Args) error { return h.Perform(a.N) })
	}
	if spec.Profile != "" {
		handlers.Hook(resqued.Hooks{AfterFork: func(context.Context) error { return profile(shared, spec.Profile) }})
	}
	return handlers, nil
}

// profile records a CPU profile of a worker process until the measurement is over.
func profile(s *job.Shared, prefix string) error {
	f, err := os.Create(fmt.Sprintf("%s-%d.pprof", prefix, os.Getpid()))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	go func() {
		for s.Last.Load() == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		pprof.StopCPUProfile()
		_ = f.Close()
	}()
	return nil
}

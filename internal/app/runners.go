package app

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/runner"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/sys/program"
)

type pools map[string]*runner.Pool

// openRunners starts the processes of all runners of the configuration without waiting for them.
// Close the result.
func openRunners(h handover, handlers *resqued.Handlers, log *zap.Logger) (pools, error) {
	c, opened := h.Config, pools{}
	for _, name := range usedRunners(c, handlers) {
		o := runnerOptions(c, name)
		o.Log = log
		if fd, ok := h.Runners[name]; ok {
			syscall.CloseOnExec(fd)
			o.Requests = os.NewFile(uintptr(fd), "requests to fork")
		}
		p, err := runner.Open(o)
		if o.Requests != nil {
			_ = o.Requests.Close() // the pool has a copy
		}
		if err != nil {
			opened.close()
			return nil, err
		}
		opened[name] = p
	}
	return opened, nil
}

func runnerOptions(c config.Config, name string) runner.Options {
	r := c.Runners[name]
	o := runner.Options{
		Name: name, Argv: r.Command, Dir: r.Dir, Env: envList(r.Env), Environ: program.Scrub(os.Environ(), envRules(c)),
		Threads: c.ThreadCount, Concurrency: r.Concurrency, BootTimeout: r.BootTimeout,
		JobsPerRunner: r.JobsPerRunner, MaxRSS: r.MaxRSS, MaxAge: r.MaxAge, KillAfter: r.KillAfter, KillGrace: c.TermTimeout,
		Proc: os.Getenv(procfs.ProcEnv),
	}
	if o.JobsPerRunner == 0 {
		o.JobsPerRunner = c.JobsPerFork
	}
	return o
}

// envList returns variables as NAME=value, sorted.
func envList(env map[string]string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// usedRunners returns the sorted names of the configured runners that handlers in the
// configuration or the program use.
func usedRunners(c config.Config, handlers *resqued.Handlers) []string {
	used := map[string]bool{}
	for _, class := range classesOf(c, handlers) {
		if class.Command != nil {
			_, used[class.Command.Runner] = c.Runners[class.Command.Runner]
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(used)), func(name string) bool { return !used[name] })
}

// onlyRunners reports whether runners perform all classes, so that nothing works without them.
func onlyRunners(c config.Config, handlers *resqued.Handlers) bool {
	classes := classesOf(c, handlers)
	for _, class := range classes {
		if class.Command == nil || class.Command.Runner == "" {
			return false
		}
	}
	return len(classes) > 0
}

func (ps pools) await(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(ps)) {
		if err := ps[name].Await(ctx); err != nil {
			return &noRunnerError{err}
		}
	}
	return nil
}

// noRunnerError means that runners cannot be started, in any worker process.
type noRunnerError struct{ error }

// slots returns how many jobs the existing runners can have in hand: the most of any runner,
// because jobs of a runner that is away go back to their queues.
func (ps pools) slots() (most int) {
	for _, p := range ps {
		most = max(most, p.Slots())
	}
	return most
}

// changed returns a channel that is signalled when slots may have changed. Its goroutines end
// with the process.
func (ps pools) changed() <-chan struct{} {
	if len(ps) == 1 {
		for _, p := range ps {
			return p.Changed()
		}
	}
	any := make(chan struct{}, 1)
	for _, p := range ps {
		go func() {
			for range p.Changed() {
				select {
				case any <- struct{}{}:
				default:
				}
			}
		}()
	}
	return any
}

// hooks notifies the runners of pauses.
func (ps pools) hooks() resqued.Hooks {
	tell := func(paused bool) func() {
		return func() {
			for _, p := range ps {
				p.Tell(paused)
			}
		}
	}
	return resqued.Hooks{BeforePause: tell(true), AfterPause: tell(false)}
}

// describe lists the processes of all runners as JSON, for store.InfoRunners.
func (ps pools) describe() string {
	shown := []store.RunnerInfo{}
	for _, name := range slices.Sorted(maps.Keys(ps)) {
		list, trouble := ps[name].Info()
		for _, q := range list {
			state := store.RunnerIdle
			switch {
			case !q.Ready:
				state = store.RunnerBooting
			case q.Leaving:
				state = store.RunnerLeaving
			case q.Busy > 0:
				state = store.RunnerBusy
			}
			// Whole MiB: a beat sends them only when something has changed.
			shown = append(shown, store.RunnerInfo{
				Runner: name, PID: q.PID, State: state, Busy: q.Busy, Slots: q.Slots, Jobs: q.Jobs, Tokens: q.Tokens, RSS: q.RSS >> 20 << 20, Forked: q.Forked,
			})
		}
		if trouble != "" && len(list) == 0 {
			shown = append(shown, store.RunnerInfo{Runner: name, State: store.RunnerFailed, Why: trouble})
		}
	}
	text, err := json.Marshal(shown)
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return string(text)
}

// byName returns the runners for package handler.
func (ps pools) byName() map[string]handler.Runner {
	named := make(map[string]handler.Runner, len(ps))
	for name, p := range ps {
		named[name] = p
	}
	return named
}

// close makes all processes leave at the same time, and returns when they are gone.
func (ps pools) close() {
	var done sync.WaitGroup
	for _, p := range ps {
		done.Go(p.Close)
	}
	done.Wait()
}

// abandon kills all processes, for a worker process that ends itself.
func (ps pools) abandon() {
	for _, p := range ps {
		p.Abandon()
	}
}

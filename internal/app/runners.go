package app

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/runner"
	"github.com/resqued/resqued/internal/selector"
)

// pools are the runners of a worker process, by name.
type pools map[string]*runner.Pool

// openPools starts the runners of a worker process that its handlers name. The descriptors of the
// sockets to their templates are in requests.
func openPools(c config.Config, requests map[string]int, log *zap.Logger) (p pools, err error) {
	p = pools{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for _, name := range usedRunners(c) {
		r, ok := c.Runners[name]
		if !ok {
			return p, fmt.Errorf("runner %q is not there: add it under runners in the configuration", name)
		}
		o := runnerOptions(c, name, r)
		o.Log = log
		if fd, ok := requests[name]; ok {
			unix.CloseOnExec(fd)
			o.Requests = os.NewFile(uintptr(fd), "socket to the template of runner "+name)
		}
		p[name], err = runner.Open(o)
		if o.Requests != nil {
			_ = o.Requests.Close() // the pool has its own
		}
		if err != nil {
			delete(p, name)
			return p, err
		}
	}
	return p, nil
}

// usedRunners returns the names of the runners that handlers name, sorted.
func usedRunners(c config.Config) []string {
	used := map[string]bool{}
	for _, h := range c.Handlers {
		if h.Runner != "" {
			used[h.Runner] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

func runnerOptions(c config.Config, name string, r config.Runner) runner.Options {
	concurrency := max(1, r.Concurrency)
	jobs := r.JobsPerRunner
	if jobs == 0 {
		jobs = c.JobsPerFork
	}
	o := runner.Options{
		Name: name, Argv: r.Command, Dir: r.Dir, Env: runnerEnviron(c, r),
		Processes: (c.ThreadCount + concurrency - 1) / concurrency, Concurrency: concurrency,
		BootTimeout: r.BootTimeout, Jobs: jobs, MaxRSS: r.MaxRSS, MaxAge: r.MaxAge,
		Proc: os.Getenv(procfs.ProcEnv),
	}
	if len(r.Classes) > 0 {
		o.Knows = func(class string) bool { return selector.MatchAny(r.Classes, class) }
	}
	return o
}

// runnerEnviron returns the environment of a runner and its template, without what the protocol
// adds.
func runnerEnviron(c config.Config, r config.Runner) []string {
	env := handler.Scrub(os.Environ(), envRules(c))
	for _, key := range slices.Sorted(maps.Keys(r.Env)) {
		env = append(env, key+"="+r.Env[key])
	}
	return env
}

// handlers returns the pools as package handler wants them.
func (p pools) handlers() map[string]handler.Runner {
	all := make(map[string]handler.Runner, len(p))
	for name, pool := range p {
		all[name] = pool
	}
	return all
}

// await waits until the first runner of each is ready.
func (p pools) await(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if err := p[name].Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p pools) close() {
	for _, pool := range p {
		pool.Close()
	}
}

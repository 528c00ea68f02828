package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/sys/proc"
)

func (a *cli) workCommand() *cobra.Command {
	c := a.command(verb{
		use: "work", kind: daemon, short: "run the daemon: a master and its worker processes",
		long: `Work jobs until told to stop. QUIT finishes running jobs and leaves, TERM and
INT kill them and leave, USR1 kills them and continues, USR2 pauses, CONT
resumes. HUP reads the configuration again and replaces the worker processes
one by one, or changes to a new program on disk ("reload" does so and waits).

Every flag below is also a key of the configuration file (worker_count) and an
environment variable (RESQUED_WORKER_COUNT, or Resque's WORKER_COUNT). "resqued
config show" prints the result.

With several stores, a daemon works the one that --store names.

--runner is the command of a runner, a process that stays and performs the
classes of Ruby, Python or Node without a handler (docs/runners.md).

Exit codes: 0 stopped on request or, with --until-empty, out of jobs; 1 broken;
2 wrong configuration; 78 no worker process can use the configuration.`,
		example: "  WORKER_COUNT=4 THREAD_COUNT=8 QUEUES=critical,mail:8 " + a.name + " work\n" +
			"work --queues '*' \\\n    --runner 'bundle exec resqued-runner config/environment'",
		do: a.work,
	})
	config.AddFlags(c.Flags())
	config.AddRunnerFlag(c.Flags())
	_ = c.RegisterFlagCompletionFunc("queues", a.live(queueNames))
	return c
}

func (a *cli) work(c *cobra.Command, _ []string) error {
	r, err := a.loadOne(c, config.Options{NeedQueues: true, RunsPrograms: true}, "a daemon works")
	if err != nil {
		return err
	}
	if err := a.checkServers(r.Config); err != nil {
		return err
	}
	log, level := a.daemonLog(c, r)
	defer func() { _ = log.Sync() }()
	if r.File != "" {
		log.Info("configuration", zap.String("file", r.File), zap.Stringer("by", r.Sources[config.ConfigFlag]))
	}
	a.logWarnings(r, log)
	d := app.Daemon{
		Config: r, Log: log, Level: level, Elder: a.elder,
		Reload: func(context.Context) (*config.Resolved, error) { return a.reload(c, r, log) },
	}
	d.Remember()
	for _, hint := range hints(r, a.name) {
		log.Info(hint)
	}
	if err := r.CheckPIDFile(); err != nil { // before waiting for Redis
		return configProblem(err)
	}
	file, remove, err := pidFile(r.PIDFile, a.elder, log)
	if err != nil {
		return err
	}
	defer remove()
	d.PIDFile = file
	return a.serve(c.Context(), d)
}

// pidFile writes the pid file, or prepares to take it over from the previous master, and returns a
// function that removes it. Without a path it does nothing.
func pidFile(path string, elder *app.Elder, log *zap.Logger) (file *proc.PIDFile, remove func(), err error) {
	switch {
	case path == "":
		return nil, func() {}, nil
	case elder != nil:
		file, err = proc.PreparePIDFile(path, elder.PID())
	default:
		file, err = proc.WritePIDFile(path)
	}
	return file, func() {
		if err := file.Remove(); err != nil {
			log.Warn("left behind", zap.Error(err))
		}
	}, err
}

func (a *cli) serve(ctx context.Context, d app.Daemon) error {
	if a.received == nil {
		return errors.New("no signals: this verb runs from the program's own command line only")
	}
	defer a.hush()
	d.Program, d.Signals = a.program(), a.received
	err := d.Run(ctx)
	if errors.Is(err, app.ErrWorkerConfig) {
		return &problem{exit: app.ExitConfig, code: "config", lines: []string{err.Error()}, cause: err}
	}
	return err
}

// reload rereads the configuration with the flags of the start. The Redis and the namespace cannot
// change, because the master keeps its connection.
func (a *cli) reload(c *cobra.Command, old *config.Resolved, log *zap.Logger) (*config.Resolved, error) {
	r, err := a.loadOne(c, old.Again(config.Options{NeedQueues: true, RunsPrograms: true}), "a daemon works")
	if err != nil {
		return nil, err
	}
	if r.RedisURL != old.RedisURL || r.Namespace != old.Namespace {
		return nil, usage("", "redis_url and namespace cannot change while the daemon runs: restart it")
	}
	if err := configProblem(a.program().CheckDatabase(r.Config)); err != nil {
		return nil, err
	}
	a.logSettings(c, r)
	a.logWarnings(r, log)
	return r, nil
}

// logWarnings logs what may not be intended, and which queues are worked if only handlers name any.
func (a *cli) logWarnings(r *config.Resolved, log *zap.Logger) {
	for _, w := range append(r.Warnings, a.program().Warnings(r)...) {
		log.Warn(w.Message, zap.String("key", w.Key))
	}
	if r.Sources["queues"].Kind == config.FromHandlers {
		log.Info("queues are those of the handlers, in this order of priority; queues: would say otherwise", zap.Stringer("queues", r.Queues))
	}
}

func (out *output) daemonLog(c *cobra.Command, r *config.Resolved) (*zap.Logger, zap.AtomicLevel) {
	out.logSettings(c, r)
	log, atLeast := app.NewLogger(os.Stderr, r.LogFormat, r.LogLevel)
	if r.Store != "" {
		log = log.With(zap.String("store", r.Store))
	}
	return log, atLeast
}

// logSettings applies -q, -v and -o to the log settings of all processes. --log-level wins.
func (out *output) logSettings(c *cobra.Command, r *config.Resolved) {
	if f := c.Flags().Lookup("log-level"); f == nil || !f.Changed {
		switch {
		case out.flags.quiet:
			r.LogLevel = "warn"
		case out.flags.verbose:
			r.LogLevel = "debug"
		}
	}
	if out.flags.output == outJSON && r.LogFormat == "auto" {
		r.LogFormat = "json"
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
)

const (
	// largeServer is the number of keys above which searching the measurement's keys takes long.
	largeServer = 5_000_000
	mostBench   = 5 * time.Minute
	// wellTuned is the part of the tuned rate that counts as equally good.
	wellTuned = 0.7
	// farAway is the round trip, in milliseconds, above which it dominates.
	farAway = 2
)

type benchOptions struct {
	time       time.Duration
	jobs       int
	yes, clean bool
}

func (a *cli) benchCommand() *cobra.Command {
	var o benchOptions
	c := a.command(verb{
		use: "bench", kind: daemon, short: "measure what this machine and this Redis can do",
		long: `Measure three daemons on jobs that do nothing: with the defaults (1 process × 1
thread × 1 job), with this configuration, and tuned for this machine. Then
recommend settings. None of your code or commands runs.

Each daemon loads Redis for at most --time and --jobs. All keys are in a
separate namespace, <namespace>:resqued-bench:…, and are removed at the end,
also after ^C. If Redis is on another machine, busy, very large, or used by
other daemons, bench asks first; without a terminal it needs --yes.

--clean removes what a killed bench left behind.`,
		example: "bench\nbench --dev\nbench -w 4 -t 8 --jobs-per-fork 1000 --yes -o json",
		flags: func(f *flagSet) {
			f.DurationVar(&o.time, "time", 2*time.Second, "time per daemon")
			f.IntVar(&o.jobs, "jobs", 200_000, "most jobs per daemon")
			f.BoolVar(&o.yes, "yes", false, "do not ask")
			f.BoolVar(&o.clean, "clean", false, "only remove what a killed bench left behind")
		},
		do: func(c *cobra.Command, _ []string) error { return a.bench(c, o) },
	})
	config.AddFlags(c.Flags())
	for _, k := range []string{"queues", "interval", "until-empty", "pidfile", "statsd-host", "statsd-port", "statsd-key", "max-age", "max-retiring", "drain-timeout", "log-level"} {
		_ = c.Flags().MarkHidden(k)
	}
	return c
}

type benchReport struct {
	Redis app.BenchServer `json:"redis"`
	Runs  []app.BenchRun  `json:"runs"`
	// Recommendation says what to set, Tuned has the values.
	Recommendation string        `json:"recommendation"`
	Tuned          config.Tuning `json:"tuned"`
}

func (a *cli) bench(c *cobra.Command, o benchOptions) error {
	if o.time < 100*time.Millisecond || o.time > mostBench {
		return usage("", "--time %s: 100ms to %s", o.time, mostBench)
	}
	if o.jobs < 1 {
		return usage("", "--jobs %d: 1 or more", o.jobs)
	}
	r, err := a.loadOne(c, config.Options{}, "a measurement needs")
	if err != nil {
		return err
	}
	log, _ := app.NewLogger(os.Stderr, r.LogFormat, "error")
	defer func() { _ = log.Sync() }()
	b := &app.Bench{Program: a.program(), Config: r.Config, For: o.time, Jobs: o.jobs, Log: log}
	if err := b.Open(); err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	ctx, stop := benchContext(c.Context(), a.received, b)
	defer stop()
	if o.clean {
		n, err := b.Sweep(ctx)
		if err != nil {
			return err
		}
		if a.flags.output == outJSON {
			return a.printJSON(map[string]int{"removed": n})
		}
		return a.printText("removed " + plural(n, "key") + "\n")
	}
	report := benchReport{Tuned: app.Tuning(), Runs: []app.BenchRun{}}
	if report.Redis, err = b.Server(ctx); err != nil {
		if errors.Is(err, errInterrupted) {
			return failure("interrupted", "", "interrupted")
		}
		return err
	}
	if why := disturbs(r, a.dev, report.Redis); why != "" && !o.yes {
		what := "load Redis for some seconds, although " + why
		if in, ok := a.stdin.(*os.File); !ok || !isTerminal(in) {
			return usage("To do it: --yes. To measure another Redis: --redis-url, or --dev next to a running \""+a.name+" dev\".", "this would %s", what)
		}
		if err := a.confirm(false, what); err != nil {
			return err
		}
	}
	err = a.measure(ctx, b, benchTunings(r, report.Tuned), &report)
	left := removeBench(ctx, b, a.again())
	switch {
	case errors.Is(err, errInterrupted):
		return errors.Join(failure("interrupted", "", "interrupted; its keys are removed"), left)
	case err != nil || left != nil:
		return errors.Join(err, left)
	}
	report.Recommendation = recommend(report)
	if a.flags.output == outJSON {
		return a.printJSON(report)
	}
	return a.printText(a.benchTable(report))
}

func removeBench(ctx context.Context, b *app.Bench, name string) error {
	_, err := b.Remove(ctx)
	if err == nil {
		_, err = b.Remove(ctx) // what a process may have written late
	}
	if err == nil {
		return nil
	}
	p := failure("left_behind", "Remove them: "+name+" bench --clean", "keys of %s:* are left in Redis: %v", b.Namespace(), err)
	p.cause = err
	return p
}

var errInterrupted = errors.New("interrupted")

// benchContext returns a context that ends with the first signal to end; others are the daemon's.
func benchContext(parent context.Context, received <-chan os.Signal, b *app.Bench) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-received:
				if slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP}, sig) {
					cancel(errInterrupted)
				} else {
					b.Signal(sig)
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		close(done)
		cancel(nil)
	}
}

func disturbs(r *config.Resolved, dev bool, s app.BenchServer) string {
	var why []string
	if !dev && !isLocal(r.RedisURL) {
		why = append(why, s.Where+" is another machine")
	}
	if !dev && s.Others > 0 {
		why = append(why, plural(s.Others, "worker")+" work"+map[bool]string{true: "s"}[s.Others == 1]+" for it")
	}
	if s.PerSecond > app.BusyServer {
		why = append(why, fmt.Sprintf("it runs %d commands a second for others", s.PerSecond))
	}
	if s.Keys > largeServer {
		why = append(why, fmt.Sprintf("all of its %d keys will be looked at", s.Keys))
	}
	return strings.Join(why, " and ")
}

func isLocal(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "unix":
		return true
	case "redis", "rediss":
		ip := net.ParseIP(u.Hostname())
		return u.Hostname() == "localhost" || u.Hostname() == "" || ip != nil && ip.IsLoopback()
	}
	return false // the other schemes have several servers
}

type namedTuning struct {
	name string
	config.Tuning
}

// benchTunings returns the daemons to measure, without duplicates.
func benchTunings(r *config.Resolved, tuned config.Tuning) (list []namedTuning) {
	own := config.Tuning{WorkerCount: r.WorkerCount, ThreadCount: r.ThreadCount, JobsPerFork: r.JobsPerFork, MaxRSS: r.MaxRSS}
	for _, t := range []namedTuning{{"defaults", config.Tuning{WorkerCount: 1, ThreadCount: 1, JobsPerFork: 1}}, {"this configuration", own}, {"tuned", tuned}} {
		same := func(o namedTuning) bool {
			return o.WorkerCount == t.WorkerCount && o.ThreadCount == t.ThreadCount && o.JobsPerFork == t.JobsPerFork
		}
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].name += ", " + t.name
			continue
		}
		list = append(list, t)
	}
	return list
}

func (out *output) measure(ctx context.Context, b *app.Bench, tunings []namedTuning, report *benchReport) error {
	for _, t := range tunings {
		switch {
		case out.flags.verbose:
			_, _ = fmt.Fprintf(out.stderr, "measuring %s in %s\n", t.name, b.Namespace())
		case !out.flags.quiet && isTerminal(out.stderr):
			_, _ = fmt.Fprintf(out.stderr, "\r\x1b[K%s …", t.name)
		}
		run, err := b.Measure(ctx, t.name, t.Tuning)
		if err != nil {
			return err
		}
		report.Runs = append(report.Runs, run)
	}
	if !out.flags.verbose && !out.flags.quiet && isTerminal(out.stderr) {
		_, _ = fmt.Fprint(out.stderr, "\r\x1b[K")
	}
	return nil
}

func (out *output) benchTable(r benchReport) string {
	l := newListing("DAEMON, >PROCESSES, >THREADS, >JOBS/PROCESS, >JOBS/S, >REDIS µs/JOB, >COMMANDS/JOB")
	for _, run := range r.Runs {
		cost := func(v float64) string {
			if v == 0 {
				return ""
			}
			return significant(v)
		}
		l.add(run.Name, run, run.Name, fmt.Sprint(run.WorkerCount), fmt.Sprint(run.ThreadCount), fmt.Sprint(run.JobsPerFork),
			significant(run.Rate), cost(run.Micros), cost(run.Commands))
	}
	version := ""
	if r.Redis.Version != "" {
		version = " (" + r.Redis.Version + ")"
	}
	return fmt.Sprintf("redis %s%s: an answer takes %s ms, the slowest hundredth %s ms\n\n%s\n%s\n",
		r.Redis.Where, version, significant(r.Redis.P50), significant(r.Redis.P99), out.table(l), r.Recommendation)
}

// significant formats a number with about three significant digits.
func significant(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func recommend(r benchReport) string {
	best := r.Runs[len(r.Runs)-1]
	own := best
	for _, run := range r.Runs {
		if strings.Contains(run.Name, "this configuration") {
			own = run
		}
	}
	var b strings.Builder
	set := fmt.Sprintf("worker_count: %d, thread_count: %d, jobs_per_fork: %d", r.Tuned.WorkerCount, r.Tuned.ThreadCount, r.Tuned.JobsPerFork)
	if own.Rate >= wellTuned*best.Rate {
		b.WriteString("This configuration is as good as one for this machine: leave it as it is.")
	} else {
		fmt.Fprintf(&b, "Set %s: that works %s times as many of these jobs as this configuration. Jobs must be able to share a process.",
			set, significant(best.Rate/own.Rate))
	}
	if own.Micros > 0 {
		fmt.Fprintf(&b, "\nAt %s µs for a job this Redis ends at most %s jobs a second of this configuration, however many machines work.",
			significant(own.Micros), significant(1e6/own.Micros))
	}
	if r.Redis.P50 > farAway {
		fmt.Fprintf(&b, "\nRedis is far away (%s ms): more threads make up for that, a Redis that is nearer for more.", significant(r.Redis.P50))
	}
	b.WriteString("\nJobs that do something gain less, the more the longer they take.")
	return b.String()
}

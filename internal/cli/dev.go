package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/devredis"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/wire"
)

const devVerb = "dev"

// devDefaults are the defaults of "resqued dev". Its terminal shows ended jobs, so it logs errors
// only.
var devDefaults = map[string]string{
	"worker_count": "2", "thread_count": "4", "jobs_per_fork": "100", "queues": "*",
	"log_level": "error", "log_format": "text",
}

// devIgnores are flags without effect on "resqued dev", which has its own Redis and terminal.
var devIgnores = []string{"redis-password-file", "redis-ca-file", "allow-eviction", "on-master-death", "pidfile", "control-socket"}

func (a *cli) devCommand() *cobra.Command {
	var o devOptions
	c := a.command(verb{
		use: devVerb, kind: daemon, short: "try it: Redis, workers, demo jobs and a dashboard",
		long: `Run a daemon with its own Redis and show every finished job. The Redis is a
private redis-server if one is installed, else a built-in one. It listens on
127.0.0.1 only, and its data is lost at the end. Handlers come from the
configuration file, this program and a demo set. By default it works all queues
with 2 processes of 4 threads, each process for 100 jobs. --runner performs the
classes of an application (docs/runners.md). -v also shows the log, with the
output of commands.

The dashboard listens on 127.0.0.1 only; any user of this machine can change
things there.

The first ^C finishes running jobs, the second kills them.`,
		example: "dev\ndev --runner 'bundle exec resqued-runner config/environment'\nenqueue Hello you --dev        (in another terminal)",
		flags: func(f *flagSet) {
			f.BoolVar(&o.noDemo, "no-demo", false, "enqueue no demo jobs")
			f.BoolVar(&o.noWeb, "no-web", false, "start no dashboard")
			f.StringVar(&o.webListen, "web-listen", webListen, "`address` of the dashboard (if unset and taken: another port)")
		},
		do: func(c *cobra.Command, _ []string) error { return a.runDev(c, o) },
	})
	config.AddFlags(c.Flags())
	config.AddRunnerFlag(c.Flags())
	for _, name := range devIgnores {
		_ = c.Flags().MarkHidden(name)
	}
	return c
}

// devOptions are the flags of "resqued dev" that are not configuration.
type devOptions struct {
	noDemo, noWeb bool
	webListen     string
}

func (a *cli) runDev(c *cobra.Command, o devOptions) error {
	switch {
	case a.dev:
		return usage("", "dev brings a Redis of its own: leave --dev out")
	case c.Flags().Changed("redis-url"):
		return usage("To work the jobs of another one: "+a.name+" work", "dev brings a Redis of its own: leave --redis-url out")
	}
	r, err := a.loadAs(c, config.Options{NeedQueues: true, RunsPrograms: true, Defaults: devDefaults})
	if err != nil {
		return err
	}
	log, level := a.daemonLog(c, r)
	defer func() { _ = log.Sync() }()
	for _, w := range r.Warnings {
		a.warn("%s", w.Message)
	}
	redis, err := devredis.Start(c.Context(), devredis.Options{Dir: devDir(), Log: log})
	if err != nil {
		return err
	}
	defer redis.Stop()
	useDevRedis(r, redis.URL)
	// Without its Redis, a worker process would wait for ever.
	r.OnMasterDeath = "kill"

	d := &devRun{cli: a, redis: redis, config: r.Config}
	d.banner()
	if !o.noWeb {
		dashboard, err := d.startWeb(o.webListen, c.Flags().Changed("web-listen"), log)
		if err != nil {
			return err
		}
		defer dashboard.stop()
	}
	var helpers sync.WaitGroup
	defer helpers.Wait()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	return a.serve(c.Context(), app.Daemon{
		Config: r, Log: log, Level: level, Dev: &app.DevMode{Redact: r.Redact, JSON: a.flags.output == outJSON, Colour: a.coloured},
		Ready: func() {
			d.tryIt()
			if !o.noDemo && d.config.Works(app.DemoQueue) {
				helpers.Go(func() { d.demo(ctx, log) })
			}
		},
		Stopping: func() {
			cancel()
			if isTerminal(a.stdout) {
				_ = a.printText("\r") // over the "^C" that the terminal shows
			}
			d.say("stopping", "running jobs may finish; ^C again kills them", map[string]any{})
		},
	})
}

type devRun struct {
	cli    *cli
	redis  *devredis.Server
	config config.Config
}

func (d *devRun) banner() {
	note := "in memory, lost on exit"
	if d.redis.Kind == "miniredis" {
		note = "built in, for a first look only: install redis-server for more; lost on exit"
	}
	d.say("redis", fmt.Sprintf("%s at %s (%s)", d.redis.Kind, d.redis.Addr, note),
		map[string]any{"kind": d.redis.Kind, "url": d.redis.URL})
	d.say("workers", fmt.Sprintf("%d processes × %d threads, queues %s", d.config.WorkerCount, d.config.ThreadCount, d.config.Queues),
		map[string]any{"processes": d.config.WorkerCount, "threads": d.config.ThreadCount, "queues": d.config.Queues.String()})
}

// tryIt prints a command that enqueues a job for this daemon, preferably of its own classes.
func (d *devRun) tryIt() {
	job := d.ownJob()
	switch {
	case job != "":
	case d.config.Works(app.DemoQueue):
		job = "Hello you"
	default:
		return
	}
	command := fmt.Sprintf("%s enqueue %s %s", invocation(d.cli.name), job, devFlags(d.cli.loaded))
	d.say("try", command, map[string]any{"command": command})
}

// ownJob returns a class of the configuration or of the program, with --queue if it names no
// worked queue; "" if no such job would be worked.
func (d *devRun) ownJob() string {
	queue := ""
	for _, p := range d.config.Queues.Patterns {
		if !p.Glob {
			queue = p.Text
			break
		}
	}
	if queue == "" && d.config.Works(devQueue) {
		queue = devQueue
	}
	classes := slices.Concat(slices.Sorted(maps.Keys(d.config.Handlers)), d.cli.handlers.Classes())
	patterns := len(classes)
	classes = slices.DeleteFunc(classes, selector.IsPattern)
	if len(classes) == 0 && patterns > 0 { // an application's, whose classes are unknown here
		classes = []string{"CLASS"}
	}
	for _, class := range classes {
		if own := d.cli.program().QueueOf(d.config, class); own != "" && d.config.Works(own) {
			return class + " ARG…"
		}
	}
	if len(classes) == 0 || queue == "" {
		return ""
	}
	return fmt.Sprintf("%s ARG… --queue %s", classes[0], queue)
}

// say prints a line: a word and a text, or an event in JSON.
func (d *devRun) say(word, text string, fields map[string]any) {
	line := d.cli.label("", word) + text + "\n"
	if d.cli.flags.output == outJSON {
		fields["event"] = word
		if encoded, err := encodeJSON(fields); err == nil {
			line = string(encoded)
		}
	}
	// A terminal that has gone must not stop the jobs.
	_ = d.cli.printText(line)
}

func (d *devRun) demo(ctx context.Context, log *zap.Logger) {
	s, err := app.OpenStore(d.config, "resqued-demo")
	if err != nil {
		log.Warn("no demo jobs", zap.Error(err))
		return
	}
	defer func() { _ = s.Close() }()
	c, err := client.New(client.Options{URL: d.config.RedisURL, Namespace: d.config.Namespace})
	if err != nil {
		log.Warn("no demo jobs", zap.Error(err))
		return
	}
	defer func() { _ = c.Close() }()
	app.EnqueueDemo(ctx, s, c)
}

// invocation returns a command that runs this program again, also if "go run" has built it.
func invocation(name string) string {
	path, err := os.Executable()
	info, ok := debug.ReadBuildInfo()
	if err != nil || !ok || !strings.Contains(filepath.ToSlash(path), "/go-build") {
		return name
	}
	pkg, inModule := strings.CutPrefix(info.Path, info.Main.Path)
	if !inModule {
		return name
	}
	return "go run ." + pkg
}

// eventBuffer is how many lines wait for a slow terminal. Others are dropped, so that jobs
// continue.
const eventBuffer = 256

// eventPatience is how long a process that ends waits for such a terminal.
const eventPatience = time.Second

type event struct {
	Event string          `json:"event"`
	Class string          `json:"class"`
	Args  json.RawMessage `json:"args"`
	Queue string          `json:"queue"`
	MS    int64           `json:"ms"`
	Error string          `json:"error,omitempty"`
}

// eventWriter prints each finished job in one write, so that lines of several processes don't mix.
type eventWriter struct {
	mode  app.DevMode
	lines chan string
	done  chan struct{}
}

func newEventWriter(mode app.DevMode) app.Observer {
	e := &eventWriter{mode: mode, lines: make(chan string, eventBuffer), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for line := range e.lines {
			_, _ = io.WriteString(os.Stdout, line)
		}
	}()
	return e
}

// Observe is called by the worker process's loop and never blocks.
func (e *eventWriter) Observe(ev app.Ended) {
	select {
	case e.lines <- e.line(ev):
	default:
	}
}

// Close waits at most eventPatience for the remaining lines: the output may be stopped.
func (e *eventWriter) Close() {
	close(e.lines)
	select {
	case <-e.done:
	case <-time.After(eventPatience):
	}
}

func (e *eventWriter) line(ev app.Ended) string {
	args := e.mode.Redact.Args(ev.Job.Class, json.RawMessage(ev.Job.Args.String()))
	failure := ""
	if ev.Err != nil {
		failure = ev.Err.Error()
	}
	if e.mode.JSON {
		text, err := encodeJSON(event{
			Event: ev.Result, Class: ev.Job.Class, Args: args, Queue: ev.Job.Queue,
			MS: ev.Ran.Milliseconds(), Error: failure,
		})
		if err != nil {
			return ""
		}
		return string(text)
	}
	colour, note := "", ""
	switch ev.Result {
	case app.Done:
		colour = green
	case app.Retried:
		note = "  " + wire.Printable(filter.Summary(failure), 200)
	case app.Failed:
		colour, note = red, "  "+wire.Printable(filter.Summary(failure), 200)
	}
	word := ev.Result
	out := output{coloured: e.mode.Colour}
	return out.label(colour, word) + jobText(ev.Job.Class, string(args)) + " " + milliseconds(ev.Ran) + note + "\n"
}

// label is the first word of a line of "resqued dev", padded to its column.
func (out *output) label(colour, word string) string {
	return out.paint(colour, word) + strings.Repeat(" ", max(1, 11-len(word)))
}

func milliseconds(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

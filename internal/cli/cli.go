// Package cli is resqued's command line: verbs, which read flags, call package view, a client or
// package app, and print; verbs.go says how they are declared. Only this package uses cobra.
// Results go to standard output, everything else to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

type cli struct {
	output
	handlers *resqued.Handlers
	args     []string
	stdin    io.Reader
	dev      bool
	// places are where an unnamed configuration is looked for.
	places config.Places
	// loaded is the verb's configuration, nil until it is read.
	loaded *config.Resolved
	// received are a daemon's signals, hush restores their default effects; see listen.
	received <-chan os.Signal
	hush     func()
	// acts are the verb's events; see did.
	acts []store.Event
	// elder is the master that this one replaces; nil = none.
	elder *app.Elder
}

// Main runs the command line with the arguments after the program's name and returns the exit
// code. In a worker process that a master has started, it runs that instead.
func Main(handlers *resqued.Handlers, args []string) int {
	return mainIn(config.SystemPlaces(), handlers, args)
}

// mainIn is Main with the places where an unnamed configuration is looked for.
func mainIn(places config.Places, handlers *resqued.Handlers, args []string) int {
	if app.IsWorker() {
		return app.Program{Version: version(), Handlers: handlers}.RunWorker(newEventWriter)
	}
	a := &cli{
		handlers: handlers, args: args, stdin: os.Stdin, places: places,
		output: output{name: filepath.Base(os.Args[0]), stdout: os.Stdout, stderr: os.Stderr},
	}
	if err := a.listen(); err != nil {
		return a.report(err)
	}
	return a.run(context.Background())
}

// listen starts to receive signals if this may become a daemon. It does not wait for the arguments
// to be parsed: an earlier signal would end the process, or make Go dump its stacks. It fails in a
// master that should replace another one but cannot reach it, since both would work at once.
func (a *cli) listen() (err error) {
	args := a.args
	if i := slices.Index(args, "--"); i >= 0 { // the rest is another program's
		args = args[:i]
	}
	if slices.Contains(args, "work") || slices.Contains(args, "dev") || slices.Contains(args, "bench") {
		a.received, a.hush = app.Listen()
	}
	if slices.Contains(args, "work") {
		a.elder, err = app.InheritElder()
	}
	return err
}

// again returns the start of a command to copy, so that it reaches the same Redis.
func (a *cli) again() string {
	if !a.dev {
		if a.loaded != nil && a.loaded.Store != "" {
			return a.name + " --" + config.StoreFlag + " " + a.loaded.Store
		}
		return a.name
	}
	return invocation(a.name) + " " + devFlags(a.loaded)
}

func devFlags(r *config.Resolved) string {
	if r == nil || r.Namespace == client.DefaultNamespace {
		return "--dev"
	}
	return "--dev --namespace " + view.Shell(r.Namespace)
}

func (a *cli) program() app.Program {
	return app.Program{Name: a.name, Version: version(), Handlers: a.handlers, Demo: a.dev}
}

func (a *cli) run(ctx context.Context) int {
	// The daemon logs the Redis client's messages. Other verbs print the returned error.
	rdb.SetLogger(func(string) {})
	root := a.root()
	root.SetArgs(a.args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	a.writeActs(ctx)
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	if a.elder != nil {
		a.elder.Failed(asProblem(err).Error())
	}
	return a.report(err)
}

// exitCode ends the program with a code and without a message.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func (a *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   a.name,
		Short: "work the jobs of Resque queues",
		Long: `Work the jobs of Resque queues with a master process, worker processes that are
replaced before they grow, threads, and a lock for each job.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not running, 4
not found, 69 Redis or PostgreSQL does not answer.

Pages named docs/… are in /usr/share/doc/resqued with a package, and in
https://github.com/resqued/resqued/tree/main/docs.`,
		Example: a.examples("dev                       try it, nothing else needed\n" +
			"work --queues '*'         work every queue of $REDIS_URL\n" +
			"enqueue Mail 42 hi --queue mail"),
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              noSuchVerb,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return a.prepare(c) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(versionLine())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", "Flags.FlagUsagesWrapped 80 "))
	f := root.PersistentFlags()
	config.AddGlobalFlags(f)
	f.BoolVar(&a.dev, "dev", false, "use the Redis of \"resqued dev\"")
	f.StringVarP(&a.flags.output, "output", "o", outTable, "`form`: table, wide, json, yaml or name")
	f.BoolVar(&a.flags.noHeaders, "no-headers", false, "no table headers")
	f.BoolVar(&a.flags.noColour, "no-color", false, "no colours (NO_COLOR)")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "errors only")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "more detail")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("See: "+c.CommandPath()+" --help", "%s", flagError(c, err))
	})
	root.AddCommand(
		a.devCommand(), a.workCommand(), a.reloadCommand(), a.upgradeCommand(), a.healthCommand(), a.drainCommand(), a.enqueueCommand(),
		a.queuesCommand(), a.jobsCommand(), a.workersCommand(), a.hostsCommand(), a.failedCommand(), a.parkedCommand(), a.limitsCommand(), a.scheduleCommand(),
		a.longjobsCommand(), a.locksCommand(), a.lockerCommand(), a.configCommand(), a.benchCommand(), a.doctorCommand(), a.explainCommand(), a.statsCommand(), a.classesCommand(),
		a.eventsCommand(), a.webCommand(), a.versionCommand(), a.completionCommand(),
	)
	_ = root.RegisterFlagCompletionFunc("output", words(outTable, outWide, outJSON, outYAML, outName))
	_ = root.RegisterFlagCompletionFunc("redis-url", cobra.NoFileCompletions)
	_ = root.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	_ = root.RegisterFlagCompletionFunc(config.StoreFlag, a.storesToComplete)
	return root
}

// Commands returns resqued's commands for documentation; they cannot be run.
func Commands() *cobra.Command {
	a := &cli{handlers: resqued.New(), output: output{name: "resqued", stdout: io.Discard, stderr: io.Discard}}
	root := a.root()
	root.InitDefaultHelpCmd()
	return root
}

func (a *cli) prepare(c *cobra.Command) error {
	if a.hush != nil && !is(c, daemon) {
		a.hush()
	}
	switch a.flags.output {
	case outTable, outWide, outJSON, outName:
	case outYAML:
		if is(c, daemon) {
			return usage("", "--output yaml: a daemon writes lines, as text or with --output json")
		}
		a.flags.output, a.flags.yaml = outJSON, true
	default:
		bad := a.flags.output
		a.flags.output = outTable
		return usage("", "--output %q: use table, wide, json, yaml or name", bad)
	}
	a.coloured = wantsColour(a.stdout, a.flags.noColour)
	a.width, _ = terminalSize(a.stdout)
	return nil
}

// formOfErrors returns outJSON or outYAML if errors have that form, even if flags cannot be
// parsed.
func (a *cli) formOfErrors() string {
	switch {
	case a.flags.yaml:
		return outYAML
	case a.flags.output == outJSON:
		return outJSON
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags, flags.Usage = true, func() {}
	form := flags.StringP("output", "o", "", "")
	if _ = flags.Parse(a.args); *form == outJSON || *form == outYAML {
		return *form
	}
	return ""
}

func noSuchVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownVerb(c, args[0])
}

func unknownVerb(c *cobra.Command, verb string) error {
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return usage(suggestion(verb, known, c.CommandPath()+" --help"), "no command %q", verb)
}

// flagError adds to cobra's message the nearest flag, or what to write in place of a non-number.
func flagError(c *cobra.Command, err error) string {
	text := err.Error()
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		write := "write a whole number"
		if number.Func == "ParseBool" {
			write = "write true or false"
		}
		return strings.Replace(text, number.Error(), write, 1)
	}
	name, ok := strings.CutPrefix(text, "unknown flag: --")
	if !ok {
		return text
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if guess := nearest(name, known); guess != "" {
		text += fmt.Sprintf(" (did you mean --%s?)", guess)
	}
	return text
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/resqued/resqued/internal/selector"
)

// Defaults of runners.
const (
	DefaultConcurrency = 1
	DefaultBootTimeout = 2 * time.Minute
)

var runnerSynonyms = map[string]string{
	"threads": "concurrency", "thread_count": "concurrency", "jobs_per_fork": "jobs_per_runner", "max_jobs": "jobs_per_runner",
	"preload": "fork", "template": "fork", "forks": "fork", "start_timeout": "boot_timeout", "class": "classes", "timeout": "boot_timeout",
	"max_memory": "max_rss",
}

// runnerName matches names of runners, which are used in an environment variable, logs and tables.
var runnerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`) })

func checkRunnerName(name string) error {
	if !runnerName().MatchString(name) {
		return errors.New("the name of a runner is letters, digits, \"_\", \"-\" and \".\", and 64 characters at most")
	}
	return nil
}

func (f *file) readRunners(section field) {
	for _, one := range f.entriesOf(section, "must be a map of names to runners: app: {command: [bundle, exec, resqued-runner, config/environment]}") {
		f.runners[one.name] = f.readRunner(one)
	}
}

func newRunner() Runner {
	return Runner{Fork: true, Concurrency: DefaultConcurrency, BootTimeout: DefaultBootTimeout, KillAfter: DefaultKillAfter}
}

// fields are in the order of the documentation.
func (r *Runner) fields() rules {
	return rules{
		{"command", into(&r.Command, (*file).readCommand)},
		{"dir", exact(&r.Dir, printable)},
		{"env", into(&r.Env, (*file).readEnv)},
		{"fork", boolean(&r.Fork).read},
		{"concurrency", number(&r.Concurrency, 1, maxThreads, "jobs at a time in one process").read},
		{"boot_timeout", duration(&r.BootTimeout, positive).read},
		{"jobs_per_runner", number(&r.JobsPerRunner, 0, math.MaxInt32, "0 is jobs_per_fork").read},
		{"max_rss", size(&r.MaxRSS, checkRSS).read},
		{"max_age", duration(&r.MaxAge, zeroOr(time.Second)).read},
		{"kill_after", duration(&r.KillAfter, positive).read},
		{"classes", into(&r.Classes, (*file).readClasses)},
	}
}

func (f *file) readRunner(from field) Runner {
	at := "runners." + from.name
	if err := checkRunnerName(from.name); err != nil {
		f.refuse(at, "", from.line, err.Error())
	}
	r := newRunner()
	given, ok := f.readMap(at, from, "must be a map: {command: [bundle, exec, resqued-runner, config/environment]}", r.fields(), runnerSynonyms, programSynonyms)
	if !ok {
		return r
	}
	if given.line("fork") == 0 {
		r.Fork = forks(r.Command)
	}
	if given.line("command") == 0 {
		f.refuse(at, "", from.line, "has no command; write command: [bundle, exec, resqued-runner, config/environment]")
	}
	return r
}

func (f *file) readClasses(name string, from field) []string {
	var seen []string
	positive := false
	classes := f.readList(name, from, `must be a list of classes: [Mail, "Billing::*"]`, `is empty: the runner would perform nothing; leave it out for any class`, func(class string) error {
		plain, excluded := strings.CutPrefix(class, "!")
		positive = positive || !excluded
		err := checkPattern(plain)
		if err == nil && slices.Contains(seen, class) {
			err = errors.New("is listed already; keep one of them")
		}
		seen = append(seen, class)
		return err
	})
	if len(classes) > 0 && !positive {
		f.refuse(name, "", from.line, `only exclusions match nothing; write "*" before them`)
	}
	return classes
}

// RunnerFlag gives the command of a runner, which is named everyApp.
const (
	RunnerFlag = "runner"
	everyApp   = "app"
	anyClass   = "*"
)

// AddRunnerFlag registers --runner, the shortest way to work an application's classes.
func AddRunnerFlag(flags *pflag.FlagSet) {
	flags.VarP(&onceFlag{kind: "command", instead: "write runners: into the configuration file for more than one"}, RunnerFlag, "", "`command` that performs the jobs of all classes without a handler: 'bundle exec resqued-runner config/environment'")
}

// readRunnerFlag adds the runner of --runner, and a handler "*" for it, to the file's.
func (l *loader) readRunnerFlag() {
	if l.options.Flags == nil || l.file.unreadable {
		return
	}
	flag := l.options.Flags.Lookup(RunnerFlag)
	if flag == nil || !flag.Changed {
		return
	}
	if _, ours := flag.Value.(*onceFlag); !ours { // another command's flag
		return
	}
	from := Source{Kind: FromFlag, Name: "--" + RunnerFlag}
	l.result.Sources[RunnerFlag] = from
	f, text := l.file, flag.Value.String()
	argv, err := SplitCommand(text)
	if err == nil {
		if _, ok := f.handlers[anyClass]; ok {
			err = fmt.Errorf(`the configuration has a handler for "*" already (%s); leave one of them out`, f.at("handlers."+anyClass))
		} else if _, ok := f.runners[everyApp]; ok {
			err = fmt.Errorf(`the configuration has a runner %s already (%s); leave --runner out, and write handlers: {"*": {runner: %s}}`,
				everyApp, f.at("runners."+everyApp), everyApp)
		}
	}
	if err != nil {
		l.refuse(RunnerFlag, text, err.Error())
		return
	}
	if f.handlers == nil { // without a file
		f.handlers, f.runners = map[string]Handler{}, map[string]Runner{}
	}
	r := newRunner()
	r.Command, r.Fork = argv, forks(argv)
	f.runners[everyApp], f.handlers[anyClass] = r, Handler{Runner: everyApp}
	l.byFlag = from
}

// cannotFork are programs whose booted processes cannot be forked.
var cannotFork = []string{"node", "npx", "npm", "yarn", "pnpm", "bun", "bunx", "deno", "php", "java"}

// forks reports, by its program's name, whether a command may be forked from a template.
func forks(argv []string) bool {
	if len(argv) == 0 {
		return true
	}
	program := filepath.Base(argv[0])
	if program == "env" { // the first word that sets no variable
		for _, arg := range argv[1:] {
			if !assignment(arg) {
				program = filepath.Base(arg)
				break
			}
		}
	}
	return !slices.Contains(cannotFork, versionEnd().ReplaceAllString(program, ""))
}

// checkRunnerUse refuses handlers whose runner does not exist.
func (l *loader) checkRunnerUse() {
	f := l.file
	known := slices.Sorted(maps.Keys(f.runners))
	for _, class := range slices.Sorted(maps.Keys(f.handlers)) {
		name := f.handlers[class].Runner
		if _, ok := f.runners[name]; ok || name == "" {
			continue
		}
		message := "there is no such runner"
		switch meant := nearest(name, known); {
		case meant != "":
			message += fmt.Sprintf("; did you mean %q?", meant)
		case len(known) == 0:
			message += fmt.Sprintf("; write runners: {%s: {command: [bundle, exec, resqued-runner, config/environment]}}", name)
		default:
			message += "; there is " + strings.Join(known[:min(len(known), 10)], ", ")
		}
		l.errs = append(l.errs, Error{
			Key: "handlers." + class + ".runner", Value: name, Source: f.at("handlers." + class), Message: message,
		})
	}
}

// takeRunners takes the runners of the file.
func (l *loader) takeRunners() {
	c := &l.result.Config
	for _, name := range slices.Sorted(maps.Keys(l.file.runners)) {
		if c.Runners == nil {
			c.Runners = map[string]Runner{}
		}
		c.Runners[name] = l.file.runners[name]
		l.result.Sources["runners."+name] = l.file.at("runners." + name)
	}
	if l.byFlag.Kind != "" {
		l.result.Sources["runners."+everyApp] = l.byFlag
	}
}

// Of returns the classes whose handler names a runner, sorted.
func (c Config) Of(runner string) (classes []string) {
	for _, class := range c.classes() {
		if c.Handlers[class].Runner == runner {
			classes = append(classes, class)
		}
	}
	return classes
}

func (c Config) runners() []string { return slices.Sorted(maps.Keys(c.Runners)) }

// warnOfRunners warns of runner settings without effect.
func (l *loader) warnOfRunners() {
	c := &l.result.Config
	for _, name := range c.runners() {
		r, at := c.Runners[name], "runners."+name
		warn := func(field, code, format string, a ...any) {
			l.warn(at+field, code, "runner "+name+": "+fmt.Sprintf(format, a...))
		}
		if arg, why := shellText(r.Command); arg != "" {
			warn(".command", "no_shell", "command holds %s; %s.", shown(arg), strings.Replace(why, "reads the job from its standard input", "gets the jobs over its socket", 1))
		}
		for _, variable := range slices.Sorted(maps.Keys(r.Env)) {
			if expansion().MatchString(r.Env[variable]) {
				warn(".env."+variable, "not_expanded", "env.%s is given as it is written: nothing in it is expanded.", variable)
			}
		}
		classes := c.Of(name)
		if len(classes) == 0 {
			warn("", "unused", `no handler names it, so it does not run. For every class without a handler of its own: handlers: {"*": {runner: %s}}`, name)
		}
		if l.ok("thread_count") && r.Concurrency > c.ThreadCount {
			warn(".concurrency", "no_effect", "concurrency %d is more than the threads of a worker process (%d, %s): each runner gets %d jobs at a time at most. Raise thread_count.",
				r.Concurrency, c.ThreadCount, l.result.Sources["thread_count"], c.ThreadCount)
		}
		if l.ok("resque_term_timeout") && r.KillAfter > c.TermTimeout/2 && r.KillAfter != DefaultKillAfter {
			warn(".kill_after", "kill_after_too_long", "kill_after %s becomes %s, half of resque_term_timeout %s (%s), after which the whole worker process is killed.",
				FormatDuration(r.KillAfter), FormatDuration(c.TermTimeout/2), FormatDuration(c.TermTimeout), l.result.Sources["resque_term_timeout"])
		}
		for _, class := range classes {
			if len(r.Classes) > 0 && !selector.IsPattern(class) && !selector.MatchAny(r.Classes, class) {
				l.warn("handlers."+class+".runner", "no_effect", fmt.Sprintf("%s: the classes of runner %s leave it out: every job of it will fail.", class, name))
			}
		}
	}
}

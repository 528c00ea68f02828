package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/wire"
)

// Exit codes of a command that are not failures.
const (
	exitDone    = 0
	exitRequeue = 75 // EX_TEMPFAIL of sysexits.h
	exitDiscard = 100
)

const (
	// requeueAfter keeps a command that always asks for another try from spinning.
	requeueAfter     = time.Second
	defaultKillAfter = 10 * time.Second
)

// slowStart is after how long a program that does not begin is logged.
var slowStart = 5 * time.Second

// slowToCatch is after how long a program that does not catch its signal to make room is logged.
var slowToCatch = 5 * time.Second

var errNotStarted = errors.New("its command was not started")

// runner is shared by all commands of a Set.
type runner struct {
	launcher launch.Launcher
	proc     string
	grace    time.Duration
	base     []string // the environment, without secrets
	leaders  sync.Map // pid to mark, for each running command
	stay     map[string]Runner
	// told is locked for good once no end of a job may be reported.
	told sync.RWMutex
	log  *zap.Logger

	scarcity scarcity
}

func newRunner(o Options) *runner {
	return &runner{
		launcher: launch.Launcher{Setup: program.SetUp},
		proc:     o.Proc, grace: o.KillGrace, base: program.Scrub(o.Environ, o.Env), stay: o.Runners, log: o.Log,
	}
}

// tells blocks for good once no end of a job may be reported.
func (r *runner) tells() {
	r.told.RLock()
	r.told.RUnlock() //nolint:staticcheck // it is the waiting that counts
}

func (r *runner) owns(pid int) bool {
	if _, ok := r.leaders.Load(pid); ok {
		return true
	}
	for _, stay := range r.stay {
		if stay.Owns(pid) {
			return true
		}
	}
	return false
}

// tag returns a unique name for one run of a command, and its mark.
func (r *runner) tag() (string, mark.Mark) {
	proc := r.proc
	if proc == "" {
		proc = strconv.Itoa(os.Getpid())
	}
	n, m := mark.Worker(proc).Take()
	return proc + "/" + strconv.FormatInt(n, 10), m
}

type command struct {
	resqued.Command
	runner *runner
	// stay, if not nil, performs the jobs instead of the program.
	stay Runner
}

// newCommand rejects what would make every run fail.
func newCommand(class resqued.Class, r *runner) (*command, error) {
	c := &command{Command: *class.Command, runner: r}
	refuse := func(format string, args ...any) (*command, error) {
		return nil, fmt.Errorf("command of class %q: "+format, append([]any{class.Name}, args...)...)
	}
	if c.Runner != "" {
		if c.stay = r.stay[c.Runner]; c.stay == nil {
			return refuse("there is no runner %q; name it under runners in the configuration", c.Runner)
		}
		return c, nil
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return refuse("it names no program")
	}
	for _, text := range append([]string{c.Dir}, c.Argv...) {
		if strings.ContainsRune(text, 0) {
			return refuse("%q holds a NUL byte, which no program can be given", text)
		}
	}
	for _, variable := range c.Env {
		name, _, ok := strings.Cut(variable, "=")
		switch {
		case !ok || name == "":
			return refuse("%q is not an environment variable: it must be NAME=value", variable)
		case strings.ContainsRune(variable, 0):
			return refuse("the environment variable %q holds a NUL byte, which no program can be given", name)
		}
	}
	if s := c.OnLeaving; s != 0 && (unix.SignalName(s) == "" || s == unix.SIGKILL || s == unix.SIGSTOP) {
		return refuse("signal %d cannot ask it to make room; take one that programs catch, such as SIGUSR2", s)
	}
	if c.KillAfter <= 0 {
		c.KillAfter = defaultKillAfter
	}
	if r.grace > 0 {
		c.KillAfter = min(c.KillAfter, r.grace/2)
	}
	return c, nil
}

func (c *command) perform(ctx context.Context, job *resqued.Job) error {
	if cmdslice.Of(&c.Command) != nil {
		return c.slices(ctx, job)
	}
	if c.stay != nil {
		return c.stay.Perform(ctx, job, c.KillAfter, nil)
	}
	return c.run(ctx, job, nil)
}

// try is run without waiting for scarce resources.
func (c *command) try(ctx context.Context, job *resqued.Job, s *slice) error {
	if ctx.Err() != nil {
		return errNotStarted
	}
	tag, number := c.runner.tag()
	defer number.Free()
	env, err := c.environ(job, tag, s)
	if err != nil {
		return err
	}
	stdin, err := inputFile(job, s)
	if err != nil {
		return c.explain(&launch.Error{Op: "memory file", Path: c.Argv[0], Err: err})
	}
	defer func() { _ = stdin.Close() }()

	log := c.runner.log.With(zap.String("class", wire.Printable(job.Class, shownName)), zap.String("job", wire.Printable(job.ID, shownName)))
	// Without an answer from Redis, a refresh must not outlive the program for long.
	asking, answered := context.WithCancel(ctx)
	defer answered()
	out := &output{log: log, refresh: program.NewRefresher(log, func() error { return resqued.RefreshLock(asking) }), slice: s}
	p := &process{runner: c.runner, tag: tag, mark: number, onLeaving: c.OnLeaving, log: log, began: time.Now()}
	if p.leader, err = c.start(env, stdin, out, number); err != nil {
		return err
	}
	slow := time.AfterFunc(slowStart, p.complain)
	status, how, err := p.wait(ctx, c.KillAfter, s)
	slow.Stop()
	c.runner.tells()
	late := time.AfterFunc(program.DrainFor, answered)
	out.drain()
	late.Stop()
	if failed, ok := errors.AsType[*launch.Error](err); ok {
		return c.explain(failed)
	}
	if err != nil {
		return fmt.Errorf("wait for %q: %w", c.Argv[0], err)
	}
	if s != nil {
		return s.judge(c, status, how, out.tail.Text())
	}
	if hit := out.hit.Load(); hit != nil && status.Exited() && status.ExitStatus() == exitRequeue {
		return fmt.Errorf("%q exited with code %d: %w", c.Argv[0], exitRequeue, resqued.LimitHit(hit.name, time.Now().Add(hit.after)))
	}
	return c.judge(status, how.killed, out.tail.Text())
}

// start starts the program with stdin as it is and its other descriptors connected to out.
func (c *command) start(env []string, stdin *os.File, out *output, number mark.Mark) (*launch.Process, error) {
	files, err := out.connect()
	if err != nil {
		return nil, c.explain(&launch.Error{Op: "pipe", Path: c.Argv[0], Err: err})
	}
	p, err := c.runner.launcher.Start(launch.Program{
		Argv: c.Argv, Env: env, Dir: c.Dir, Files: append([]*os.File{stdin}, files...), Locks: uint64(number),
	})
	if err == nil && !p.MarksItself() {
		_ = setMark(p.PID, number)
	}
	if err != nil {
		out.abandon()
		if failed, ok := errors.AsType[*launch.Error](err); ok {
			return nil, c.explain(failed)
		}
		return nil, &program.StartError{Program: c.Argv[0], Err: err, Hint: "the worker process is leaving"}
	}
	out.started()
	return p, nil
}

// judge turns the program's end into the job's result. A program that was told to stop has
// failed, even with exit code 0: many programs end like that on TERM.
func (c *command) judge(status syscall.WaitStatus, killed bool, stderr string) error {
	failure := &CommandError{Program: c.Argv[0], ExitCode: status.ExitStatus(), Stderr: stderr}
	if status.Signaled() {
		failure.Signal, failure.CoreDump = status.Signal(), status.CoreDump()
	}
	switch {
	case failure.ExitCode == exitRequeue:
		return fmt.Errorf("%q exited with code %d: %w", c.Argv[0], exitRequeue, resqued.Requeue(requeueAfter))
	case failure.ExitCode == exitDiscard:
		return fmt.Errorf("%w: %q exited with code %d%s", resqued.Discard, c.Argv[0], exitDiscard, program.Said(stderr))
	case failure.ExitCode == exitDone && !killed:
		return nil
	default:
		return failure
	}
}

func (c *command) explain(err *launch.Error) error {
	return program.Explain(err, c.Argv[0], c.Dir, "handlers")
}

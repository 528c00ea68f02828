package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/cmdslice"
	"github.com/resqued/resqued/internal/launch"
	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// Exit codes of a command that mean something else than a failure.
const (
	exitDone    = 0
	exitRequeue = 75 // EX_TEMPFAIL of sysexits.h
	exitDiscard = 100
)

const (
	// requeueAfter keeps a command that always asks for another try from spinning.
	requeueAfter     = time.Second
	defaultKillAfter = 10 * time.Second
	// slowStart is when it is said that a program does not begin.
	slowStart = 5 * time.Second
)

var (
	errNotStarted = errors.New("its command was not started")
	errNotBegun   = errors.New("ended while the system was still opening it")
)

// runs numbers the commands of this process.
var runs atomic.Int64

// runner is what all commands of a Set share.
type runner struct {
	launcher launch.Launcher
	proc     string
	grace    time.Duration
	base     []string // the environment, without secrets
	leaders  sync.Map // mark of each command that runs, by pid
	// told is held for good when no end of a job may be told any more.
	told sync.RWMutex
	log  *zap.Logger

	scarcity scarcity
}

// setUp prepares this process for what its commands leave behind.
func setUp() {
	// Orphans of commands come to this process, so that the sweep finds them. It
	// cannot fail on a kernel that Go runs on.
	_ = procfs.Subreaper()
	closeOthers()
}

func newRunner(o Options) *runner {
	return &runner{
		launcher: launch.Launcher{Setup: setUp},
		proc:     o.Proc, grace: o.KillGrace, base: Scrub(o.Environ, o.Env), log: o.Log,
	}
}

// tells blocks, for good, when no end of a job may be told any more.
func (r *runner) tells() {
	r.told.RLock()
	r.told.RUnlock() //nolint:staticcheck // it is the waiting that counts
}

func (r *runner) owns(pid int) bool {
	_, ok := r.leaders.Load(pid)
	return ok
}

// tag returns a name for one run of a command that no other run has, and its mark, which no
// other has that goes on.
func (r *runner) tag() (string, mark.Mark) {
	proc := r.proc
	if proc == "" {
		proc = strconv.Itoa(os.Getpid())
	}
	for worker := mark.Worker(proc); ; {
		n := runs.Add(1)
		if m := worker.Run(n); !r.uses(m) {
			return proc + "/" + strconv.FormatInt(n, 10), m
		}
	}
}

// uses reports whether m is the mark of a command that runs.
func (r *runner) uses(m mark.Mark) (used bool) {
	r.leaders.Range(func(_, other any) bool {
		used = other == m
		return !used
	})
	return used
}

// command performs the jobs of a class by an external program.
type command struct {
	resqued.Command
	runner *runner
}

// newCommand checks what no run could get past.
func newCommand(class resqued.Class, r *runner) (*command, error) {
	c := &command{Command: *class.Command, runner: r}
	refuse := func(format string, args ...any) (*command, error) {
		return nil, fmt.Errorf("command of class %q: "+format, append([]any{class.Name}, args...)...)
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
			return refuse("%q is no environment variable: it must be NAME=value", variable)
		case strings.ContainsRune(variable, 0):
			return refuse("the environment variable %q holds a NUL byte, which no program can be given", name)
		}
	}
	c.KillAfter = r.patience(c.KillAfter)
	return c, nil
}

// patience is how long a job may take to stop for which the configuration says killAfter.
func (r *runner) patience(killAfter time.Duration) time.Duration {
	if killAfter <= 0 {
		killAfter = defaultKillAfter
	}
	if r.grace > 0 {
		killAfter = min(killAfter, r.grace/2)
	}
	return killAfter
}

// perform performs one job.
func (c *command) perform(ctx context.Context, job *resqued.Job) error {
	if cmdslice.Of(&c.Command) != nil {
		return c.slices(ctx, job)
	}
	return c.run(ctx, job, nil)
}

// try is run, unless the program cannot be started for want of something.
func (c *command) try(ctx context.Context, job *resqued.Job, s *slice) error {
	if ctx.Err() != nil {
		return errNotStarted
	}
	tag, number := c.runner.tag()
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
	// A refresh that Redis does not answer must not outlive the program for long.
	asking, answered := context.WithCancel(ctx)
	defer answered()
	out := &output{log: log, refresh: newRefresher(log, func() error { return resqued.RefreshLock(asking) }), slice: s}
	p := &process{runner: c.runner, tag: tag, mark: number, log: log, began: time.Now()}
	if p.leader, err = c.start(env, stdin, out, number); err != nil {
		return err
	}
	slow := time.AfterFunc(slowStart, p.complain)
	status, how, err := p.wait(ctx, c.KillAfter, s)
	slow.Stop()
	c.runner.tells()
	late := time.AfterFunc(drainFor, answered)
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
	return c.judge(status, how.killed, out.tail.Text())
}

// start starts the program with stdin as it is and the rest of its descriptors
// connected to out.
func (c *command) start(env []string, stdin *os.File, out *output, number mark.Mark) (*launch.Process, error) {
	files, err := out.connect()
	if err != nil {
		return nil, c.explain(&launch.Error{Op: "pipe", Path: c.Argv[0], Err: err})
	}
	p, err := c.runner.launcher.Start(launch.Program{
		Argv: c.Argv, Env: env, Dir: c.Dir, Files: append([]*os.File{stdin}, files...), Locks: uint64(number),
	})
	if err == nil {
		if m, _ := mark.Of(p.PID); m != number {
			_ = setMark(p.PID, number) // it was started as by the standard library, or will be marked in a moment
		}
	}
	if err != nil {
		out.abandon()
		if failed, ok := errors.AsType[*launch.Error](err); ok {
			return nil, c.explain(failed)
		}
		return nil, &StartError{Program: c.Argv[0], Err: err, Hint: "the worker process is leaving"}
	}
	out.started()
	return p, nil
}

// judge turns the way in which the program ended into the end of the job. A
// program that was told to stop has failed, also with exit code 0: many programs
// end like that on TERM.
func (c *command) judge(status syscall.WaitStatus, killed bool, stderr string) error {
	failure := &CommandError{Program: c.Argv[0], ExitCode: status.ExitStatus(), Stderr: stderr}
	if status.Signaled() {
		failure.Signal, failure.CoreDump = status.Signal(), status.CoreDump()
	}
	switch {
	case failure.ExitCode == exitRequeue:
		return fmt.Errorf("%q exited with code %d: %w", c.Argv[0], exitRequeue, resqued.Requeue(requeueAfter))
	case failure.ExitCode == exitDiscard:
		return fmt.Errorf("%w: %q exited with code %d%s", resqued.Discard, c.Argv[0], exitDiscard, after(stderr))
	case failure.ExitCode == exitDone && !killed:
		return nil
	default:
		return failure
	}
}

// explain says what to do about a program that could not be started.
func (c *command) explain(err *launch.Error) error {
	start := &StartError{Program: c.Argv[0], Err: err}
	switch {
	case errors.Is(err, errNotBegun):
		start.Hint = fmt.Sprintf("%q does not open: its file server does not answer, somebody holds a lease on the file, or a scanner looks at it", err.Path)
	case err.Op == "chdir":
		start.Hint = fmt.Sprintf("its working directory %q is not there; see dir: under handlers in the configuration", c.Dir)
	case errors.Is(err, exec.ErrNotFound):
		start.Hint = "it is not on the daemon's PATH; install it, or name it by its whole path"
	case errors.Is(err, syscall.ENOENT):
		start.Hint = "there is no such file, or the interpreter in its first line is missing"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		start.Hint = "the daemon's user may not run it; make it executable (chmod +x), and look at the mount options and the sandbox of the unit"
	case errors.Is(err, syscall.ENOEXEC):
		start.Hint = "it is no program for this machine; a script needs a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		start.Hint = "an argument, a variable or all of them together are too long for a program; the job's arguments come on stdin and may be of any size"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		start.Hint = "the machine, or the limit of the unit (TasksMax, MemoryMax), has no room for another process"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		start.Hint = "too many files are open; raise LimitNOFILE"
	}
	return start
}

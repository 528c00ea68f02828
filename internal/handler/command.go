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
)

var errNotStarted = errors.New("its command was not started")

// runs numbers the commands of this process.
var runs atomic.Int64

// runner is what all commands of a Set share.
type runner struct {
	starter starter
	proc    string
	grace   time.Duration
	base    []string // the environment, without secrets
	leaders sync.Map // pid of each command that runs
	// told is held for good when no end of a job may be told any more.
	told sync.RWMutex
	log  *zap.Logger
}

func newRunner(o Options) *runner {
	return &runner{proc: o.Proc, grace: o.KillGrace, base: scrub(o.Environ, o.Env), log: o.Log}
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

// tag returns a name for one run of a command that no other run has.
func (r *runner) tag() string {
	proc := r.proc
	if proc == "" {
		proc = strconv.Itoa(os.Getpid())
	}
	return proc + "/" + strconv.FormatInt(runs.Add(1), 10)
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
	if c.KillAfter <= 0 {
		c.KillAfter = defaultKillAfter
	}
	if r.grace > 0 {
		c.KillAfter = min(c.KillAfter, r.grace/2)
	}
	return c, nil
}

// perform performs one job.
func (c *command) perform(ctx context.Context, job *resqued.Job) error {
	if c.Slices != nil {
		return c.slices(ctx, job)
	}
	return c.run(ctx, job, nil)
}

// run runs the program for one job, or for a slice of a long one, and returns when the
// last process that it started is gone.
func (c *command) run(ctx context.Context, job *resqued.Job, s *slice) error {
	if ctx.Err() != nil {
		return errNotStarted
	}
	tag := c.runner.tag()
	env, err := c.environ(job, tag, s)
	if err != nil {
		return err
	}
	stdin, err := inputFile(job, s)
	if err != nil {
		return err
	}
	defer func() { _ = stdin.Close() }()

	log := c.runner.log.With(zap.String("class", wire.Printable(job.Class, shownName)), zap.String("job", wire.Printable(job.ID, shownName)))
	// A refresh that Redis does not answer must not outlive the program for long.
	asking, answered := context.WithCancel(ctx)
	defer answered()
	out := &output{log: log, refresh: newRefresher(log, func() error { return resqued.RefreshLock(asking) }), slice: s}
	p := &process{runner: c.runner, tag: tag, log: log}
	if p.cmd, err = c.start(env, stdin, out); err != nil {
		return err
	}
	how, err := p.wait(ctx, c.KillAfter, s)
	c.runner.tells()
	late := time.AfterFunc(drainFor, answered)
	out.drain()
	late.Stop()
	if err != nil {
		return fmt.Errorf("wait for %q: %w", c.Argv[0], err)
	}
	if s != nil {
		return s.judge(c, p.cmd.ProcessState, how, out.tail.text())
	}
	return c.judge(p.cmd.ProcessState, how.killed, out.tail.text())
}

// start starts the program with stdin as it is and the rest of its descriptors
// connected to out.
func (c *command) start(env []string, stdin *os.File, out *output) (*exec.Cmd, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.Dir, env, stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := out.connect(cmd); err != nil {
		return nil, &StartError{Program: c.Argv[0], Err: err}
	}
	if err := c.runner.starter.start(cmd); err != nil {
		out.abandon()
		return nil, c.explain(err)
	}
	out.started()
	return cmd, nil
}

// judge turns the way in which the program ended into the end of the job. A
// program that was told to stop has failed, also with exit code 0: many programs
// end like that on TERM.
func (c *command) judge(state *os.ProcessState, killed bool, stderr string) error {
	status, _ := state.Sys().(syscall.WaitStatus)
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
func (c *command) explain(err error) error {
	start := &StartError{Program: c.Argv[0], Err: err}
	if c.Dir != "" {
		if info, statErr := os.Stat(c.Dir); statErr != nil || !info.IsDir() {
			start.Hint = fmt.Sprintf("its working directory %q is not there; see dir: under handlers in the configuration", c.Dir)
			return start
		}
	}
	switch {
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

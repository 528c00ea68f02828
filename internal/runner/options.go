// Package runner performs jobs in processes that stay: those of the runners section of the
// configuration. docs/runner-protocol.md is what both sides hold to; this is the side of the
// worker process.
//
// A Pool holds the processes of one runner. Each is forked by the runner's template, or started
// by this process, has a goroutine that sees it through its life (process.go), and takes jobs in
// its slots. A thread that has one of a process with a single slot writes the job and reads the
// answer itself (call_one.go); where there are more, a goroutine of the process reads for all
// (call_many.go).
package runner

import (
	"os"
	"time"

	"go.uber.org/zap"
)

const (
	defaultKillAfter   = 10 * time.Second
	defaultBootTimeout = 2 * time.Minute
	// inHand is how long a job waits for a process, before it goes back to its queue for
	// others that may have one.
	inHand = 10 * time.Second
	// leastWait is how long one waits in any case: a fork takes some of it.
	leastWait = 50 * time.Millisecond
	// requeueAfter keeps such a job from coming back at once.
	requeueAfter = time.Second
	// restOfLine is how long a process without a job may take to write the rest of a line.
	restOfLine = 10 * time.Second
	// shownName bounds a class or an id in a line of the log, in bytes.
	shownName = 120
)

// Options say how a runner is run.
type Options struct {
	// Name is that of the configuration.
	Name string
	// Argv is the program and its arguments, Dir its working directory. Env are additional
	// variables as NAME=value, and Environ what it gets of the daemon's, without secrets.
	Argv    []string
	Dir     string
	Env     []string
	Environ []string
	// Requests is the socket on which the runner's template takes requests to fork; nil:
	// each process is started by this one.
	Requests *os.File
	// Threads is how many jobs may come at a time, Concurrency how many one process performs.
	Threads, Concurrency int
	// BootTimeout is how long a process may take until its hello; 0 = 2 min.
	BootTimeout time.Duration
	// A process is replaced after JobsPerRunner jobs, when it uses more than MaxRSS bytes, and
	// after MaxAge; 0 = never.
	JobsPerRunner int
	MaxRSS        int64
	MaxAge        time.Duration
	// KillAfter is how long a job may take to end when it is told to, unless its class says
	// otherwise; 0 = 10 s. It is never more than half of KillGrace, if that is not 0.
	KillAfter, KillGrace time.Duration
	// Performs reports whether jobs of a class, in these wrappers, may be performed; nil = all.
	Performs func(class string, wrappers ...string) bool
	// Proc names the worker process.
	Proc string
	Log  *zap.Logger

	// patience stands for inHand, backOffFrom for the first pause after a process that could not
	// be used, and lineFor for restOfLine, in tests.
	patience, backOffFrom, tick, lineFor time.Duration
}

// fill puts defaults where nothing was said.
func (o Options) fill() Options {
	o.Concurrency, o.Threads = max(o.Concurrency, 1), max(o.Threads, 1)
	if o.BootTimeout <= 0 {
		o.BootTimeout = defaultBootTimeout
	}
	if o.KillAfter <= 0 {
		o.KillAfter = defaultKillAfter
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.patience <= 0 {
		o.patience = inHand
	}
	if o.backOffFrom <= 0 {
		o.backOffFrom = 100 * time.Millisecond
	}
	if o.lineFor <= 0 {
		o.lineFor = restOfLine
	}
	if o.tick <= 0 {
		o.tick = time.Second
	}
	return o
}

// killAfter is how long a job of a class has to end that says for itself.
func (o Options) killAfter(of time.Duration) time.Duration {
	if of <= 0 {
		of = o.KillAfter
	}
	if o.KillGrace > 0 {
		of = min(of, o.KillGrace/2)
	}
	return of
}

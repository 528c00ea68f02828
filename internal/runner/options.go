// Package runner performs jobs in long-lived processes, as configured in the runners section. It
// is the worker process's side of docs/runner-protocol.md.
//
// A Pool holds the processes of one runner. Each is forked by the runner's template or started
// by this process. Its goroutine manages its life (process.go), and it takes jobs in its slots.
// The thread that holds a slot writes the job; another goroutine of the process reads the answers
// (call_lines.go).
package runner

import (
	"os"
	"time"

	"go.uber.org/zap"
)

const (
	defaultKillAfter   = 10 * time.Second
	defaultBootTimeout = 2 * time.Minute
	// inHand is how long a job waits for a process before it goes back to its queue for others.
	inHand = 10 * time.Second
	// leastWait is the shortest such wait: a fork takes some of it.
	leastWait = 50 * time.Millisecond
	// requeueAfter keeps such a job from coming back at once.
	requeueAfter = time.Second
	// restOfLine is how long a process without a job may take to complete a line.
	restOfLine = 10 * time.Second
	// shownName bounds a class or an id in a log line, in bytes.
	shownName = 120
)

// Options configure a runner.
type Options struct {
	Name string
	// Argv is the program and its arguments, Dir its working directory. Env are additional
	// variables as NAME=value; Environ is the daemon's environment without secrets.
	Argv    []string
	Dir     string
	Env     []string
	Environ []string
	// Requests is the socket on which the runner's template takes requests to fork; nil: this
	// process starts each process.
	Requests *os.File
	// Threads is how many jobs may come at a time, Concurrency how many a process performs.
	Threads, Concurrency int
	// BootTimeout bounds the time to a process's hello; 0 = 2 min.
	BootTimeout time.Duration
	// A process is replaced after JobsPerRunner jobs, above MaxRSS bytes of memory, and after
	// MaxAge; 0 = never.
	JobsPerRunner int
	MaxRSS        int64
	MaxAge        time.Duration
	// KillAfter is how long a job may take to stop when told to, unless its class says
	// otherwise; 0 = 10 s. It is at most half of KillGrace, if that is set.
	KillAfter, KillGrace time.Duration
	Proc                 string
	Log                  *zap.Logger

	// For tests: patience replaces inHand, backOffFrom the first pause after an unusable
	// process, lineFor restOfLine.
	patience, backOffFrom, tick, lineFor time.Duration
}

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

func (o Options) killAfter(of time.Duration) time.Duration {
	if of <= 0 {
		of = o.KillAfter
	}
	if o.KillGrace > 0 {
		of = min(of, o.KillGrace/2)
	}
	return of
}

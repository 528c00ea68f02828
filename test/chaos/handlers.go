package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/chaos/ledger"
)

// Roles of a process of the harness, and its environment variables.
const (
	roleDaemon     = "daemon"
	roleCommand    = "command"
	roleGrandchild = "grandchild"

	ledgerEnv = "CHAOS_LEDGER" // directory of the ledger
	runEnv    = "CHAOS_RUN"    // run to which a grandchild belongs
	markEnv   = "CHAOS_MARK"   // names the harness and the daemon
	treeEnv   = "CHAOS_TREE"   // the command starts a grandchild
	slowEnv   = "CHAOS_SLOW"   // how long a slow command takes
	longEnv   = "CHAOS_LONG"   // the command is a slow one
	briefEnv  = "CHAOS_BRIEF"  // the command has hardly anything to do
	limitEnv  = "CHAOS_LIMIT"  // limit under which the command counts
)

// actEvery is how often a job that holds a lock or counts under limits notes that it still runs.
const actEvery = 10 * time.Millisecond

// task holds a payload's instructions for its handler, in addition to the arguments.
type task struct {
	// MS is the duration in milliseconds, How the kind of outcome, Fails the number of failing
	// runs.
	MS    int    `json:"ms"`
	How   string `json:"how"`
	Fails int    `json:"fails"`
}

// commandClasses are the classes of commands, which note their own starts and ends.
var commandClasses = []string{"Command", "Tool", "Tree", "Slow", "Lengthy"}

func runDaemon() {
	h := resqued.New()
	d := &deeds{}
	if os.Getenv("RESQUED_PROC") != "" {
		w, err := ledger.Open(os.Getenv(ledgerEnv), os.Getenv("RESQUED_PROC"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		d.ledger = w
	}
	d.register(h)
	daemon.Main(h)
}

type deeds struct{ ledger *ledger.Writer }

func (d *deeds) register(h *resqued.Handlers) {
	h.Use(d.note)
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	command := func(class, program string, env ...string) {
		h.Register(resqued.Class{Name: class, Command: &resqued.Command{
			Argv: []string{program}, Env: append(env, roleEnv+"="+roleCommand), KillAfter: 300 * time.Millisecond,
		}})
	}
	command("Command", self, limitEnv+"="+totalLimit)
	command("Tool", os.Getenv(toolEnv), briefEnv+"=1")
	command("Tree", self, treeEnv+"=1", limitEnv+"="+totalLimit)
	// These outlive the lease of their worker process if that is stopped: Slow has a lock, Lengthy a limit.
	command("Slow", self, longEnv+"=1")
	command("Lengthy", self, longEnv+"=1", limitEnv+"="+lengthyLimit)
	if name := os.Getenv(runnerEnv); name != "" {
		for _, class := range runnerClasses {
			// A stopped runner would keep its job.
			h.Register(resqued.Class{Name: class, Command: &resqued.Command{Runner: name, KillAfter: 300 * time.Millisecond}}, resqued.Timeout(runnerTimeout))
		}
	}
	job := func(class string, fn func(ctx context.Context, t task) error, opts ...resqued.Option) {
		h.Register(resqued.Class{Name: class, Handler: func(ctx context.Context, job *resqued.Job) error {
			var t task
			if err := json.Unmarshal(job.Payload, &t); err != nil {
				return err
			}
			return fn(ctx, t)
		}}, opts...)
	}
	job("Work", d.work)
	job("Later", d.work)
	job("Tick", d.work)
	job("Retry", d.retry, resqued.Retry{Attempts: retryAttempts, Backoff: retryWaits})
	longjob.Register(h, "Long", d.long, longjob.Options{Queue: longQueue, Slice: longSlice, RetryAfter: time.Second})
	job("Locked", d.work)
	job("Limited", d.work)
	job("Once", d.work)
	job("Named", d.work, resqued.JobLockKey(func(j *resqued.Job) string {
		var key string
		_ = j.Args.Decode(&key)
		return "named:" + key
	}))
	// Stubborn ignores cancellation.
	job("Stubborn", func(ctx context.Context, t task) error { return d.work(context.WithoutCancel(ctx), t) })
	job("Panic", func(context.Context, task) error { panic("as it should") })
	job("Fail", func(context.Context, task) error { return errors.New("as it should") })
	job("Again", func(context.Context, task) error {
		if rand.IntN(2) == 0 {
			return resqued.Requeue(200 * time.Millisecond)
		}
		return nil
	})
	// Die ends its process at its first attempt, Poison at each.
	job("Die", func(ctx context.Context, t task) error {
		if resqued.JobFrom(ctx).Attempt > 1 {
			return nil
		}
		return d.die(ctx, t)
	})
	job("Poison", d.die)
}

type runKey struct{}

// nameOf returns the id of a job. A job in the lists of Ruby's schedulers has it among its
// arguments, because its payload may hold nothing else.
func nameOf(job *resqued.Job) string {
	var id string
	if job.Class != "Later" && job.Class != "Tick" || job.Args.Get(0, &id) != nil {
		return job.ID
	}
	return id
}

// note notes the start and the end of each job that is a Go function.
func (d *deeds) note(next resqued.Handler) resqued.Handler {
	return func(ctx context.Context, job *resqued.Job) (err error) {
		if slices.Contains(commandClasses, job.Class) || isRunnerClass(job.Class) {
			return next(ctx, job)
		}
		e := ledger.Entry{
			What: ledger.Start, Run: strconv.FormatUint(rand.Uint64(), 36), ID: nameOf(job), Class: job.Class,
			Attempt: job.Attempt, Lock: job.LockKey, Fence: job.Fence(), Reserved: job.StartedAt.UnixMilli(),
		}
		if job.Fence() == 0 {
			e.Lock = ""
		}
		if job.Class == "Limited" {
			var key string
			_ = job.Args.Get(0, &key)
			e.Limits = []string{totalLimit, keyedLimit + ":" + key}
		}
		if err := d.ledger.Write(e); err != nil {
			return err
		}
		end := ledger.Entry{What: ledger.Fail, Run: e.Run, ID: e.ID}
		defer func() {
			// Even if the job panics.
			if failed := d.ledger.Write(end); failed != nil {
				err = failed
			}
		}()
		err = next(context.WithValue(ctx, runKey{}, e), job)
		var again *resqued.RequeueError
		switch {
		case err == nil, errors.Is(err, resqued.Discard):
			end.What = ledger.End
		case errors.As(err, &again):
			end.What = ledger.Requeue
		case errors.Is(context.Cause(ctx), resqued.ErrLockLost):
			end.What = ledger.Lost
		}
		return err
	}
}

func (d *deeds) act(ctx context.Context, what string) error {
	e, _ := ctx.Value(runKey{}).(ledger.Entry)
	return d.ledger.Write(ledger.Entry{What: what, Run: e.Run, ID: e.ID})
}

// work takes the job's time. A job that holds a lock or counts under limits notes that it still runs.
func (d *deeds) work(ctx context.Context, t task) error {
	if t.MS == 0 {
		return nil
	}
	e, _ := ctx.Value(runKey{}).(ledger.Entry)
	end := time.NewTimer(time.Duration(t.MS) * time.Millisecond)
	defer end.Stop()
	tick := time.NewTicker(actEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return nil
		case <-tick.C:
			if e.Lock == "" && e.Limits == nil {
				continue
			}
			if err := d.act(ctx, ledger.Act); err != nil {
				return err
			}
		}
	}
}

// retry fails as often as its payload demands.
func (d *deeds) retry(ctx context.Context, t task) error {
	if err := d.work(ctx, t); err != nil {
		return err
	}
	if resqued.JobFrom(ctx).Attempt <= t.Fails {
		return errors.New("as it should")
	}
	return nil
}

// long is a long job. Its units note the saved count and increase it.
func (d *deeds) long(ctx context.Context, r *longjob.Runner, id string) error {
	e, _ := ctx.Value(runKey{}).(ledger.Entry)
	units := make([]int, longUnits(id))
	for i := range units {
		units[i] = i
	}
	err := longjob.WorkEach(ctx, r, "units", units, func(ctx context.Context, unit int) error {
		known, err := longjob.State(r, "units", 0)
		if err != nil {
			return err
		}
		if err := d.work(ctx, task{MS: longUnit}); err != nil {
			return err
		}
		if err := longjob.SetState(r, "units", known+1); err != nil {
			return err
		}
		return d.ledger.Write(ledger.Entry{What: ledger.Unit, Run: e.Run, ID: e.ID, Long: id, Unit: unit, State: known})
	})
	if err != nil {
		return err
	}
	return d.ledger.Write(ledger.Entry{What: ledger.Complete, Run: e.Run, ID: e.ID, Long: id})
}

// die ends the process with everything that runs in it.
func (d *deeds) die(ctx context.Context, t task) error {
	if err := d.work(ctx, t); err != nil {
		return err
	}
	if err := d.act(ctx, ledger.Die); err != nil {
		return err
	}
	switch t.How {
	case "exit":
		os.Exit(9)
	case "panic":
		go func() { panic("in a goroutine that recovers nothing") }()
	case "memory":
		// An allocation above the limit has the same effect as the kernel's kill in a full
		// cgroup.
		_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1, Max: 1})
		for {
			hoard = append(hoard, make([]byte, 64<<20))
		}
	default:
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	select {}
}

var hoard [][]byte

// runCommand is a job's command. It works for a while, and may leave a process in its own
// session.
func runCommand() int {
	w, err := ledger.Open(os.Getenv(ledgerEnv), os.Getenv("RESQUED_PROC"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	id := os.Getenv("RESQUED_JOB_ID")
	attempt, _ := strconv.Atoi(os.Getenv("RESQUED_JOB_ATTEMPT"))
	fence, _ := strconv.ParseInt(lockVariable("FENCE"), 10, 64)
	e := ledger.Entry{
		What: ledger.Start, Run: strconv.FormatUint(rand.Uint64(), 36), ID: id, Class: "Command",
		Attempt: attempt, Lock: lockVariable("KEY"), Fence: fence,
	}
	if name := os.Getenv(limitEnv); name != "" {
		e.Limits = []string{name}
	}
	if err := w.Write(e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	if os.Getenv(treeEnv) != "" {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), roleEnv+"="+roleGrandchild, runEnv+"="+e.Run)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitFailed
		}
	}
	what := ledger.Entry{What: ledger.Act, Run: e.Run, ID: id}
	long := time.Duration(20+rand.IntN(200)) * time.Millisecond
	switch {
	case os.Getenv(longEnv) != "":
		long, _ = time.ParseDuration(os.Getenv(slowEnv))
	case os.Getenv(briefEnv) != "":
		long = brief
	}
	act(w, what, long)
	what.What = ledger.End
	if err := w.Write(what); err != nil {
		return exitFailed
	}
	return exitOK
}

// lockVariable returns a variable by which the daemon passes the job's lock to a command.
func lockVariable(name string) string {
	if v := os.Getenv("RESQUED_JOB_LOCK_" + name); v != "" {
		return v
	}
	return os.Getenv("RESQUED_LOCK_" + name)
}

// runGrandchild notes for a while that the job still runs, independently of the command.
func runGrandchild() int {
	w, err := ledger.Open(os.Getenv(ledgerEnv), os.Getenv("RESQUED_PROC"))
	if err != nil {
		return exitFailed
	}
	act(w, ledger.Entry{What: ledger.Act, Run: os.Getenv(runEnv), ID: os.Getenv("RESQUED_JOB_ID")}, 2*time.Second)
	return exitOK
}

func act(w *ledger.Writer, e ledger.Entry, d time.Duration) {
	tick := time.NewTicker(actEvery)
	defer tick.Stop()
	for end := time.After(d); ; {
		select {
		case <-end:
			return
		case <-tick.C:
			if w.Write(e) != nil {
				return
			}
		}
	}
}

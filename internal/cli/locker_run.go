package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/locker"
)

// passed are the signals that are passed on to the command.
var passed = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGCONT, syscall.SIGWINCH,
}

// ending are the signals that ask a process to end.
var ending = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// typed are the signals that a terminal sends to its whole foreground group.
var typed = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH}

func (a *cli) lockerRunCommand(f *lockerFlags) *cobra.Command {
	var o locker.Options
	return a.command(verb{
		use: "run KEY -- CMD…", kind: noRedis, short: "run a command while holding a lock",
		long: `Run a command on one server at a time: take the lock KEY, run CMD, release the
lock. Without --blocking nothing runs if another holds the lock.

CMD gets LOCKER_SEQUENCE in its environment, a number that grows with every
acquisition of the key. It runs in its own process group. TERM, INT, HUP, QUIT,
USR1, USR2, CONT and WINCH are passed to the group; processes left in it are
killed when CMD ends. At a terminal CMD runs in the group of this process, so
that it can read input, and gets INT, QUIT and WINCH from the terminal alone.

If the lock cannot be renewed, or this process is killed or stopped (^Z), CMD
gets TERM, then KILL, before another can get the lock.

Exit codes: CMD's own, 128 + n if signal n ended it, 126 or 127 if it could not
start; 70 the lock was stolen, 75 the lock was not obtained.`,
		example: "locker run feeds -- ./check-feeds\nlocker run migrate --blocking --block-timeout 5m -- rails db:migrate",
		args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usage("Example: "+c.CommandPath()+" feeds -- ./check-feeds", "write the key, then --, then the command")
			}
			return nil
		},
		flags: func(f *flagSet) {
			f.BoolVar(&o.Blocking, "blocking", false, "wait until the lock is free")
			f.span(&o.BlockTimeout, "block-timeout", 0, "longest wait with --blocking (0: no limit)")
			f.span(&o.LockFor, "lock-for", locker.DefaultLockFor, "time before the lock of a dead holder ends")
			f.span(&o.RenewEvery, "renew-every", 0, "time between renewals (default: a third of --lock-for)")
			f.check(func() error { return checkLease(&o) })
		},
		do: func(c *cobra.Command, args []string) error {
			o.Table = f.table
			return a.lockerRun(c, f, o, args[0], args[1:])
		},
	})
}

// checkLease fills in defaults and refuses bad values by the names of their flags.
func checkLease(o *locker.Options) error {
	if o.RenewEvery == 0 {
		o.RenewEvery = o.LockFor / 3
	}
	switch {
	case o.LockFor <= 0:
		return usage("", "--lock-for %s: must be greater than 0", o.LockFor)
	case o.LockFor > locker.MaxLockFor:
		return usage("", "--lock-for %s: must not be longer than %s; the lock is renewed as long as the command runs", o.LockFor, locker.MaxLockFor)
	case o.RenewEvery <= 0:
		return usage("", "--renew-every %s: must be greater than 0", o.RenewEvery)
	case o.RenewEvery >= o.LockFor:
		return usage("", "--renew-every %s: must be less than --lock-for %s", o.RenewEvery, o.LockFor)
	case o.BlockTimeout < 0:
		return usage("", "--block-timeout %s: must not be negative", o.BlockTimeout)
	case o.BlockTimeout > 0 && !o.Blocking:
		return usage("", "--block-timeout %s: has no effect without --blocking", o.BlockTimeout)
	}
	return nil
}

func (a *cli) lockerRun(c *cobra.Command, f *lockerFlags, o locker.Options, key string, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return cannotStart(command[0], err)
	}
	return a.withDatabase(c, f, func(pool *pgxpool.Pool) error {
		if o.Blocking {
			var once sync.Once // later errors are mostly the same
			o.OnError = func(err error) { once.Do(func() { a.warn("trying again: %s", oneLine(err)) }) }
		}
		l, err := locker.New(pool, key, o)
		if err != nil {
			return usage("", "%s", strings.TrimPrefix(err.Error(), "locker: "))
		}
		ctx, cancel := context.WithCancelCause(c.Context())
		defer cancel(nil)
		r := &lockedRun{lock: l, o: o, command: command, cancel: cancel, received: make(chan os.Signal, 16)}
		for _, s := range passed {
			if !signal.Ignored(s) { // the command inherits nohup's setting
				signal.Notify(r.received, s)
			}
		}
		defer signal.Stop(r.received)
		waited := make(chan struct{})
		running := make(chan struct{})
		go r.cancelOnSignal(running, waited)
		ran, err := l.Run(ctx, func(ctx context.Context, sequence int64) error {
			close(running)
			<-waited
			return r.run(ctx, sequence)
		})
		if !ran {
			select {
			case <-running:
			default:
				close(running)
			}
			<-waited
		}
		return a.lockerOutcome(ctx, r, key, ran, err)
	})
}

func cannotStart(program string, err error) error {
	code := exitNoProgram
	if errors.Is(err, os.ErrPermission) {
		code = exitNotExecutable
	}
	why := err
	if e, ok := errors.AsType[*exec.Error](err); ok {
		why = e.Err // the text of err repeats the program's name
	}
	return &problem{exit: code, code: "command", cause: err, lines: []string{fmt.Sprintf("%s: %s", wire.Printable(program, 200), why)}}
}

// lockerOutcome returns the result of a run: the command's own exit code, or why there is none.
func (out *output) lockerOutcome(ctx context.Context, r *lockedRun, key string, ran bool, err error) error {
	key = wire.Printable(key, 200)
	if s, ok := errors.AsType[signalled](context.Cause(ctx)); ok && (!ran || !r.started) {
		return exitCode(128 + int(s.number))
	}
	switch {
	case !ran && err != nil:
		return err
	case !ran:
		h := r.lock.Holder()
		p := &problem{exit: exitNotObtained, code: "held"}
		p.lines = []string{fmt.Sprintf("%q is held by %s for %s more", key, holderName(h.LockedBy), view.Age(h.Left))}
		if !r.o.Blocking {
			p.hint = "Wait with --blocking."
		}
		return p
	case !r.started:
		return err
	case r.lost:
		return &problem{
			exit: exitStolen, code: "stolen", cause: err,
			lines: []string{fmt.Sprintf("the lock on %q was lost, and %s was killed: %s", key, wire.Printable(r.command[0], 200), lostText(err))},
		}
	case err != nil:
		// The command ended by itself while it had the lock.
		out.warn("%s", oneLine(err))
	}
	if r.code != 0 {
		return exitCode(r.code)
	}
	return nil
}

func lostText(err error) string {
	if err == nil {
		return "it was not renewed in time"
	}
	return oneLine(err)
}

// signalled is why the wait ended.
type signalled struct{ number syscall.Signal }

func (s signalled) Error() string { return "ended by " + s.number.String() }

type lockedRun struct {
	lock     *locker.Lock
	o        locker.Options
	command  []string
	cancel   context.CancelCauseFunc
	received chan os.Signal

	started bool
	// lost: the command was ended because of the lock. code is its exit code.
	lost bool
	code int
}

// cancelOnSignal makes a signal end the wait for the lock, until the command runs.
func (r *lockedRun) cancelOnSignal(running <-chan struct{}, waited chan<- struct{}) {
	defer close(waited)
	for {
		select {
		case s := <-r.received:
			if slices.Contains(ending, s) {
				r.cancel(signalled{s.(syscall.Signal)})
				return
			}
		case <-running:
			return
		}
	}
}

// run runs the command and returns when it and its group are gone.
func (r *lockedRun) run(ctx context.Context, sequence int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	terminal := atTerminal()
	g, err := startGuard(r.command, append(os.Environ(), fmt.Sprintf("LOCKER_SEQUENCE=%d", sequence)), r.terms(), terminal)
	if err != nil {
		return err
	}
	r.started = true
	tick := time.NewTicker(max(time.Millisecond, min(r.o.RenewEvery/4, time.Second)))
	defer tick.Stop()
	over := ctx.Done()
	var last <-chan time.Time
	for {
		select {
		case <-tick.C:
			if over != nil { // a lost lease is not renewed
				g.tell(r.terms())
			}
		case s := <-r.received:
			if terminal && slices.Contains(typed, s) && g.hasStarted() {
				continue // the terminal sends it to the command
			}
			g.tell(fmt.Sprintf("signal %d", s))
		case <-over:
			over = nil
			work, lease := r.lock.Left()
			if lease == 0 || work > 0 {
				g.tell("kill") // another process may hold it already
			} else {
				g.tell("stop")
			}
			// In case the guard does not.
			if last = time.After(lease * 3 / 4); lease == 0 {
				last = time.After(time.Second)
			}
		case <-last:
			g.kill()
		case <-g.gone:
			r.lost, r.code = g.result()
			return nil
		}
	}
}

// terms tells the guard until when the command may work and live.
func (r *lockedRun) terms() string {
	now := procfs.BootTime() // before Left, so that the lease is not extended
	work, lease := r.lock.Left()
	return leaseTerms(now+work, now+work+(lease-work)/2)
}

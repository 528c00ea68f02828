// Command chaos breaks a running resqued in every way that docs/reliability.md describes. It
// checks by a ledger outside of Redis that no job is lost, none runs twice without a reason, no
// lock has two holders, and nothing is left behind.
//
//	go run ./test/chaos -profile short -seed 7
//
// It is three programs in one, selected by an environment variable: the harness, the daemon
// with the handlers of the jobs, and the command that some jobs run. The seed determines the
// faults and their targets, but their times only roughly.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// roleEnv selects which of the programs this process is.
const roleEnv = "CHAOS_ROLE"

// Exit codes of the harness.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() {
	switch os.Getenv(roleEnv) {
	case roleDaemon:
		runDaemon()
	case roleCommand:
		os.Exit(runCommand())
	case roleGrandchild:
		os.Exit(runGrandchild())
	default:
		os.Exit(runHarness(os.Args[1:]))
	}
}

func runHarness(args []string) int {
	var o options
	var faults string
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.profile, "profile", "short", "gate: most faults once, about 75 seconds; short: every fault once or twice, about 3 minutes; long: again and again for -duration")
	flags.Uint64Var(&o.seed, "seed", 0, "what is to happen; 0 = another each time")
	flags.DurationVar(&o.duration, "duration", 30*time.Minute, "how long the long profile breaks things")
	flags.StringVar(&o.dir, "dir", "", "where the evidence goes; default: a directory for temporary files")
	flags.BoolVar(&o.keep, "keep", false, "keep the evidence of a run without a finding, too")
	flags.BoolVar(&o.verbose, "v", false, "print every fault as it happens")
	flags.Float64Var(&o.rate, "rate", 60, "jobs per second")
	flags.IntVar(&o.least, "least", 0, "how often each kind of fault has to happen; 0 = once, and in a long run of half an hour or more 20 times")
	flags.StringVar(&o.table, "table", "", "a file for the times to notice and to recover, as Markdown")
	flags.DurationVar(&o.quiet, "quiet", defaultQuiet, "how long nothing is broken before each round of faults; 6s with the gate profile")
	flags.DurationVar(&o.settle, "settle", maxSettle, "how long all jobs may take to end when nothing is broken any more")
	flags.DurationVar(&o.slow, "slow", 0, "how long one command at a time runs, if it is to outlive leases; 0 = 6/5 of a lease of 10s and more, else there is none")
	flags.DurationVar(&o.lease, "lease", defaultLease, "how long a worker process lives in Redis without a sign of life; the shortest, see -mixed")
	flags.BoolVar(&o.mixed, "mixed", true, "have daemons of different job_lock_duration side by side: -lease, 2s more, and twice as long and 1s")
	flags.StringVar(&o.previous, "previous", "", "a commit (HEAD^): each daemon is now of this version, now of that one, at each start; left out where git does not have it")
	flags.StringVar(&faults, "faults", "", "only these kinds of faults, separated by commas; or all but those with a ! before them")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(flags.Output(), "usage: go run ./test/chaos [flags]\n\n")
		flags.PrintDefaults()
		_, _ = fmt.Fprintf(flags.Output(), "\nkinds of faults:\n  %s\n", strings.Join(kindNames(), " "))
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if faults != "" {
		o.only = strings.Split(faults, ",")
	}
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"profile", "seed", "dir", "keep", "v", "table"}, f.Name) {
			o.given += fmt.Sprintf(" -%s='%s'", f.Name, f.Value)
		}
	})
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return exitUsage
	}
	if o.seed == 0 {
		o.seed = newSeed()
	}
	redis.SetLogger(unheard{}) // broken connections are expected here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	remove, err := o.build(ctx)
	defer remove()
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		return exitFailed
	}
	ok, err := run(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "chaos: %v\nreplay: %s\n", err, o.command())
		return exitFailed
	case !ok:
		return exitFailed
	}
	return exitOK
}

type unheard struct{}

func (unheard) Printf(context.Context, string, ...any) {}

func newSeed() uint64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return uint64(binary.LittleEndian.Uint32(b[:])) + 1
}

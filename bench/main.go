// Command bench compares resqued with its peers on one machine, in one run, interleaved, with
// all locks on. It prints a table and writes the report with all figures into a directory.
//
//	go run . -short
//	go run . -scenario noop-1,noop-50 -peer resqued,asynq -rounds 7
//
// It is several programs in one, selected by an environment variable: the harness, the workers
// of each peer but resqued, and producers. Resqued's daemon is in ./daemon.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/resqued/resqued/bench/job"
)

const (
	roleEnv = "BENCH_ROLE"
	specEnv = "BENCH_SPEC"

	roleWorker  = "worker"  // any peer except resqued, whose daemon is a separate program
	roleEnqueue = "enqueue" // a producer
)

func main() {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(harness(os.Args[1:]))
	}
	if err := runRole(role); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds    int
	short     bool
	window    time.Duration
	profile   bool
	out       string
	daemon    string
	scenarios []scenario
	peers     []*peer
}

func harness(arguments []string) int {
	var o options
	var scenarioNames, peerNames string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&scenarioNames, "scenario", "", "only these scenarios, separated by commas; a name ending in * stands for all that begin so")
	flags.StringVar(&peerNames, "peer", "", "only these peers")
	flags.IntVar(&o.rounds, "rounds", 0, "how often each is measured; 0 = 5, in a short run 3")
	flags.BoolVar(&o.short, "short", false, "about 3 minutes: fewer scenarios, shorter measurements")
	flags.DurationVar(&o.window, "window", 0, "how long a measurement should take; 0 = 1s, in a short run 250ms")
	flags.BoolVar(&o.profile, "profile", false, "record CPU profiles of resqued's worker processes")
	flags.StringVar(&o.out, "out", "out", "`directory` of the report")
	flags.StringVar(&o.daemon, "daemon", "", "the `program` of resqued, built from ./daemon; else it is built at the beginning")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(flags.Output(), "usage: go run . [flags]\n\n")
		flags.PrintDefaults()
		_, _ = fmt.Fprintf(flags.Output(), "\nscenarios:\n")
		for _, s := range scenarios() {
			_, _ = fmt.Fprintf(flags.Output(), "  %-18s %s\n", s.Name, s.Title)
		}
		_, _ = fmt.Fprintf(flags.Output(), "\npeers:\n")
		for _, p := range peers() {
			_, _ = fmt.Fprintf(flags.Output(), "  %-18s %s\n", p.name, p.title)
		}
	}
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if err := o.choose(scenarioNames, peerNames); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func (o *options) choose(scenarioNames, peerNames string) error {
	if o.rounds == 0 {
		o.rounds = 5
		if o.short {
			o.rounds = 3
		}
	}
	if o.window == 0 {
		o.window = time.Second
		if o.short {
			o.window = time.Second / 4
		}
	}
	wanted := strings.FieldsFunc(scenarioNames, func(r rune) bool { return r == ',' })
	for _, s := range scenarios() {
		if len(wanted) == 0 && (s.Short || !o.short) || slices.ContainsFunc(wanted, func(w string) bool {
			prefix, glob := strings.CutSuffix(w, "*")
			return w == s.Name || glob && strings.HasPrefix(s.Name, prefix)
		}) {
			o.scenarios = append(o.scenarios, s)
		}
	}
	names := strings.FieldsFunc(peerNames, func(r rune) bool { return r == ',' })
	for _, p := range peers() {
		if len(names) == 0 || slices.Contains(names, p.name) {
			o.peers = append(o.peers, p)
		}
	}
	if len(o.scenarios) == 0 || len(names) > 0 && len(names) != len(o.peers) {
		return errors.New("no such scenario or peer; see -help")
	}
	return nil
}

// childEnv returns the whole environment of a child, so the caller's cannot affect the
// measurement.
func childEnv(variable string, value any, more ...string) []string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // plain data
	}
	return append(more, "PATH="+os.Getenv("PATH"), "HOME="+os.TempDir(), variable+"="+string(text))
}

func runRole(role string) error {
	var sp spec
	if err := json.Unmarshal([]byte(os.Getenv(specEnv)), &sp); err != nil {
		return err
	}
	all := peers()
	i := slices.IndexFunc(all, func(p *peer) bool { return p.name == sp.Peer })
	if i < 0 {
		return fmt.Errorf("no peer %q", sp.Peer)
	}
	ctx := context.Background()
	shared, _, err := job.Open(sp.Shared)
	if err != nil {
		return err
	}
	if role == roleWorker {
		return all[i].work(ctx, &sp, &job.Handler{Spec: sp.job(), Shared: shared})
	}
	c, err := all[i].client(ctx, &sp)
	if err != nil {
		return err
	}
	// Connections are opened and scripts loaded before the measurement begins.
	if err := pushAll(ctx, c, &sp.Scenario, 2*sp.Scenario.Goroutines); err != nil {
		return err
	}
	shared.Pass()
	if err := pushAll(ctx, c, &sp.Scenario, sp.Jobs); err != nil {
		return err
	}
	shared.Done.Store(int64(sp.Jobs))
	shared.Last.Store(int64(job.Monotonic()))
	return forever()
}

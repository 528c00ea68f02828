// Command defects breaks resqued on purpose, one promise at a time, and requires that the chaos
// harness finds it. A harness that passes with a broken daemon shows nothing.
//
//	go run ./test/chaos/defects -only 'fence'
//
// Each defect replaces a line or two of the product in a build of its own (go build -overlay),
// which does not modify the tree. The command fails if a defect is not found with any seed, if
// an edit does not apply, or if the harness finds something in the unmodified product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "only the defects whose invariant and name hold this text")
	seeds := flag.Int("seeds", 4, "how many seeds a defect may take to be found")
	list := flag.Bool("list", false, "only say which defects there are, and whether their places are found")
	sound := flag.Bool("sound", true, "run what is not broken, too, with each seed that found something")
	flag.Usage = func() {
		_, _ = fmt.Fprintf(flag.CommandLine.Output(), "usage: go run ./test/chaos/defects [flags]\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *only, *seeds, *list, *sound)
	if err != nil {
		fmt.Fprintln(os.Stderr, "defects:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// run checks each chosen defect and then the unmodified product, and prints a table.
func run(ctx context.Context, only string, seeds int, list, sound bool) (ok bool, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "defects-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var chosen []defect
	for _, d := range defects {
		if err := d.check(root); err != nil { // all, so that a run of one finds stale ones
			return false, err
		}
		if strings.Contains(d.invariant+" "+d.name, only) {
			chosen = append(chosen, d)
		}
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("no defect is called %q", only)
	}
	if list {
		for _, d := range chosen {
			fmt.Printf("%s  %s\n", d.invariant, d.name)
		}
		return true, nil
	}

	ok = true
	var trials []trial // that found something
	fmt.Printf("%-3s %-62s %-26s %5s %6s\n", "", "defect", "found by", "seed", "after")
	for i, d := range chosen {
		program := filepath.Join(dir, fmt.Sprintf("chaos-%d", i))
		if err := d.build(ctx, root, dir, program); err != nil {
			return false, err
		}
		t, found, err := seek(ctx, program, d, seeds)
		if err != nil {
			return false, err
		}
		_ = os.Remove(program)
		if found == nil {
			ok = false
			fmt.Printf("%-3s %-62s NOT FOUND with %d seeds\n", d.invariant, d.name, seeds)
			continue
		}
		trials = append(trials, t)
		fmt.Printf("%-3s %-62s %-26s %5d %5.0fs\n", d.invariant, d.name, strings.Join(found, ", "), t.seed, t.took.Seconds())
	}
	if !sound {
		return ok, nil
	}
	program := filepath.Join(dir, "chaos-sound")
	if err := build(ctx, root, program); err != nil {
		return false, err
	}
	done := map[string]bool{}
	for _, t := range trials {
		if key := t.key(); done[key] {
			continue
		} else {
			done[key] = true
		}
		found, report, err := t.run(ctx, program)
		if err != nil {
			return false, err
		}
		verdict := "nothing, as it should"
		if len(found) > 0 {
			ok = false
			verdict = strings.Join(found, ", ") + "\n" + report
		}
		fmt.Printf("    %-62s %-26s %5d %5.0fs\n", "none: "+t.scenario.name, verdict, t.seed, t.took.Seconds())
	}
	return ok, nil
}

// seek runs a defective build with one seed after another until a check finds the defect.
func seek(ctx context.Context, program string, d defect, seeds int) (t trial, found []string, err error) {
	began := time.Now()
	for seed := 1; seed <= seeds; seed++ {
		t = trial{scenario: d.in, seed: seed}
		all, _, err := t.run(ctx, program)
		if err != nil {
			return t, nil, fmt.Errorf("%s: %w", d.name, err)
		}
		for _, check := range all {
			if d.shownBy(check) {
				found = append(found, check)
			}
		}
		if len(found) > 0 {
			t.took = time.Since(began)
			return t, found, nil
		}
		if len(all) > 0 {
			fmt.Printf("%-3s %-62s %s with seed %d, where %s was expected\n", d.invariant, d.name, strings.Join(all, ", "), seed, strings.Join(d.by, " or "))
		}
	}
	return t, nil, nil
}

var errNoReport = errors.New("the harness gave no verdict")

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scenario holds the arguments of the harness: the few faults that show a defect.
type scenario struct {
	name string
	args []string
}

// limit bounds one run: a defect may make the harness wait for ever.
const limit = 4 * time.Minute

// trial is one run of a scenario.
type trial struct {
	scenario scenario
	seed     int
	took     time.Duration // for the finding, with the seeds that found nothing
}

func (t *trial) key() string { return strings.Join(t.scenario.args, " ") + strconv.Itoa(t.seed) }

// finding matches a report line of a failed check, except C8, which requires that many things
// happen: here few do.
var finding = regexp.MustCompile(`(?m)^(C(?:[1-79]|1[0-9]) [a-z, ]*[a-z]) +FAILED`)

func findings(report string) (checks []string) {
	for _, m := range finding.FindAllStringSubmatch(report, -1) {
		checks = append(checks, m[1])
	}
	return checks
}

// run runs the harness and returns the checks that failed.
func (t *trial) run(ctx context.Context, program string) (found []string, report string, err error) {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	args := append([]string{"-profile", "long", "-seed", strconv.Itoa(t.seed), "-dir", dir, "-mixed=false"}, t.scenario.args...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has processes to end
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.took = time.Since(began)
	report = out.String()
	found = findings(report)
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return nil, report, err
	case len(found) > 0 && err == nil:
		return nil, report, fmt.Errorf("exit code 0 with findings:\n%s", report)
	case len(found) == 0 && !strings.Contains(report, "\nC8 "):
		return nil, report, fmt.Errorf("%w (%s with seed %d):\n%s", errNoReport, t.scenario.name, t.seed, report)
	}
	return found, report, nil
}

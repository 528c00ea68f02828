package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/control"
)

const healthPatience = 3 * time.Second

type healthView struct {
	Healthy bool   `json:"healthy"`
	State   string `json:"state"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
	// Ready is how many worker processes take jobs.
	Ready int `json:"ready"`
	// Outage is why Redis is unusable, or "".
	Outage string `json:"outage"`
	// Trouble says which runners are missing, or "".
	Trouble string `json:"trouble,omitempty"`
	Text    string `json:"text"`
}

func (a *cli) healthCommand() *cobra.Command {
	var patience time.Duration
	var alive bool
	return a.toDaemon(verb{
		use: "health [PID]", short: "check the daemon of this machine: for containers and probes",
		long: `Ask a daemon on this machine for its state, through its control socket. Exit
code 0: it takes jobs, or is paused. Exit code 3: it does not run or answer, is
starting or leaving, no worker process is ready, a runner has not booted, or
Redis is away. Without PID or --socket it asks the only daemon that it finds
here, whatever Redis that uses.

With --alive any answer is enough. Use it for checks that restart a daemon: a
restart does not repair Redis, and it ends a drain.`,
		example: "health\nhealth --alive\n  HEALTHCHECK CMD [\"" + a.name + "\", \"health\"]",
		flags: func(f *flagSet) {
			f.DurationVar(&patience, "timeout", healthPatience, "longest wait for the answer")
			f.BoolVar(&alive, "alive", false, "any answer is enough")
			f.check(func() error {
				if patience <= 0 {
					return usage("", "--timeout %s: use more than 0", patience)
				}
				return nil
			})
		},
	}, false, func(_ *cobra.Command, path string) error { return a.health(path, alive, patience) })
}

func (out *output) health(path string, alive bool, patience time.Duration) error {
	reply, err := askInCharge(path, control.Status, patience)
	switch {
	case errors.Is(err, control.ErrNoAnswer):
		return &problem{exit: exitUnhealthy, code: "timeout", lines: []string{fmt.Sprintf("the daemon at %s does not answer within %s", path, patience)}, cause: err}
	case err != nil:
		return notRunning(err)
	}
	v := healthView{State: reply.State, PID: reply.PID, Version: reply.Version, Ready: reply.Ready, Outage: reply.Outage, Trouble: reply.Trouble, Text: reply.Text}
	v.Healthy = reply.OK && (alive || works(v.State, v.Ready, v.Outage+v.Trouble))
	word := "healthy"
	if !v.Healthy {
		word = "unhealthy"
	}
	said := *out
	said.flags.quiet = out.flags.quiet && v.Healthy // errors are not hidden
	err = said.result(v, strconv.Itoa(v.PID)+"\n", fmt.Sprintf("%s: process %d: %s\n", word, v.PID, v.Text))
	if err == nil && !v.Healthy {
		err = exitCode(exitUnhealthy)
	}
	return err
}

// works reports whether a daemon takes jobs or is paused. trouble is about its Redis or its
// runners.
func works(state string, ready int, trouble string) bool {
	return (state == string(signals.Running) || state == string(signals.Paused)) && ready > 0 && trouble == ""
}

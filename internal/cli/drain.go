package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/sys/control"
)

const drainLook = 200 * time.Millisecond

func (a *cli) drainCommand() *cobra.Command {
	var patience time.Duration
	var noWait bool
	return a.toDaemon(verb{
		use: "drain [PID]", short: "drain the daemon of this machine: for containers",
		long: `Ask a daemon on this machine, through its control socket, to take no new jobs,
finish its jobs and leave, as signal QUIT does. Then wait until it has left.
Jobs that still run after drain_timeout are stopped and go back to their
queues. Exit codes: 0 it has left (with --no-wait: it drains), 3 none runs.
Without PID or --socket it asks the only daemon that it finds here, unless the
configuration names another Redis than that daemon's.

It stops a container that has no shell ("preStop" of Kubernetes). A service
manager that restarts ended services starts the daemon again: stop the service
there. "workers drain" does the same from any machine.`,
		example: "drain",
		flags: func(f *flagSet) {
			f.DurationVar(&patience, "timeout", 0, "longest wait for its end (0: no limit)")
			f.BoolVar(&noWait, "no-wait", false, "do not wait")
		},
	}, true, func(_ *cobra.Command, path string) error {
		reply, err := orderDaemon(path, control.Drain, verdictPatience)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("process %d drains", reply.PID)
		if !noWait {
			if err := awaitEnd(path, reply.PID, patience); err != nil {
				return err
			}
			text = fmt.Sprintf("process %d has finished its jobs and left", reply.PID)
		}
		return a.verdict(reply, text)
	})
}

// awaitEnd waits until process pid no longer listens at path; patience 0 = for ever.
func awaitEnd(path string, pid int, patience time.Duration) error {
	begun, last := time.Now(), ""
	for {
		now, err := control.Ask(path, control.Status, statusPatience)
		switch {
		case errors.Is(err, control.ErrNoDaemon), err == nil && now.PID != pid:
			return nil
		case err == nil && now.OK:
			last = ": " + now.Text
		}
		if patience > 0 && time.Since(begun) > patience {
			return failure("timeout", "The drain continues: drain_timeout bounds it; TERM ends it now, with its jobs.",
				"process %d drains and has not left after %s%s", pid, patience, last)
		}
		<-time.After(drainLook)
	}
}

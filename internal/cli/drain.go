package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/sys/control"
)

const drainLook = 200 * time.Millisecond

func (a *cli) drainCommand() *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use: "drain [PID]", Annotations: noRedis, Short: "drain the daemon of this machine: for containers",
		Long: `Ask a daemon on this machine, through its control socket, to take no new jobs,
finish its jobs and leave, as signal QUIT does. Then wait until it has left.
Jobs that still run after drain_timeout are stopped and go back to their
queues. Exit codes: 0 it has left (with --no-wait: it drains), 3 none runs.
Without PID or --socket it asks the only daemon that it finds here, unless the
configuration names another Redis than that daemon's.

It stops a container that has no shell ("preStop" of Kubernetes). A service
manager that restarts ended services starts the daemon again: stop the service
there. "workers drain" does the same from any machine.`,
		Example: "  " + a.name + " drain",
	}
	socket := addSocketFlag(c)
	patience := c.Flags().Duration("timeout", 0, "longest wait for its end (0: no limit)")
	c.Flags().BoolVar(&noWait, "no-wait", false, "do not wait")
	c.RunE = func(c *cobra.Command, args []string) error {
		path := *socket
		if path == "" {
			var err error
			if path, err = a.controlOf(c, args, true); err != nil {
				return err
			}
		}
		return a.drain(path, *patience, noWait)
	}
	return c
}

func (a *cli) drain(path string, patience time.Duration, noWait bool) error {
	reply, err := askInCharge(path, control.Drain, verdictPatience)
	switch {
	case errors.Is(err, control.ErrNoDaemon):
		return &problem{exit: exitUnhealthy, code: "not_running", lines: []string{err.Error()}, cause: err}
	case err != nil:
		return err
	case !reply.OK:
		return &problem{exit: exitFailed, code: "refused", lines: strings.Split("drain refused: "+reply.Text, "\n")}
	}
	v := verdictView{OK: true, PID: reply.PID, Version: reply.Version, Text: fmt.Sprintf("process %d drains", reply.PID)}
	if !noWait {
		if err := awaitEnd(path, reply.PID, patience); err != nil {
			return err
		}
		v.Text = fmt.Sprintf("process %d has finished its jobs and left", reply.PID)
	}
	switch {
	case a.flags.output == outJSON:
		return a.printJSON(v)
	case a.flags.output == outName:
		return a.printText(strconv.Itoa(v.PID) + "\n")
	case a.flags.quiet:
		return nil
	}
	return a.printText(v.Text + "\n")
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
			return &problem{
				exit: exitFailed, code: "timeout", lines: []string{fmt.Sprintf("process %d drains and has not left after %s%s", pid, patience, last)},
				hint: "The drain continues: drain_timeout bounds it; TERM ends it now, with its jobs.",
			}
		}
		<-time.After(drainLook)
	}
}

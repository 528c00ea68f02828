package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/sys/control"
)

type verdictView struct {
	OK bool `json:"ok"`
	// PID is the daemon's process, the new one after an upgrade.
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Text    string `json:"text"`
}

const (
	// verdictPatience is how long a verdict is waited for: verdictMargin longer than a new version
	// may take to start. It is extended if runners may take longer to boot.
	verdictPatience = 80 * time.Second
	verdictMargin   = 20 * time.Second
	// statusPatience is how long a daemon without a verdict may take to report its state.
	statusPatience = time.Second
	// A daemon that is handing over is asked again.
	askAgain, askAgainAfter = 20, 100 * time.Millisecond
)

func (a *cli) reloadCommand() *cobra.Command {
	return a.asks(verb{
		use: "reload [PID]", short: "reload the configuration, or change to a new version",
		long: `Ask a daemon on this machine to read its configuration again and replace its
worker processes one by one. If its program has been replaced on disk, it
changes to that one instead, without a gap; see "upgrade". Without PID or
--socket it asks the only daemon that it finds here, unless the configuration
names another Redis than that daemon's.

The command waits for the result. Exit code 0: the new configuration or version
is in force, that is, its first worker process is ready; the others follow one
by one, and running jobs finish. Otherwise nothing has changed, and the reason
is printed. HUP does the same without an answer.`,
		example: "reload          the only daemon of this machine\n" +
			"reload 4711     one of several (or --store)",
	}, control.Reload)
}

func (a *cli) upgradeCommand() *cobra.Command {
	c := a.asks(verb{
		use: "upgrade [PID]", short: "change a daemon to the program now on disk, without a gap",
		long: `Ask a daemon on this machine to start its program again, with the same
arguments and environment. The new master reads the configuration and starts a
worker process. Once that is ready it takes over slot by slot; the old master
finishes its jobs and leaves. If the new version does not come up, the old one
continues. Without PID or --socket it asks the only daemon that it finds here,
unless the configuration names another Redis than that daemon's.

The process id changes: a supervisor other than systemd takes this for the end
of the daemon. The command waits for the result; exit code 0: the new version
is in charge.`,
		example: "upgrade",
	}, control.Upgrade)
	protocol := c.Flags().Bool("protocol", false, "print what this program can take over, and ask no daemon")
	_ = c.Flags().MarkHidden("protocol")
	ask := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if *protocol {
			return a.printText(app.TakesOver() + "\n")
		}
		return ask(c, args)
	}
	return c
}

// asks returns the command of a verb that sends a request to a daemon.
func (a *cli) asks(v verb, request string) *cobra.Command {
	var patience time.Duration
	v.flags = func(f *flagSet) {
		f.DurationVar(&patience, "timeout", verdictPatience, "longest wait for the result (0: no limit); the default grows with slow runner boots")
	}
	return a.toDaemon(v, true, func(c *cobra.Command, path string) error {
		if !c.Flags().Changed("timeout") {
			patience = patienceOf(path)
		}
		reply, err := orderDaemon(path, request, patience)
		if errors.Is(err, control.ErrNoAnswer) {
			return noVerdict(path, patience, err)
		}
		if err != nil {
			return err
		}
		return a.verdict(reply, reply.Text)
	})
}

// patienceOf returns how long to wait for the verdict of a socket's daemon.
func patienceOf(path string) time.Duration {
	now, _ := askInCharge(path, control.Status, verdictMargin) // without an answer the default holds
	return max(verdictPatience, now.Takes+verdictMargin)
}

// toDaemon returns the command of a verb for a daemon of this machine: the one with a process id or
// at --socket, else the only one. do gets the path of its control socket. See controlOf for orders.
func (a *cli) toDaemon(v verb, order bool, do func(c *cobra.Command, path string) error) *cobra.Command {
	var socket string
	own := v.flags
	v.kind = noRedis
	v.flags = func(f *flagSet) {
		own(f)
		f.StringVar(&socket, "socket", "", "`path` of its control socket (control_socket)")
	}
	v.args = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return exactly(1, "one process id")(c, args)
		case len(args) == 1 && socket != "":
			return usage("", "name a process or --socket, not both")
		}
		return nil
	}
	v.do = func(c *cobra.Command, args []string) (err error) {
		path := socket
		if path == "" {
			if path, err = a.controlOf(c, args, order); err != nil {
				return err
			}
		}
		return do(c, path)
	}
	c := a.command(v)
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

// controlOf returns the requested daemon's control socket: the configured one, else one that is
// found. For an order, a daemon without a given process id is refused if the configuration names
// another Redis: the daemon may belong to another application.
func (a *cli) controlOf(c *cobra.Command, args []string, order bool) (string, error) {
	places, pid := app.ControlPlaces(), 0
	// A broken configuration is for the daemon to refuse, if it can be found anyway.
	r, broken := a.loadAs(c, config.Options{})
	if broken == nil && r.ControlSocket != app.NoControl {
		places.Configured = r.ControlSocket
	}
	if len(args) == 1 {
		var err error
		if pid, err = strconv.Atoi(args[0]); err != nil || pid <= 0 {
			return "", usage("", "%q is not a process id", args[0])
		}
	}
	found := places.Find(pid)
	store, of := config.StoreNamed(c.Flags()), ""
	if store != "" {
		of = " of store " + store
	}
	matching := slices.DeleteFunc(found, func(f control.Found) bool {
		return pid != 0 && f.PID != pid || store != "" && f.Err == nil && f.Store != store
	})
	switch {
	case len(matching) == 1 && matching[0].Err != nil:
		return "", matching[0].Err
	case len(matching) == 1:
		f := matching[0]
		named := broken == nil && r.RedisURL != "" && (r.Sources["redis_url"].Kind != config.FromDefault || r.Sources["namespace"].Kind != config.FromDefault)
		if order && named && pid == 0 && f.Path != places.Configured && f.Redis != "" && f.Redis != app.RedisOf(r.Config) {
			return "", usage(fmt.Sprintf("To mean it anyway: %s %d.", c.CommandPath(), f.PID),
				"the daemon that runs here, %d, works %s; the configuration names %s", f.PID, f.Redis, app.RedisOf(r.Config))
		}
		return f.Path, nil
	case len(matching) == 0 && broken != nil:
		return "", broken
	case len(matching) == 0:
		const where, hint = "a control socket that can be reached from here", "Ask as root or as its user, or use --socket."
		p := failure("not_running", hint, "no daemon%s has %s", of, where)
		if p.exit = exitUnhealthy; pid != 0 {
			p = failure("not_found", hint, "no daemon%s with process id %d has %s", of, pid, where)
			p.exit = exitNotFound
		}
		return "", p
	}
	p := usage("", "several daemons run here; name the process id of one, or with --%s its store:", config.StoreFlag)
	for _, f := range matching {
		if f.Err != nil {
			p.lines = append(p.lines, "  "+f.Err.Error())
		} else {
			p.lines = append(p.lines, strings.TrimRight(fmt.Sprintf("  %d  version %s  %s  %s  %s", f.PID, f.Version, f.Path, f.Status, f.Store), " "))
		}
	}
	return "", p
}

// orderDaemon sends a request to a daemon. That there is none and that it refuses are problems.
func orderDaemon(path, request string, patience time.Duration) (control.Reply, error) {
	reply, err := askInCharge(path, request, patience)
	if err == nil && !reply.OK {
		err = &problem{exit: exitFailed, code: "refused", lines: strings.Split(request+" refused: "+reply.Text, "\n")}
	}
	return reply, notRunning(err)
}

// notRunning is the problem of a daemon that does not run; other errors stay unchanged.
func notRunning(err error) error {
	if errors.Is(err, control.ErrNoDaemon) {
		return &problem{exit: exitUnhealthy, code: "not_running", lines: []string{err.Error()}, cause: err}
	}
	return err
}

func (out *output) verdict(reply control.Reply, text string) error {
	return out.result(verdictView{OK: true, PID: reply.PID, Version: reply.Version, Text: text}, strconv.Itoa(reply.PID)+"\n", text+"\n")
}

// askInCharge asks a socket's daemon, or the one that has taken over from it.
func askInCharge(path, do string, patience time.Duration) (control.Reply, error) {
	reply, err := control.Ask(path, do, patience)
	for try := 0; err == nil && reply.Elsewhere && try < askAgain; try++ {
		<-time.After(askAgainAfter)
		if there := filepath.Join(filepath.Dir(path), strconv.Itoa(reply.PID)+".sock"); isThere(there) {
			path = there
		}
		reply, err = control.Ask(path, do, patience)
	}
	return reply, err
}

// noVerdict reports the daemon's state, which may explain the missing answer.
func noVerdict(path string, patience time.Duration, cause error) error {
	p := &problem{
		exit: exitFailed, code: "timeout", lines: []string{fmt.Sprintf("no verdict after %s", patience)},
		hint: "It is still carried out when what it waits for is over; see the daemon's log.", cause: cause,
	}
	if now, err := control.Ask(path, control.Status, statusPatience); err == nil {
		p.lines = append(p.lines, fmt.Sprintf("process %d says: %s", now.PID, now.Text))
	}
	return p
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

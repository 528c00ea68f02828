package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) hostsCommand() *cobra.Command {
	return a.lists(verb{
		use: "hosts [HOST…]", kind: shows, short: "list hosts of daemons, or declare one dead",
		long: `List the hosts and containers where worker processes of resqued are registered.
STATE is

  alive   a process or master there gave a sign of life
  silent  no sign of life for longer than a working host ever needs: dead,
          stopped or cut off from Redis. Its jobs run again when its leases end
          (ENDS), or at once if "hosts dead" or host_dead_hook declares it dead
  ended   its leases have ended: any daemon recovers its jobs

SIGN is the age of the last sign of life. BOOT identifies the boot of the host;
a name is listed twice if it has booted again or containers share it.`,
		example: "hosts\nhosts dead web-1 --yes",
		args:    cobra.ArbitraryArgs, names: hostNames, run: listHosts,
	}, "list hosts (default)", a.hostsDeadCommand())
}

// findHosts returns the hosts with some names.
func findHosts(ctx context.Context, s *session, names []string) ([]*view.Host, error) {
	hosts, err := view.Hosts(ctx, s.Store)
	if err == nil && len(names) > 0 {
		hosts, err = view.FindHosts(hosts, names)
	}
	return hosts, s.lookup(err, "hosts")
}

func hostNames(ctx context.Context, s *store.Store) ([]string, error) {
	hosts, err := view.Hosts(ctx, s)
	var names []string
	for _, h := range hosts {
		names = append(names, h.Host, h.Place)
	}
	return names, err
}

func listHosts(ctx context.Context, s *session, names []string) error {
	hosts, err := findHosts(ctx, s, names)
	if err != nil {
		return err
	}
	l := newListing("HOST, =BOOT, STATE, >PROCS, >JOBS, >SIGN, >ENDS, =ADDRESS").paints("STATE", hostColours)
	for _, h := range hosts {
		ends := "—"
		if h.State != view.HostAlive {
			ends = view.Age(max(0, time.Duration(h.EndsInS)*time.Second))
		}
		l.add(h.Place, h, h.Host, h.Boot, h.State, strconv.Itoa(h.Processes), strconv.Itoa(h.Jobs), view.Age(h.Silent), ends, h.Address)
	}
	return s.printOr(l, "no hosts")
}

var hostColours = colours{view.HostAlive: green, view.HostSilent: yellow, other: red}

type deadView struct {
	*view.Host
	// Outcome is fenced, alive or gone; empty with --dry-run.
	Outcome string `json:"outcome,omitempty"`
	// Fenced is how many of its processes have lost their lease.
	Fenced int  `json:"fenced"`
	DryRun bool `json:"dry_run,omitempty"`
}

func (a *cli) hostsDeadCommand() *cobra.Command {
	var o consent
	return a.command(verb{
		use: "dead HOST…", kind: edits, short: "declare hosts dead, so that their jobs run again at once",
		long: `Declare hosts dead: powered off, or never to be heard of again. The leases of
their processes end, and within seconds any daemon recovers their jobs.

HOST is a name, or a name and a boot, web-1:0123abcd, as "hosts" shows them.
Only silent hosts qualify: a host that gives a sign of life, even at the last
moment, is refused.

If a host still lives, cut off or stopped, its processes end at their next
contact with Redis, which changes nothing there. Until then its jobs may run
twice at the same time, so make sure that it is off. On a terminal it asks
first; elsewhere it needs --yes.

Exit codes: 1 a host was refused, 4 no such host.`,
		example: "hosts dead web-1 --dry-run\nhosts dead web-1 --yes",
		args:    a.some("which host?", "hosts"), names: hostNames,
		flags: func(f *flagSet) {
			o.add(f)
			f.Lookup("dry-run").Usage = "only show these hosts and how many jobs they run"
		},
		run: func(ctx context.Context, s *session, args []string) error { return sayDead(ctx, s, args, o) },
	})
}

func sayDead(ctx context.Context, s *session, names []string, o consent) error {
	all, err := findHosts(ctx, s, names)
	if err != nil {
		return err
	}
	refused := &problem{exit: exitFailed, code: "alive"}
	var views []*deadView
	for _, h := range all {
		switch {
		case h.State != view.HostAlive:
			views = append(views, &deadView{Host: h, DryRun: o.dryRun})
		case len(all) > 1 && !slices.Contains(names, h.Place):
			s.note("%s lives: it is another boot, or another container, of that name", wire.Printable(h.Place, 300))
		default:
			refused.lines = append(refused.lines, fmt.Sprintf("%s gave a sign of life %s ago: it counts as silent after %s",
				wire.Printable(h.Place, 300), view.Age(h.Silent), h.Patience))
			refused.hint = "Its processes and its masters are looked at: stop them, or see that it is off, and wait."
		}
	}
	if len(views) == 0 && len(refused.lines) == 0 { // all hosts of a given name are alive
		refused.lines = append(refused.lines, "all hosts of that name live")
	}
	if err := s.a.confirm(o.yes || o.dryRun || len(views) == 0, deadQuestion(views)); err != nil {
		return err
	}
	for i, v := range views {
		if o.dryRun {
			break
		}
		o, err := s.SettleHost(ctx, store.HostVerdict{Place: v.Place, Dead: true, Last: v.Last, Pause: time.Second})
		if err != nil {
			return errors.Join(err, s.tellDead(views[:i]))
		}
		v.Fenced = len(o.Procs)
		switch o.Outcome {
		case store.HostFenced:
			v.Outcome = "fenced"
			s.did(store.EventHostDead, "host "+v.Host.Host, "with "+plural(v.Jobs, "job"), max(1, v.Fenced))
			if o.Left > 0 {
				refused.lines = append(refused.lines, fmt.Sprintf("%s: %d of its processes are of another version, whose format this one does not read, and keep their leases",
					wire.Printable(v.Place, 300), o.Left))
			}
		case store.HostAlive:
			v.Outcome = "alive"
			refused.lines = append(refused.lines, wire.Printable(v.Place, 300)+" has given a sign of life: nothing was done")
		default:
			v.Outcome = "gone" // already recovered
		}
	}
	if err := s.tellDead(views); err != nil {
		return err
	}
	if len(refused.lines) > 0 {
		return refused
	}
	return nil
}

func deadQuestion(views []*deadView) string {
	parts := make([]string, len(views))
	for i, v := range views {
		parts[i] = fmt.Sprintf("%s with %s", wire.Printable(v.Place, 100), plural(v.Jobs, "job"))
	}
	return "take for dead " + strings.Join(parts, ", ")
}

func (out *output) tellDead(views []*deadView) error {
	l := &listing{}
	for _, v := range views {
		l.add(v.Place, v)
		name := wire.Printable(v.Place, 300)
		switch {
		case v.DryRun:
			fmt.Fprintf(&l.lines, "would take %s for dead, silent for %s, with %s\n", name, view.Age(v.Silent), plural(v.Jobs, "job"))
		case v.Outcome == "fenced":
			fmt.Fprintf(&l.lines, "%s is dead: its %s run again\n", name, plural(v.Jobs, "job"))
		case v.Outcome == "gone":
			fmt.Fprintf(&l.lines, "%s has nothing in hand any more\n", name)
		}
	}
	return out.tell(l)
}

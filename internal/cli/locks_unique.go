package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) locksUniqueCommand() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use: "unique [QUEUE…]", Annotations: shows, Short: "list unique queues and whether their keys match",
		Long: `List the queues that unique_queues names and those that others keep unique,
with the lengths of the queue, its set of payloads and its list of times. If
these differ, the queue is out-of-step and a Ruby worker takes no job of it. A
daemon repairs it within seconds if it is not too long, "locks repair" at once.`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
				return a.listUnique(ctx, c, s, cfg, args, check)
			})
		},
	}
	c.Flags().BoolVar(&check, "check", false, "exit code 3 if one is out of step")
	return c
}

func (a *cli) listUnique(ctx context.Context, c *cobra.Command, s *store.Store, cfg config.Config, names []string, check bool) error {
	queues, err := view.UniqueQueues(ctx, s, cfg.Unique, names...)
	if err != nil {
		return a.noQueue(c, err)
	}
	l := &listing{columns: []column{
		{title: "QUEUE"},
		{title: "STATE", colour: uniqueColour},
		{title: "SIZE", right: true},
		{title: "SET", right: true},
		{title: "START_AT", right: true},
		{title: "CONFIGURED", wide: true},
		{title: "PROBLEM", wide: true},
	}}
	bad := 0
	for _, v := range queues {
		if v.State != view.UniqueOK {
			bad++
		}
		l.add(v.Queue, v, v.Queue, v.State, optional(v.Size), optional(v.Set), optional(v.StartAt), strconv.FormatBool(v.Configured), v.Problem)
	}
	if len(l.rows) == 0 && a.forPeople() {
		a.note("no unique queues")
	}
	if err := a.print(l); err != nil || !check || bad == 0 {
		return err
	}
	a.note("%s out of step; see: %s locks repair --help", plural(bad, "queue"), a.again())
	return exitCode(exitUnhealthy)
}

type repairView struct {
	Queue string `json:"queue"`
	Size  int64  `json:"size"`
	// SetAdded and SetRemoved count payloads, StartAtAdded and StartAtRemoved times that were
	// missing or superfluous, Duplicates jobs that were dropped because an equal one waits.
	SetAdded       int64 `json:"set_added"`
	SetRemoved     int64 `json:"set_removed"`
	StartAtAdded   int64 `json:"start_at_added"`
	StartAtRemoved int64 `json:"start_at_removed"`
	Duplicates     int64 `json:"duplicates_dropped"`
}

func (a *cli) locksRepairCommand() *cobra.Command {
	var forget bool
	c := &cobra.Command{
		Use: "repair QUEUE…", Annotations: edits, Short: "make the keys of unique queues match again",
		Long: `Rebuild the set of payloads and the list of times of unique queues from the
queue, and drop all but the first of equal jobs. This blocks Redis for 0.1 to
0.2 s for 100,000 short jobs, 1 to 2 s if they have 2 KB.

The queue must be unique: named by unique_queues, or kept unique by others. If
it no longer is, --forget removes the set and the times, and drops no job.

Exit codes: 1 a queue was not repaired, 4 no such queue.`,
		Example: "  " + a.name + " locks unique\n  " + a.name + " locks repair orders",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+a.again()+" locks unique", "which queue?")
			}
			return nil
		},
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
				if forget {
					return a.forgetUnique(ctx, c, s, cfg, args)
				}
				return a.repairUnique(ctx, c, s, cfg, args)
			})
		},
	}
	c.Flags().BoolVar(&forget, "forget", false, "remove the keys of queues no longer unique")
	return c
}

// forgetUnique removes the sets and times of queues, not their jobs.
func (a *cli) forgetUnique(ctx context.Context, c *cobra.Command, s *store.Store, cfg config.Config, names []string) error {
	list, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	if _, err := view.FindQueues(list, names); err != nil {
		return a.noQueue(c, err)
	}
	for _, name := range names {
		if cfg.Unique(name) {
			return usage("Without --forget it is repaired.", "queue %q is unique: unique_queues names it", wire.Printable(name, 200))
		}
	}
	for _, name := range names {
		if err := s.ForgetUnique(ctx, name); err != nil {
			return err
		}
		a.note("%s: its set and its times are removed", wire.Printable(name, 200))
	}
	return nil
}

func (a *cli) repairUnique(ctx context.Context, c *cobra.Command, s *store.Store, cfg config.Config, names []string) error {
	list, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	if _, err := view.FindQueues(list, names); err != nil {
		return a.noQueue(c, err)
	}
	infos, err := s.UniqueList(ctx, names)
	if err != nil {
		return err
	}
	for _, u := range infos {
		// Equal jobs are allowed there, and the repair would drop them.
		if !cfg.Unique(u.Queue) && !u.Kept {
			return usage("Name it in unique_queues first.", "queue %q is not unique", wire.Printable(u.Queue, 200))
		}
	}
	l := &listing{columns: []column{
		{title: "QUEUE"},
		{title: "SIZE", right: true},
		{title: "SET", right: true},
		{title: "START_AT", right: true},
		{title: "DUPLICATES", right: true},
	}}
	failed := &problem{exit: exitFailed, code: "failed"}
	for _, name := range names {
		r, err := s.RepairUnique(ctx, name)
		switch {
		case rdb.Unreachable(err):
			return errors.Join(err, a.print(l))
		case err != nil:
			failed.lines = append(failed.lines, err.Error())
			continue
		}
		v := repairView{
			Queue: name, Size: r.Jobs, SetAdded: r.MembersAdded, SetRemoved: r.MembersRemoved,
			StartAtAdded: r.TimesAdded, StartAtRemoved: r.TimesRemoved, Duplicates: r.Duplicates,
		}
		dropped := ""
		if r.Duplicates > 0 {
			dropped = strconv.FormatInt(r.Duplicates, 10)
		}
		l.add(name, v, name, strconv.FormatInt(r.Jobs, 10), change(r.MembersAdded, r.MembersRemoved), change(r.TimesAdded, r.TimesRemoved), dropped)
		if r.Changed() {
			a.did(store.EventRepaired, "queue "+name, "its keys did not match", 1)
		} else {
			a.note("%s: nothing was out of step", wire.Printable(name, 200))
		}
	}
	if err := a.print(l); err != nil || len(failed.lines) == 0 {
		return err
	}
	return failed
}

// change formats counts as "+3 -1", "" for none.
func change(added, removed int64) string {
	var parts []string
	if added > 0 {
		parts = append(parts, fmt.Sprintf("+%d", added))
	}
	if removed > 0 {
		parts = append(parts, fmt.Sprintf("-%d", removed))
	}
	return strings.Join(parts, " ")
}

// withConfig opens the store for a verb that also needs the configuration.
func (a *cli) withConfig(c *cobra.Command, do func(ctx context.Context, s *store.Store, cfg config.Config) error) error {
	r, err := a.load(c)
	if err != nil {
		return err
	}
	s, err := app.OpenStore(r.Config, "resqued-cli")
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := a.checkFormat(c, s); err != nil {
		return err
	}
	return do(c.Context(), s, r.Config)
}

func uniqueColour(state string) string {
	if state == view.UniqueOK {
		return green
	}
	return red
}

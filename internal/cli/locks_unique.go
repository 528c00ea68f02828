package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) locksUniqueCommand() *cobra.Command {
	var check bool
	return a.command(verb{
		use: "unique [QUEUE…]", kind: shows, short: "list unique queues and whether their keys match",
		long: `List the queues that unique_queues names and those that others keep unique,
with the lengths of the queue, its set of payloads and its list of times. If
these differ, the queue is out-of-step and a Ruby worker takes no job of it. A
daemon repairs it within seconds if it is not too long, "locks repair" at once.`,
		args: cobra.ArbitraryArgs, names: queueNames,
		flags: func(f *flagSet) { f.BoolVar(&check, "check", false, "exit code 3 if one is out of step") },
		run:   func(ctx context.Context, s *session, args []string) error { return listUnique(ctx, s, args, check) },
	})
}

func listUnique(ctx context.Context, s *session, names []string, check bool) error {
	queues, err := view.UniqueQueues(ctx, s, s.loaded.Unique, names...)
	if err != nil {
		return s.lookup(err, "queues")
	}
	l := newListing("QUEUE, STATE, >SIZE, >SET, >START_AT, +CONFIGURED, +PROBLEM").paints("STATE", uniqueColours)
	bad := 0
	for _, v := range queues {
		if v.State != view.UniqueOK {
			bad++
		}
		l.add(v.Queue, v, v.Queue, v.State, optional(v.Size), optional(v.Set), optional(v.StartAt), strconv.FormatBool(v.Configured), v.Problem)
	}
	if err := s.printOr(l, "no unique queues"); err != nil || !check || bad == 0 {
		return err
	}
	s.note("%s out of step; see: %s locks repair --help", plural(bad, "queue"), s.again())
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
	return a.command(verb{
		use: "repair QUEUE…", kind: edits, short: "make the keys of unique queues match again",
		long: `Rebuild the set of payloads and the list of times of unique queues from the
queue, and drop all but the first of equal jobs. This blocks Redis for 0.1 to
0.2 s for 100,000 short jobs, 1 to 2 s if they have 2 KB.

The queue must be unique: named by unique_queues, or kept unique by others. If
it no longer is, --forget removes the set and the times, and drops no job.

Exit codes: 1 a queue was not repaired, 4 no such queue.`,
		example: "locks unique\nlocks repair orders",
		args:    a.some("which queue?", "locks unique"), names: queueNames,
		flags: func(f *flagSet) { f.BoolVar(&forget, "forget", false, "remove the keys of queues no longer unique") },
		run: func(ctx context.Context, s *session, names []string) error {
			list, err := s.QueueList(ctx)
			if err != nil {
				return err
			}
			if _, err := view.FindQueues(list, names); err != nil {
				return s.lookup(err, "queues")
			}
			if forget {
				return forgetUnique(ctx, s, names)
			}
			return repairUnique(ctx, s, names)
		},
	})
}

// forgetUnique removes the sets and times of queues, not their jobs.
func forgetUnique(ctx context.Context, s *session, names []string) error {
	for _, name := range names {
		if s.loaded.Unique(name) {
			return usage("Without --forget it is repaired.", "queue %q is unique: unique_queues names it", wire.Printable(name, 200))
		}
	}
	for _, name := range names {
		if err := s.ForgetUnique(ctx, name); err != nil {
			return err
		}
		s.note("%s: its set and its times are removed", wire.Printable(name, 200))
	}
	return nil
}

func repairUnique(ctx context.Context, s *session, names []string) error {
	infos, err := s.UniqueList(ctx, names)
	if err != nil {
		return err
	}
	for _, u := range infos {
		// Equal jobs are allowed there, and the repair would drop them.
		if !s.loaded.Unique(u.Queue) && !u.Kept {
			return usage("Name it in unique_queues first.", "queue %q is not unique", wire.Printable(u.Queue, 200))
		}
	}
	l := newListing("QUEUE, >SIZE, >SET, >START_AT, >DUPLICATES")
	failed := &problem{exit: exitFailed, code: "failed"}
	for _, name := range names {
		r, err := s.RepairUnique(ctx, name)
		switch {
		case rdb.Unreachable(err):
			return errors.Join(err, s.print(l))
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
			s.did(store.EventRepaired, "queue "+name, "its keys did not match", 1)
		} else {
			s.note("%s: nothing was out of step", wire.Printable(name, 200))
		}
	}
	if err := s.print(l); err != nil || len(failed.lines) == 0 {
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

var uniqueColours = colours{view.UniqueOK: green, other: red}

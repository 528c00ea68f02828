package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// allQueues means all queues in results.
const allQueues = "*"

type pausedView struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
	// Changed reports whether the state has changed.
	Changed bool  `json:"changed"`
	Jobs    int64 `json:"jobs"`
}

// pauseQueuesCommand makes "queues pause" and "queues resume".
func (a *cli) pauseQueuesCommand(pause bool) *cobra.Command {
	verb, short := "resume", "work paused queues again"
	if pause {
		verb, short = "pause", "let the jobs of queues wait"
	}
	var all, unknown bool
	c := &cobra.Command{
		Use: verb + " QUEUE…", Annotations: adds, Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usage("", "name queues or use --all, not both")
			case !all && len(args) == 0:
				return usage("Name queues, or use --all. See: "+a.again()+" queues", "which queue?")
			}
			return nil
		},
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				if all {
					return a.pauseAll(ctx, s, pause)
				}
				return a.pauseQueues(ctx, c, s, args, pause, unknown)
			})
		},
	}
	f := c.Flags()
	if pause {
		c.Long = `Pause queues on all machines until "queues resume": no daemon takes their jobs.
Running jobs continue, and new ones can be enqueued. Ruby workers obey if they
have resque-pause. Signal USR2 pauses one daemon with all its queues.`
		c.Example = "  " + a.name + " queues pause mail\n  " + a.name + " queues pause --all"
		f.BoolVar(&all, "all", false, "all queues, also later ones")
		f.BoolVar(&unknown, "unknown", false, "allow queues that do not exist yet")
	} else {
		c.Long = `Resume paused queues; daemons notice within their interval. --all ends a pause
of all queues ("queues pause --all" and Resque's pause-all-workers); queues
paused by name stay paused.`
		c.Example = "  " + a.name + " queues resume mail\n  " + a.name + " queues resume --all"
		f.BoolVar(&all, "all", false, "end a pause of all queues")
	}
	return c
}

func (a *cli) pauseAll(ctx context.Context, s *store.Store, pause bool) error {
	set := s.ResumeAll
	if pause {
		set = s.PauseAll
	}
	changed, err := set(ctx)
	if err != nil {
		return err
	}
	list, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	v := &pausedView{Queue: allQueues, Paused: pause, Changed: changed}
	for _, q := range list {
		v.Jobs += q.Size
	}
	a.didPause(v)
	return a.tellPaused([]*pausedView{v})
}

func (a *cli) didPause(v *pausedView) {
	kind := store.EventResumed
	if v.Paused {
		kind = store.EventPaused
	}
	if v.Changed {
		a.acts = append(a.acts, act(kind, "queue "+v.Queue, "with "+plural(int(v.Jobs), "job"), int(v.Jobs)))
	}
}

func (a *cli) pauseQueues(ctx context.Context, c *cobra.Command, s *store.Store, names []string, pause, unknown bool) error {
	list, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	slices.Sort(names)
	names = slices.Compact(names)
	paused, all, err := s.Paused(ctx, names...)
	if err != nil {
		return err
	}
	// A removed queue may still be paused.
	for _, name := range names {
		known := slices.ContainsFunc(list, func(q store.QueueInfo) bool { return q.Name == name })
		if !known && (unknown || paused[name]) {
			list = append(list, store.QueueInfo{Name: name})
		}
	}
	if list, err = view.FindQueues(list, names); err != nil {
		return a.noQueue(c, err)
	}
	set := s.Resume
	if pause {
		set = s.Pause
	}
	var views []*pausedView
	for _, q := range list {
		v := &pausedView{Queue: q.Name, Paused: pause, Jobs: q.Size}
		if v.Changed, err = set(ctx, q.Name); err != nil {
			_ = a.tellPaused(views)
			return err
		}
		a.didPause(v)
		views = append(views, v)
	}
	if all && !pause {
		a.warn("all queues are paused; see: %s queues resume --all", a.again())
	}
	return a.tellPaused(views)
}

func (a *cli) tellPaused(views []*pausedView) error {
	l := &listing{}
	var text strings.Builder
	for _, v := range views {
		l.names = append(l.names, v.Queue)
		l.items = append(l.items, v)
		name := wire.Printable(v.Queue, 0)
		if v.Queue == allQueues {
			name = "all queues"
		}
		switch waiting := plural(int(v.Jobs), "job"); {
		case v.Changed && v.Paused:
			fmt.Fprintf(&text, "paused %s with %s\n", name, waiting)
		case v.Changed:
			fmt.Fprintf(&text, "resumed %s with %s\n", name, waiting)
		case v.Paused:
			fmt.Fprintf(&text, "%s: paused already, with %s\n", name, waiting)
		default:
			fmt.Fprintf(&text, "%s: not paused\n", name)
		}
	}
	switch {
	case !a.forPeople():
		return a.print(l)
	case a.flags.quiet:
		return nil
	}
	return a.printText(text.String())
}

package cli

import (
	"context"
	"fmt"
	"slices"

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

func (a *cli) pauseQueuesCommand() *cobra.Command {
	var all, unknown bool
	return a.command(verb{
		use: "pause QUEUE…", kind: adds, short: "let the jobs of queues wait",
		long: `Pause queues on all machines until "queues resume": no daemon takes their jobs.
Running jobs continue, and new ones can be enqueued. Ruby workers obey if they
have resque-pause. Signal USR2 pauses one daemon with all its queues.`,
		example: "queues pause mail\nqueues pause --all",
		args:    a.someOrAll(&all, "which queue?", "queues", "Name queues", "queues"), names: queueNames,
		flags: func(f *flagSet) {
			f.BoolVar(&all, "all", false, "all queues, also later ones")
			f.BoolVar(&unknown, "unknown", false, "allow queues that do not exist yet")
		},
		run: func(ctx context.Context, s *session, args []string) error {
			if all {
				return pauseAll(ctx, s, true, s.PauseAll)
			}
			return pauseQueues(ctx, s, args, true, unknown, s.Pause)
		},
	})
}

func (a *cli) resumeQueuesCommand() *cobra.Command {
	var all bool
	return a.command(verb{
		use: "resume QUEUE…", kind: adds, short: "work paused queues again",
		long: `Resume paused queues; daemons notice within their interval. --all ends a pause
of all queues ("queues pause --all" and Resque's pause-all-workers); queues
paused by name stay paused.`,
		example: "queues resume mail\nqueues resume --all",
		args:    a.someOrAll(&all, "which queue?", "queues", "Name queues", "queues"), names: queueNames,
		flags: func(f *flagSet) { f.BoolVar(&all, "all", false, "end a pause of all queues") },
		run: func(ctx context.Context, s *session, args []string) error {
			if all {
				return pauseAll(ctx, s, false, s.ResumeAll)
			}
			return pauseQueues(ctx, s, args, false, false, s.Resume)
		},
	})
}

func pauseAll(ctx context.Context, s *session, pause bool, set func(context.Context) (changed bool, err error)) error {
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
	l := &listing{}
	v.tell(s, l, "all queues")
	return s.tell(l)
}

func pauseQueues(ctx context.Context, s *session, names []string, pause, unknown bool, set func(ctx context.Context, queue string) (changed bool, err error)) error {
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
		return s.lookup(err, "queues")
	}
	l := &listing{}
	for _, q := range list {
		v := &pausedView{Queue: q.Name, Paused: pause, Jobs: q.Size}
		if v.Changed, err = set(ctx, q.Name); err != nil {
			_ = s.tell(l)
			return err
		}
		v.tell(s, l, wire.Printable(q.Name, 0))
	}
	if all && !pause {
		s.warn("all queues are paused; see: %s queues resume --all", s.again())
	}
	return s.tell(l)
}

// tell adds a result to a list, and to the events if something has changed.
func (v *pausedView) tell(s *session, l *listing, name string) {
	waiting := plural(int(v.Jobs), "job")
	done, already, event := "resumed", name+": not paused", store.EventResumed
	if v.Paused {
		done, already, event = "paused", fmt.Sprintf("%s: paused already, with %s", name, waiting), store.EventPaused
	}
	if !v.Changed {
		l.did(v.Queue, v, "%s", already)
		return
	}
	l.did(v.Queue, v, "%s %s with %s", done, name, waiting)
	s.a.act(event, "queue "+v.Queue, "with "+waiting, int(v.Jobs))
}

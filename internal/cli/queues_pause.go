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

	*store.PauseOptions `json:"-"` // of a pause that begins
}

func (a *cli) pauseQueuesCommand() *cobra.Command {
	var all, unknown bool
	var o store.PauseOptions
	return a.command(verb{
		use: "pause QUEUE…", kind: adds, short: "let the jobs of queues wait",
		long: `Pause queues on all machines until "queues resume", or for a time: no daemon
takes their jobs. Running jobs continue, and new ones can be enqueued. "queues"
and the dashboard show who paused them, until when and why; for a queue that is
paused already, --for and --reason replace that. Ruby workers obey if they have
resque-pause. Signal USR2 pauses one daemon with all its queues.`,
		example: "queues pause mail\nqueues pause --all --for 30m --reason 'migration 4711'",
		args:    a.someOrAll(&all, "which queue?", "queues", "Name queues", "queues"), names: queueNames,
		flags: func(f *flagSet) {
			f.BoolVar(&all, "all", false, "all queues, also later ones")
			f.BoolVar(&unknown, "unknown", false, "allow queues that do not exist yet")
			f.span(&o.For, "for", 0, "end the pause after this time (0: with \"queues resume\")")
			f.StringVar(&o.Reason, "reason", "", "why, a `text` for others")
		},
		run: func(ctx context.Context, s *session, args []string) error {
			o.By = whoami()
			if err := o.Check(); err != nil {
				return usage("", "%s", err)
			}
			if all {
				return pauseAll(ctx, s, &o, func(ctx context.Context) (bool, error) { return s.PauseAll(ctx, o) })
			}
			return pauseQueues(ctx, s, args, &o, unknown, func(ctx context.Context, queue string) (bool, error) { return s.Pause(ctx, queue, o) })
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
				return pauseAll(ctx, s, nil, s.ResumeAll)
			}
			return pauseQueues(ctx, s, args, nil, false, s.Resume)
		},
	})
}

// pauseAll begins a pause of all queues, or ends it without options.
func pauseAll(ctx context.Context, s *session, o *store.PauseOptions, set func(context.Context) (changed bool, err error)) error {
	changed, err := set(ctx)
	if err != nil {
		return err
	}
	list, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	v := &pausedView{Queue: allQueues, Paused: o != nil, Changed: changed, PauseOptions: o}
	for _, q := range list {
		v.Jobs += q.Size
	}
	l := &listing{}
	v.tell(s, l, "all queues")
	return s.tell(l)
}

// pauseQueues is pauseAll for some queues.
func pauseQueues(ctx context.Context, s *session, names []string, o *store.PauseOptions, unknown bool, set func(ctx context.Context, queue string) (changed bool, err error)) error {
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
		v := &pausedView{Queue: q.Name, Paused: o != nil, Jobs: q.Size, PauseOptions: o}
		if v.Changed, err = set(ctx, q.Name); err != nil {
			_ = s.tell(l)
			return err
		}
		v.tell(s, l, wire.Printable(q.Name, 0))
	}
	if all && o == nil {
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
	how := ""
	if v.PauseOptions != nil {
		how = v.PauseOptions.String()
	}
	l.did(v.Queue, v, "%s %s with %s%s", done, name, waiting, how)
	s.a.act(event, "queue "+v.Queue, "with "+waiting+how, int(v.Jobs))
}

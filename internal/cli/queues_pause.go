package cli

import (
	"context"
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

	before, now *store.Pause // of a pause that was asked for
}

func (a *cli) pauseQueuesCommand() *cobra.Command {
	var all, unknown bool
	var o store.PauseOptions
	return a.command(verb{
		use: "pause QUEUE…", kind: adds, short: "let the jobs of queues wait",
		long: `Pause queues on all machines until "queues resume", or for a time: no daemon
takes their jobs. Running jobs continue, and new ones can be enqueued. "queues"
and the dashboard show who paused them, until when and why. Another pause of a
paused queue never shortens it: resume it first. Ruby workers obey if they have
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
				return pauseAll(ctx, s, func(ctx context.Context, v *pausedView) (err error) {
					v.Paused = true
					v.before, v.now, err = s.PauseAll(ctx, o)
					return err
				})
			}
			return pauseQueues(ctx, s, args, true, unknown, func(ctx context.Context, v *pausedView) (err error) {
				v.before, v.now, err = s.Pause(ctx, v.Queue, o)
				return err
			})
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
				return pauseAll(ctx, s, func(ctx context.Context, v *pausedView) (err error) {
					v.Changed, err = s.ResumeAll(ctx)
					return err
				})
			}
			return pauseQueues(ctx, s, args, false, false, func(ctx context.Context, v *pausedView) (err error) {
				v.Changed, err = s.Resume(ctx, v.Queue)
				return err
			})
		},
	})
}

func pauseAll(ctx context.Context, s *session, set func(context.Context, *pausedView) error) error {
	v := &pausedView{Queue: allQueues}
	if err := set(ctx, v); err != nil {
		return err
	}
	list, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	for _, q := range list {
		v.Jobs += q.Size
	}
	l := &listing{}
	v.tell(s, l, "all queues")
	return s.tell(l)
}

func pauseQueues(ctx context.Context, s *session, names []string, pause, unknown bool, set func(context.Context, *pausedView) error) error {
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
		if err := set(ctx, v); err != nil {
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
	subject := "queue " + v.Queue
	switch {
	case !v.Paused && !v.Changed:
		l.did(v.Queue, v, "%s: not paused", name)
		return
	case !v.Paused:
		l.did(v.Queue, v, "resumed %s with %s", name, waiting)
		s.a.act(store.EventResumed, subject, "with "+waiting, int(v.Jobs))
		return
	}
	if v.Changed = v.before != v.now; !v.Changed {
		l.did(v.Queue, v, "%s: paused already%s, with %s", name, pauseDetails(v.now), waiting)
		return
	}
	now := pauseDetails(&store.Pause{Key: v.now.Key, Until: v.now.Until, Reason: v.now.Reason})
	if s.a.act(store.EventPaused, subject, "with "+waiting+now, int(v.Jobs)); v.before == nil {
		l.did(v.Queue, v, "paused %s with %s%s", name, waiting, now)
		return
	}
	l.did(v.Queue, v, "%s: was paused%s; now%s, with %s", name, pauseDetails(v.before), now, waiting)
}

// pauseDetails says by whom a pause is, for how long and why.
func pauseDetails(p *store.Pause) string { return strings.TrimPrefix(view.PauseText(p), p.Subject()) }

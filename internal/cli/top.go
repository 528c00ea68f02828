package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/top"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// topEvery is how often top looks unless told otherwise, topLongest the longest interval.
const (
	topEvery   = time.Second
	topLongest = time.Hour
)

func (a *cli) topCommand() *cobra.Command {
	interval := topEvery
	c := &cobra.Command{
		Use: "top", Short: "follow queues, worker processes and running jobs in a terminal",
		Long: `Follow queues, worker processes and running jobs in a terminal.

  1 2 3, Tab     queues, worker processes, running jobs
  j k, arrows    move; PgUp, PgDn, Home, End
  s, r           sort by the next column; the other way round
  /              show rows with a text only
  space          freeze what is shown
  p              pause the selected queue on all machines, or resume it
  K              kill the selected job, as "jobs kill" does; it asks first
  ?              more about keys and columns
  q, ^C          quit

It looks each --interval, and so much less often that it takes no more than 2 % of
Redis's time where there is much to look at. While Redis is away it says so, and goes
on. Scripts use "workers --watch -o json", "queues --watch -o json" and "stats".`,
		Example: "  " + a.name + " top\n  " + a.name + " top --interval 5s",
		Args: func(c *cobra.Command, args []string) error {
			if interval < watchLeast || interval > topLongest {
				return usage("", "--interval %s: use %s to %s", interval, watchLeast, topLongest)
			}
			return exactly(0, "no arguments")(c, args)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			in, ok := a.stdin.(*os.File)
			if !ok || !isTerminal(in) || !isTerminal(a.stdout) || os.Getenv("TERM") == "dumb" || !a.forPeople() {
				return usage("Without one: "+a.again()+" workers --watch -o json", "%s needs a terminal", c.CommandPath())
			}
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				return a.top(ctx, s, in, interval)
			})
		},
	}
	durationVar(c.Flags(), &interval, "interval", topEvery, "how often to look")
	_ = c.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions)
	return c
}

func (a *cli) top(ctx context.Context, s *store.Store, in *os.File, interval time.Duration) error {
	out, _ := a.stdout.(*os.File)
	source := topSource{s, a.again()}
	first, err := source.Snap(ctx) // what is wrong from the beginning is said without a screen
	if err != nil {
		return err
	}
	return top.Run(ctx, top.Options{
		In: in, Out: out, Source: source, First: first,
		Describe: func(err error) string { return strings.Join(asProblem(err).lines, "; ") },
		Model: top.NewModel(top.Model{
			Where: s.Where(), Namespace: a.loaded.Namespace, Every: interval, KillAfter: defaultForce, Colours: a.coloured,
		}),
	})
}

// topSource is a store as top uses it.
type topSource struct {
	*store.Store
	name string // of this program
}

// Snap looks at everything once. What lacks something is not shown as if it were whole.
func (t topSource) Snap(ctx context.Context) (*view.Snapshot, error) {
	v, err := view.Snap(ctx, t.Store)
	if err == nil {
		err = v.Unread.First()
	}
	return v, err
}

// Pause pauses a queue, or resumes it.
func (t topSource) Pause(ctx context.Context, queue string, pause bool) (string, error) {
	name := wire.Printable(queue, view.MaxName)
	if pause {
		changed, err := t.Store.Pause(ctx, queue)
		if changed {
			t.did(ctx, store.EventPaused, "queue "+queue)
		}
		return "paused " + name, err
	}
	changed, err := t.Resume(ctx, queue)
	if changed {
		t.did(ctx, store.EventResumed, "queue "+queue)
	}
	if err != nil || changed {
		return "resumed " + name, err
	}
	if _, all, err := t.Paused(ctx); err != nil || all {
		return fmt.Sprintf("%s is paused with all queues; see: %s queues resume --all", name, t.name), err
	}
	return name + " is not paused", nil
}

// did notes what was done. What cannot be written is only missing among the events.
func (t topSource) did(ctx context.Context, kind store.EventKind, subject string) {
	ctx, cancel := context.WithTimeout(ctx, actPatience)
	defer cancel()
	_ = t.NoteEvent(ctx, act(kind, subject, "in top", 1))
}

// Kill asks a running job to stop, as "jobs kill" does.
func (t topSource) Kill(ctx context.Context, job *view.Job) (string, error) {
	if unread, ok := errors.AsType[*rdb.FormatError](t.CheckFormat(ctx)); ok {
		return "", &problem{exit: exitFailed, code: "format", cause: unread, lines: []string{"nothing was changed: " + unread.Error()}}
	}
	kills, _, err := ask(ctx, t.Store, []*view.Job{job}, &killOptions{force: defaultForce})
	if err != nil {
		return "", err
	}
	t.did(ctx, store.EventKilled, nameRuns([]*view.Job{job}))
	what := fmt.Sprintf("%s (%s)", wire.Printable(job.Class, view.MaxName), wire.Printable(job.Short, view.MaxName))
	switch kills[0].How {
	case store.HowFinished:
		return what + " has finished by itself", nil
	case howRecovering:
		return "the process of " + what + " is dead and is being recovered: look again in a moment", nil
	}
	return "asked " + what + " to stop", nil
}

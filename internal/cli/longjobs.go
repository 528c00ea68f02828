package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/longjob"
)

// longLimit is how many runs are shown, watchEvery how often with --watch.
const (
	longLimit  = 100
	watchEvery = 2 * time.Second
)

// longView is a run of a long job.
type longView struct {
	UUID    string                     `json:"uuid"`
	Class   string                     `json:"class"`
	Args    json.RawMessage            `json:"args"`
	Status  longjob.Status             `json:"status"`
	Queue   string                     `json:"queue"`
	Tenant  string                     `json:"tenant,omitempty"`
	Place   int                        `json:"place,omitempty"`
	Slice   int                        `json:"slice"`
	Slices  int                        `json:"slices"`
	Units   int64                      `json:"units"`
	RanMS   int64                      `json:"ran_ms"`
	UnitMS  int64                      `json:"unit_ms"`
	Steps   []longjob.Step             `json:"steps"`
	ETA     *float64                   `json:"eta_seconds"`
	Created *time.Time                 `json:"created_at"`
	Begun   *time.Time                 `json:"begun_at"`
	Seen    *time.Time                 `json:"last_seen_at"`
	Ended   *time.Time                 `json:"ended_at"`
	Deaths  int                        `json:"deaths"`
	Failed  int                        `json:"failures"`
	Rerun   bool                       `json:"rerun"`
	Message string                     `json:"message"`
	Error   string                     `json:"error"`
	Warning string                     `json:"warning"`
	State   map[string]json.RawMessage `json:"state,omitempty"`
}

func viewLong(r longjob.Run) longView {
	v := longView{
		UUID: r.UUID, Class: r.Class, Args: json.RawMessage(r.Args.String()), Status: r.Status, Queue: r.Queue, Slice: r.Slice, Slices: r.Slices,
		Units: r.Units, RanMS: r.Ran.Milliseconds(), UnitMS: r.UnitTime.Milliseconds(), Steps: r.Steps, Deaths: r.Deaths, Failed: r.Failures, Rerun: r.Rerun,
		Tenant: r.Tenant, Place: r.Place, Message: r.Message, Error: r.Error, Warning: r.Warning, State: r.State,
		Created: instant(r.Created), Begun: instant(r.Begun), Seen: instant(r.Seen), Ended: instant(r.Ended),
	}
	if v.Steps == nil {
		v.Steps = []longjob.Step{}
	}
	if step, ok := v.step(); ok && !step.Finished && !r.Status.Over() {
		if left, ok := step.Left(); ok {
			seconds := left.Seconds()
			v.ETA = &seconds
		}
	}
	return v
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// step is the one that is under way, or was the last.
func (v *longView) step() (step longjob.Step, ok bool) {
	for _, step := range slices.Backward(v.Steps) {
		if !step.Finished {
			return step, true
		}
	}
	if n := len(v.Steps); n > 0 {
		return v.Steps[n-1], true
	}
	return step, false
}

// progress is that step in words, eta how long the rest of it takes.
func (v *longView) progress() (text, rate, eta string) {
	step, ok := v.step()
	if !ok {
		return "", "", ""
	}
	text = fmt.Sprintf("%s %d", step.Name, step.Done)
	if step.Total > 0 {
		text += fmt.Sprintf("/%d", step.Total)
	}
	if n := step.PerSecond(); n > 0 {
		rate = speed(n)
	}
	if v.ETA != nil {
		eta = longLeft(time.Duration(*v.ETA * float64(time.Second)))
	}
	return text, rate, eta
}

// speed is how many items are done in a second; of slow ones how many in a minute or an hour.
func speed(perSecond float64) string {
	switch {
	case perSecond < 1./60:
		return fmt.Sprintf("%.1f/h", 3600*perSecond)
	case perSecond < 1:
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// longLeft is age in two units: of two hours it matters how many minutes there are.
func longLeft(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute || d >= 48*time.Hour && d%(24*time.Hour) < time.Hour:
		return age(d)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

func (a *app) longjobsCommand() *cobra.Command {
	f := longjob.Filter{Limit: longLimit}
	var status string
	var watch bool
	ls := func(c *cobra.Command, _ []string) error {
		f.Status = longjob.Status(status)
		switch f.Status {
		case "", longjob.Queued, longjob.Running, longjob.Completed, longjob.Failed, longjob.Cancelled, longjob.Superseded:
		default:
			return usage("", "--status %q: use queued, running, completed, failed, cancelled or superseded", status)
		}
		if f.Limit < 1 {
			return usage("", "--limit %d: use 1 or more", f.Limit)
		}
		return a.withLongjobs(c, func(ctx context.Context, client *longjob.Client) error {
			return a.repeat(ctx, watch, func() error { return a.listLongjobs(ctx, client, f) })
		})
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&f.Class, "class", "", "runs of this class")
		c.Flags().StringVar(&status, "status", "", "runs that are queued, running, completed, failed, cancelled or superseded")
		c.Flags().IntVar(&f.Limit, "limit", longLimit, "how many")
		c.Flags().BoolVar(&watch, "watch", false, "show them again every 2 seconds")
		_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
		_ = c.RegisterFlagCompletionFunc("status", words("queued", "running", "completed", "failed", "cancelled", "superseded"))
		return c
	}
	parent := flags(&cobra.Command{
		Use: "longjobs", Short: "list long jobs with their progress, start, requeue or cancel them", RunE: ls,
		Long: `List runs of long jobs: those that wait or run first, with how far they are and how long
the rest of their last step takes at the speed so far, then those that have ended.`,
		Example: "  " + a.name + " longjobs\n  " + a.name + " longjobs --watch\n  " + a.name + " longjobs show 6f1c",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(flags(&cobra.Command{
		Use: "ls", Short: "list long jobs (what the bare noun does)", Args: exactly(0, "no arguments"), RunE: ls,
	}), a.showLongjobCommand(), a.startLongjobCommand(), a.recurringCommand(), a.editLongjobsCommand("requeue"), a.editLongjobsCommand("cancel"))
	return parent
}

func (a *app) withLongjobs(c *cobra.Command, do func(ctx context.Context, client *longjob.Client) error) error {
	return a.withStore(c, func(ctx context.Context, s *store.Store) error {
		return do(ctx, longjob.ClientFrom(s.InContext(ctx), a.handlers))
	})
}

// repeat shows something once, or until the program is interrupted: on a terminal always in
// the same place, elsewhere one after the other.
func (a *app) repeat(ctx context.Context, watch bool, show func() error) error {
	if !watch {
		return show()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	inPlace := a.flags.output != outJSON && a.flags.output != outName && isTerminal(a.stdout)
	for {
		if inPlace {
			_ = a.printText("\x1b[H\x1b[2J") // home, clear
		}
		if err := show(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (a *app) listLongjobs(ctx context.Context, client *longjob.Client, f longjob.Filter) error {
	limit := f.Limit
	f.Limit++ // whether there are more
	runs, err := client.List(ctx, f)
	if err != nil {
		return err
	}
	more := len(runs) > limit
	if more {
		runs = runs[:limit]
	}
	l := &listing{partial: more, columns: []column{
		{title: "UUID"},
		{title: "CLASS"},
		{title: "STATUS", colour: statusColour},
		{title: "PROGRESS"},
		{title: "UNITS", right: true},
		{title: "SLICES", right: true},
		{title: "RATE", right: true},
		{title: "ETA", right: true},
		{title: "SEEN", right: true},
		{title: "MESSAGE"},
		{title: "QUEUE", wide: true},
		{title: "TENANT", wide: true},
		{title: "ARGS", wide: true},
	}}
	now := time.Now()
	for _, r := range runs {
		v := viewLong(r)
		progress, rate, eta := v.progress()
		message := r.Message
		if r.Error != "" {
			message, _, _ = strings.Cut(r.Error, "\n")
		}
		l.add(r.UUID, v, r.UUID, r.Class, string(r.Status), progress, fmt.Sprint(r.Units), fmt.Sprint(r.Slices), rate, eta,
			since(r.Seen, now), message, r.Queue, r.Tenant, string(v.Args))
	}
	if a.flags.output != outJSON && a.flags.output != outName {
		switch {
		case len(runs) == 0 && (f.Class != "" || f.Status != ""):
			a.note("no such long jobs")
		case len(runs) == 0:
			a.note("no long jobs")
		case more:
			a.note("only %d are shown; see --limit", limit)
		}
	}
	return a.print(l)
}

func statusColour(status string) string {
	switch longjob.Status(status) {
	case longjob.Failed:
		return red
	case longjob.Completed:
		return green
	case longjob.Cancelled, longjob.Superseded:
		return yellow
	}
	return ""
}

// findLongjob finds a run by its uuid or by the beginning of it.
func (a *app) findLongjob(ctx context.Context, client *longjob.Client, name string) (longjob.Run, error) {
	run, err := client.Get(ctx, name)
	if !errors.Is(err, longjob.ErrNotFound) {
		return run, err
	}
	runs, err := client.List(ctx, longjob.Filter{})
	if err != nil {
		return run, err
	}
	var known []string
	var found []longjob.Run
	for _, r := range runs {
		known = append(known, r.UUID)
		if strings.HasPrefix(r.UUID, strings.ToLower(name)) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return run, notFound("long job", name, known, a.name+" longjobs")
	case 1:
		return client.Get(ctx, found[0].UUID)
	}
	return run, usage("Write more of it.", "%q is the beginning of %s", name, plural(len(found), "long job"))
}

func (a *app) showLongjobCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "show UUID", Short: "show one long job, with what it remembers", Args: exactly(1, "the UUID of a long job, or its beginning"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withLongjobs(c, func(ctx context.Context, client *longjob.Client) error {
				run, err := a.findLongjob(ctx, client, args[0])
				if err != nil {
					return err
				}
				return a.repeat(ctx, watch, func() error {
					if run, err = client.Get(ctx, run.UUID); err != nil {
						return err
					}
					return a.showLongjob(run)
				})
			})
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "show it again every 2 seconds")
	return c
}

func (a *app) showLongjob(run longjob.Run) error {
	v := viewLong(run)
	switch a.flags.output {
	case outJSON:
		return a.printJSON(v)
	case outName:
		return a.printText(run.UUID + "\n")
	}
	l := &listing{columns: []column{{title: "WHAT"}, {title: ""}}}
	now := time.Now()
	row := func(what, value string) {
		if value != "" {
			l.add(what, nil, what, value)
		}
	}
	row("uuid", run.UUID)
	row("class", run.Class)
	row("args", string(v.Args))
	row("status", string(run.Status))
	row("queue", run.Queue)
	row("tenant", run.Tenant)
	if run.Place > 0 {
		row("turn", fmt.Sprintf("number %d in the line of its tenant", run.Place))
	}
	row("slices", fmt.Sprintf("%d, next or current: %d", run.Slices, run.Slice))
	row("units", fmt.Sprintf("%d in %s of work", run.Units, run.Ran.Round(time.Millisecond)))
	for _, s := range v.Steps {
		text := fmt.Sprint(s.Done)
		if s.Total > 0 {
			text += fmt.Sprintf(" of %d", s.Total)
		}
		if rate := s.PerSecond(); rate > 0 {
			text += ", " + speed(rate)
		}
		if left, ok := s.Left(); ok && !s.Finished && !run.Status.Over() {
			text += ", " + longLeft(left) + " of work left"
		}
		row("step "+s.Name, text)
	}
	row("enqueued", since(run.Created, now))
	row("begun", since(run.Begun, now))
	row("last seen", since(run.Seen, now))
	row("ended", since(run.Ended, now))
	if run.Deaths > 0 {
		row("deaths", fmt.Sprint(run.Deaths))
	}
	if run.Failures > 0 {
		row("failures", fmt.Sprint(run.Failures))
	}
	if run.Rerun {
		row("rerun", "one more run follows")
	}
	row("message", run.Message)
	row("error", run.Error)
	row("warning", run.Warning)
	for _, key := range slices.Sorted(maps.Keys(run.State)) {
		row("state "+key, string(run.State[key]))
	}
	return a.print(l)
}

// editLongjobsCommand makes "longjobs requeue" and "longjobs cancel".
func (a *app) editLongjobsCommand(verb string) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " UUID…", Short: "have long jobs go on that have failed or were cancelled",
		Long: `Have runs go on that have failed or were cancelled, from where they were. One whose last
slice is still running has to wait for its end.`,
		Example: "  " + a.name + " longjobs " + verb + " 6f1c",
	}
	done := "requeued"
	if verb == "cancel" {
		done = "cancelled"
		c.Short = "end long jobs for good"
		c.Long = `End runs that wait or run, for good. What a slice that runs has not saved yet is not saved
any more; it ends within seconds, if its code listens.`
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("See: "+a.name+" longjobs", "which?")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.withLongjobs(c, func(ctx context.Context, client *longjob.Client) error {
			var changed []string
			for _, name := range args {
				run, err := a.findLongjob(ctx, client, name)
				if err != nil {
					return err
				}
				if err := a.editLongjob(ctx, client, verb, run); err != nil {
					return err
				}
				changed = append(changed, run.UUID)
			}
			switch {
			case a.flags.output == outJSON:
				return a.printJSON(map[string][]string{done: changed})
			case a.flags.output == outName:
				return a.printText(strings.Join(changed, "\n") + "\n")
			case a.flags.quiet:
				return nil
			}
			return a.printText(done + " " + plural(len(changed), "long job") + "\n")
		})
	}
	return c
}

func (a *app) editLongjob(ctx context.Context, client *longjob.Client, verb string, run longjob.Run) error {
	var err error
	if verb == "cancel" {
		if err = client.Cancel(ctx, run.UUID); errors.Is(err, longjob.ErrEnding) {
			a.note("%s is cancelled; the code of its last slice runs still", run.UUID)
			err = nil
		}
	} else {
		err = client.Requeue(ctx, run.UUID)
	}
	switch {
	case errors.Is(err, longjob.ErrNotFound):
		return notFound("long job", run.UUID, nil, a.name+" longjobs")
	case errors.Is(err, longjob.ErrOver), errors.Is(err, longjob.ErrNotOver), errors.Is(err, longjob.ErrEnding), errors.Is(err, longjob.ErrNewer):
		return &problem{exit: exitFailed, code: "state", lines: []string{fmt.Sprintf("cannot %s %s: it is %s", verb, run.UUID, run.Status), err.Error()}, cause: err}
	}
	return err
}

package cli

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// editView is what became of the failures that were meant.
type editView struct {
	Matched int `json:"matched"`
	// Retried and Removed: one of them, by the verb.
	Retried *int `json:"retried,omitempty"`
	Removed *int `json:"removed,omitempty"`
	// Duplicates are those retried whose job was not pushed: an equal one waits.
	Duplicates int            `json:"duplicates"`
	Gone       int            `json:"gone"`
	Stuck      int            `json:"stuck"`
	Queues     map[string]int `json:"queues,omitempty"`
	DryRun     bool           `json:"dry_run"`
}

type editOptions struct {
	filter client.FailedFilter
	// pattern, older and newer become part of the filter.
	pattern      string
	older, newer time.Duration
	retry        bool
	yes, dryRun  bool
}

// editFailedCommand makes "failed retry" and "failed rm".
func (a *app) editFailedCommand(retry bool) *cobra.Command {
	o := editOptions{retry: retry}
	c := &cobra.Command{
		Use: "rm [ID…]", Short: "remove failures",
		Long: `Remove the records of failed jobs: those named, or those that a filter selects. On a
terminal a filter asks first; elsewhere it needs --yes.`,
		Example: "  " + a.name + " failed rm 0af6af819782\n  " + a.name + " failed rm --class Mail --error Timeout --dry-run",
		Args: func(c *cobra.Command, args []string) error {
			filtered := slices.ContainsFunc(failedFilters, c.Flags().Changed)
			if err := o.resolve(time.Now()); err != nil {
				return err
			}
			switch {
			case len(args) == 0 && !filtered:
				return usage("Name failures, or use --class, --error, --queue, --older-than or --all. See: "+a.name+" failed --flat", "which failures?")
			case len(args) > 0 && (filtered || o.filter.Again):
				return usage("", "name failures or filter them, not both")
			case o.filter.Limit < 0:
				return usage("", "--limit %d: use 0 or more", o.filter.Limit)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.editFailed(c, args, o) },
	}
	if retry {
		c.Use, c.Short = "retry [ID…]", "push failed jobs again"
		c.Long = `Push failed jobs again, unchanged, to the queues that they came from: those named, or
those that a filter selects. Their records stay and say when they were retried; a
filter leaves out jobs that were retried before. On a terminal a filter asks first;
elsewhere it needs --yes.`
		c.Example = "  " + a.name + " failed retry 0af6af819782\n  " + a.name + " failed retry --class Mail --error Timeout --dry-run\n" +
			"  " + a.name + " failed retry --all --yes"
		c.Flags().BoolVar(&o.filter.Again, "again", false, "also those that were retried before")
	}
	f := c.Flags()
	f.StringVar(&o.filter.Class, "class", "", "jobs of this class")
	f.StringVar(&o.filter.Error, "error", "", "whose exception or message contains this `text`")
	f.StringVar(&o.pattern, "match", "", "whose exception or message fits this `regexp`")
	f.StringVar(&o.filter.Queue, "queue", "", "from this queue")
	f.DurationVar(&o.older, "older-than", 0, "that failed longer ago")
	f.DurationVar(&o.newer, "newer-than", 0, "that failed within this time")
	f.BoolVar(&o.filter.All, "all", false, "all failures")
	f.IntVar(&o.filter.Limit, "limit", 0, "at most so many, the oldest first (0 = any number)")
	f.BoolVar(&o.dryRun, "dry-run", false, "only tell how many these are")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	_ = c.RegisterFlagCompletionFunc("queue", a.live(queueNames))
	_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
	for _, flag := range []string{"error", "match", "older-than", "newer-than", "limit"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	return c
}

// failedFilters are the flags that select failures.
var failedFilters = []string{"all", "class", "error", "match", "queue", "older-than", "newer-than"}

// resolve makes the filter whole.
func (o *editOptions) resolve(now time.Time) (err error) {
	if o.pattern != "" {
		if o.filter.Pattern, err = regexp.Compile(o.pattern); err != nil {
			return usage("", "--match %q: %s", o.pattern, err)
		}
	}
	if o.older < 0 || o.newer < 0 {
		return usage("", "a time must not be negative")
	}
	if o.older > 0 {
		o.filter.Before = now.Add(-o.older)
	}
	if o.newer > 0 {
		o.filter.After = now.Add(-o.newer)
	}
	return nil
}

func (a *app) editFailed(c *cobra.Command, names []string, o editOptions) error {
	if len(names) > 0 {
		err := a.withStore(c, func(ctx context.Context, s *store.Store) error {
			var known []string
			views, _, err := failures(ctx, s, math.MaxInt64, func(v failureView) bool {
				if len(known) < failedLimit {
					known = append(known, v.ID[:idLength])
				}
				return slices.ContainsFunc(names, func(id string) bool { return strings.HasPrefix(v.ID, strings.ToLower(id)) })
			})
			if err != nil {
				return err
			}
			o.filter.IDs, err = a.wholeIDs(views, names, known)
			return err
		})
		if err != nil {
			return err
		}
	}
	return a.withClient(c, func(ctx context.Context, jobs *client.Client) error {
		report, err := jobs.CountFailed(ctx, o.filter, !o.retry)
		if err != nil {
			return err
		}
		if o.dryRun || report.Matched == 0 {
			return a.tellEdited(report, o, true)
		}
		if len(names) == 0 && !o.yes {
			if err := a.confirm(o.text("", report)); err != nil {
				return err
			}
		}
		do := jobs.RemoveFailed
		if o.retry {
			do = jobs.RetryFailed
		}
		if report, err = do(ctx, o.filter); err != nil {
			return fmt.Errorf("%w (done until then: %d)", err, report.Done)
		}
		return a.tellEdited(report, o, false)
	})
}

// text says what is done to how many.
func (o editOptions) text(prefix string, r client.FailedReport) string {
	verb, past, n := "remove", "removed", r.Matched
	if o.retry {
		verb, past = "retry", "retried"
	}
	if prefix == "done" {
		prefix, verb, n = "", past, r.Done
	}
	if !o.retry {
		return prefix + verb + " " + plural(n, "failure")
	}
	to := ""
	if queues := slices.Sorted(maps.Keys(r.Queues)); len(queues) == 1 {
		to = " to " + wire.Printable(queues[0], 100)
	} else if len(queues) > 1 {
		to = " to " + plural(len(queues), "queue")
	}
	return prefix + verb + " " + plural(n, "job") + to
}

func (a *app) tellEdited(r client.FailedReport, o editOptions, dry bool) error {
	dry = dry && o.dryRun
	v := editView{
		Matched: r.Matched, Duplicates: r.Duplicates, Gone: r.Gone, Stuck: r.Stuck, Queues: r.Queues, DryRun: dry,
	}
	if v.Removed = &r.Done; o.retry {
		v.Removed, v.Retried = nil, &r.Done
	}
	var err error
	switch {
	case a.flags.output == outJSON:
		err = a.printJSON(v)
	case a.flags.output == outName || a.flags.quiet:
	case dry:
		err = a.printText(o.text("would ", r) + "\n")
	default:
		text := o.text("done", r)
		if r.Duplicates > 0 {
			text += fmt.Sprintf("; %d of them not pushed: an equal job waits", r.Duplicates)
		}
		if r.Gone > 0 {
			text += fmt.Sprintf("; %d were retried or removed by somebody else meanwhile", r.Gone)
		}
		err = a.printText(text + "\n")
	}
	if err == nil && r.Stuck > 0 {
		err = &problem{
			exit: exitFailed, code: "stuck", lines: []string{fmt.Sprintf("%s cannot be retried", plural(r.Stuck, "failure"))},
			hint: "The record holds no job or no queue, or the queue's key in Redis is no list. See: " + a.name + " failed --flat",
		}
	}
	return err
}

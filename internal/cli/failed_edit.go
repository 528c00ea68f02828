package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// editView is the result for selected failures or delayed jobs.
type editView struct {
	Matched int `json:"matched"`
	// Retried, Pushed or Removed is set, depending on the verb.
	Retried *int `json:"retried,omitempty"`
	Pushed  *int `json:"pushed,omitempty"`
	Removed *int `json:"removed,omitempty"`
	// Duplicates counts those whose job was not pushed because an equal one waits.
	Duplicates int `json:"duplicates"`
	Gone       int `json:"gone"`
	Stuck      int `json:"stuck"`
	// Payloads counts parked payloads that were removed with their records.
	Payloads int            `json:"payloads,omitempty"`
	Queues   map[string]int `json:"queues,omitempty"`
	DryRun   bool           `json:"dry_run"`
	Warnings []string       `json:"warnings,omitempty"`
}

type editOptions struct {
	filterFlags
	consent
	retry bool
	// payloadFile holds a job to push in place of the failed one.
	payloadFile string
	warnings    []string
}

// editFailedCommand makes "failed retry" and "failed rm".
func (a *cli) editFailedCommand(retry bool) *cobra.Command {
	o := editOptions{retry: retry}
	v := verb{
		use: "rm [ID…]", kind: edits, short: "remove failures",
		long: `Remove the records of failed jobs, by id or by filter. With a filter it asks
first on a terminal; elsewhere it needs --yes. A payload that was too large for
its record is removed too, unless the job was retried.`,
		example: "failed rm 0af6af819782\nfailed rm --class 'Mail*' --since yesterday --until today --dry-run",
		args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !o.filtered():
				return usage("Name failures, or use --all, "+o.conditions()+". See: "+a.again()+" failed --flat", "which failures?")
			case len(args) > 0 && o.filtered():
				return usage("", "name failures or filter them, not both")
			case o.payloadFile != "" && len(args) != 1:
				return usage("See: "+a.again()+" failed --flat", "--payload-file: name the one failure that the job is for")
			}
			return nil
		},
		flags: func(f *flagSet) {
			o.filterFlags.add(f, filter.Failures)
			f.BoolVar(&o.All, "all", false, "all failures")
			f.limit(&o.Limit, 0, 0, "most failures, oldest of each list first (0: no limit)")
			o.consent.add(f)
			if retry {
				f.StringVar(&o.payloadFile, "payload-file", "", "push the job in this `file` (- standard input) instead of the named failure")
			}
		},
		run: func(ctx context.Context, s *session, args []string) error { return editFailed(ctx, s, args, o) },
	}
	if retry {
		v.use, v.short = "retry [ID…]", "push failed jobs again"
		v.long = `Push failed jobs again, unchanged, to the queues they came from, by id or by
filter. Their records stay and say when they were retried; a filter skips those
jobs, unless --retried says otherwise. With a filter it asks first on a
terminal; elsewhere it needs --yes.

A payload that was not a job (Resqued::InvalidPayload) cannot be pushed as it
is. Fix it and pass it with --payload-file; "failed show" prints its bytes.`
		v.example = "failed retry 0af6af819782\nfailed retry --class Mail --error Timeout --dry-run\nfailed retry --all --yes\n" +
			"failed show 0af6af819782@41 -o json |\n    jq -j '.items[0].payload' >job.json\n" +
			"failed retry 0af6af819782@41 --payload-file job.json"
	}
	return a.command(v)
}

func editFailed(ctx context.Context, s *session, names []string, o editOptions) error {
	var payload []byte
	if o.payloadFile != "" {
		var err error
		if payload, err = readPayload(s.a.stdin, o.payloadFile); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		views, err := findFailed(ctx, s, names)
		if err != nil {
			return err
		}
		for _, v := range views {
			o.IDs = append(o.IDs, v.ID)
		}
	}
	do := func(ctx context.Context, _ func(int)) (client.FailedReport, error) {
		return s.jobs.RetryFailedWith(ctx, o.IDs[0], payload)
	}
	total := 1
	if payload == nil || o.dryRun {
		looked := s.progressOf("looked at", 0)
		selection, err := s.jobs.SelectFailed(filter.WithProgress(ctx, looked.at), o.Filter, !o.retry)
		looked.done()
		if err != nil {
			return err
		}
		report := selection.Report()
		ask := len(names) == 0 && !o.yes
		if o.dryRun || report.Matched == 0 && ask {
			return tellEdited(s, report, o)
		}
		// Failures that come while it waits for the answer are not selected.
		if err := s.a.confirm(!ask, o.text(false, report)); err != nil {
			return err
		}
		do, total = selection.Do, report.Matched
	}
	past, kind := "removed", store.EventRemoved
	if o.retry {
		past, kind = "retried", store.EventRetried
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	bar := s.progressOf(past, total)
	report, err := do(ctx, bar.at)
	bar.done()
	s.did(kind, "failures", plural(report.Done, "failure")+o.selected(names), report.Done)
	if err != nil {
		return fmt.Errorf("%w (done until then: %d)", interrupted(ctx, err), report.Done)
	}
	if o.retry {
		retried := pushed{}
		for queue := range report.Queues {
			retried.add(queue, "")
		}
		by := s.a.workedBy(ctx, s.loaded.Config, retried)
		o.warnings = by.Warnings
		defer s.a.warnUnworked(by)
	}
	return tellEdited(s, report, o)
}

func (o *editOptions) selected(names []string) string {
	if len(names) > 0 {
		return ": " + strings.Join(names, ", ")
	}
	if len(o.words) > 0 {
		return ": " + filter.Text(o.words)
	}
	return ""
}

// readPayload reads a job from a file, or from stdin, without the final line break.
func readPayload(stdin io.Reader, file string) ([]byte, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(stdin)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("--payload-file: %w", err)
	}
	raw = bytes.TrimRight(raw, "\r\n")
	if _, err := wire.Parse(raw, 0); err != nil {
		return nil, usage(`A job is an object such as {"class":"Mail","args":[42]}.`, "--payload-file %s: %s", file, err)
	}
	return raw, nil
}

// text says what is to be done, or was done.
func (o editOptions) text(done bool, r client.FailedReport) string {
	n := r.Matched
	if done {
		n = r.Done
	}
	if !o.retry {
		return map[bool]string{false: "remove ", true: "removed "}[done] + plural(n, "failure")
	}
	to := ""
	if queues := slices.Sorted(maps.Keys(r.Queues)); len(queues) == 1 {
		to = " to " + wire.Printable(queues[0], 100)
	} else if len(queues) > 1 {
		to = " to " + plural(len(queues), "queue")
	}
	return map[bool]string{false: "retry ", true: "retried "}[done] + plural(n, "job") + to
}

func tellEdited(s *session, r client.FailedReport, o editOptions) error {
	v := editView{
		Matched: r.Matched, Duplicates: r.Duplicates, Gone: r.Gone, Stuck: r.Stuck, Payloads: r.Payloads, Queues: r.Queues, DryRun: o.dryRun, Warnings: o.warnings,
	}
	if v.Removed = &r.Done; o.retry {
		v.Removed, v.Retried = nil, &r.Done
	}
	text := "would " + o.text(false, r)
	if !o.dryRun {
		text = o.text(true, r)
		if r.Duplicates > 0 {
			text += fmt.Sprintf("; %d of them not pushed: an equal job waits", r.Duplicates)
		}
		if r.Payloads > 0 {
			text += "; " + plural(r.Payloads, "large payload") + " kept next to them, too"
		}
		if r.Gone > 0 {
			text += fmt.Sprintf("; %d were retried or removed by someone else in the meantime", r.Gone)
		}
	}
	if err := s.result(v, "", text+"\n"); err != nil || r.Stuck == 0 {
		return err
	}
	return failure("stuck", "The record holds no job or no queue, or the queue's key in Redis is not a list. See: "+s.again()+" failed --flat. "+
		"A payload that is not a job can be corrected: "+s.again()+" failed retry ID --payload-file FILE",
		"%s cannot be retried", plural(r.Stuck, "failure"))
}

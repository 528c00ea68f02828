package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

type tickFlags struct {
	interval, every     time.Duration
	backlog             int
	queue, requeueQueue string
	subjects            bool
}

func (a *cli) tickRecurringCommand() *cobra.Command {
	var f tickFlags
	c := &cobra.Command{
		Use: "tick CLASS", Annotations: adds, Short: "enqueue the runs of a recurring long job that are due now",
		Long: `Enqueue the due runs of a class, spread evenly over the interval, as the ticks
of a recurring job in Go do. It is for a program that keeps its own list of
subjects: let a schedule run it every few minutes. With --subjects they come on
standard input, one JSON value each: the list of arguments of a run, one
argument that is not a list, or {"args": …, "interval_s": 3600, "tenant": "…"}.`,
		Example: "  echo '\"north\" \"south\"' | " + a.name + " longjobs recurring tick Invoices \\\n    --interval 24h --subjects",
		Args:    exactly(1, "the class"),
		RunE: func(c *cobra.Command, args []string) error {
			r := longjob.Recurring{Interval: f.interval, Every: f.every, Backlog: f.backlog}
			if f.subjects {
				list, err := readSubjects(io.LimitReader(a.stdin, maxInput+1))
				if err != nil {
					return err
				}
				r.Each = func(context.Context) ([]longjob.Subject, error) { return list, nil }
			}
			var opts []longjob.EnqueueOption
			if f.queue != "" {
				opts = append(opts, longjob.Queue(f.queue))
			}
			if f.requeueQueue != "" {
				opts = append(opts, longjob.RequeueQueue(f.requeueQueue))
			}
			return a.withClasses(c, func(ctx context.Context, client *longjob.Client) error {
				err := client.Tick(ctx, args[0], r, opts...)
				if errors.Is(err, longjob.ErrNoQueue) {
					return usage("Pass --queue NAME, or set the class's queue in the handlers section of the configuration.",
						"no queue is known for class %q", wire.Printable(args[0], 200))
				}
				return err
			})
		},
	}
	c.Flags().DurationVar(&f.interval, "interval", 24*time.Hour, "time between runs of a subject")
	c.Flags().DurationVar(&f.every, "every", 0, "time between ticks (default: 5m, or a tenth of the interval if less)")
	c.Flags().IntVar(&f.backlog, "backlog", 0, "most runs that wait or run (default: 100)")
	c.Flags().StringVar(&f.queue, "queue", "", "queue of the first slice (default: the class's)")
	c.Flags().StringVar(&f.requeueQueue, "requeue-queue", "", "queue of further slices (default: the class's)")
	c.Flags().BoolVar(&f.subjects, "subjects", false, "read subjects from standard input (default: one without arguments)")
	for _, name := range []string{"queue", "requeue-queue"} {
		_ = c.RegisterFlagCompletionFunc(name, a.live(queueNames))
	}
	return c
}

func readSubjects(from io.Reader) (list []longjob.Subject, err error) {
	d := json.NewDecoder(from)
	for {
		var raw json.RawMessage
		switch err := d.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, usage("", "subject %d is not JSON: %s", len(list)+1, err)
		}
		var s longjob.Subject
		if raw = bytes.TrimSpace(raw); raw[0] == '{' {
			var v struct {
				Args      json.RawMessage `json:"args"`
				IntervalS float64         `json:"interval_s"`
				Tenant    string          `json:"tenant"`
			}
			if err := json.Unmarshal(raw, &v); err != nil || len(v.Args) == 0 || v.IntervalS < 0 {
				return nil, usage("", "subject %d: use {\"args\": …, \"interval_s\": 3600, \"tenant\": \"…\"}", len(list)+1)
			}
			raw, s = v.Args, longjob.Subject{Interval: time.Duration(v.IntervalS * float64(time.Second)), Tenant: v.Tenant}
		}
		args := resqued.Args{raw}
		if raw[0] == '[' {
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, usage("", "subject %d: %s", len(list)+1, err)
			}
		}
		s.Args = args
		list = append(list, s)
	}
}

// withClasses is withLongjobs for a client that knows the classes' queues.
func (a *cli) withClasses(c *cobra.Command, do func(ctx context.Context, client *longjob.Client) error) error {
	cfg, err := a.load(c)
	if err != nil {
		return err
	}
	s, err := app.OpenStore(cfg.Config, "resqued-cli")
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	long := longstore.New(s.Redis())
	return do(c.Context(), longjob.ClientFrom(long.InContext(context.Background()), a.program().Classes(cfg.Config)))
}

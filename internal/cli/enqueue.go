package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	maxInput = 64 << 20
	// devQueue takes jobs of classes without a queue under --dev, where all queues are worked.
	devQueue = "default"
)

func (a *cli) enqueueCommand() *cobra.Command {
	var queue, list string
	var when whenFlags
	c := a.command(verb{
		use: "enqueue CLASS [ARG…]", kind: adds, short: "push a job, now or later",
		long: `Push a job to its queue. An ARG that is JSON is passed as JSON (42, true,
'{"a":1}', '"42"'), any other as text. A job of a loner class is not pushed
while one with the same class lock waits or runs; that is reported, and is not
a failure.

With --in or --at the job is delayed, in the keys of resque-scheduler (see
"schedule"), until a running daemon moves it to its queue.

Without CLASS, --json - reads one job per line from standard input and pushes
thousands at a time. A line is a JSON object with "class" and optionally "args"
(a list), "queue", "in" and "at".

If no worker works the queue or handles the class, the job is pushed anyway,
with a warning.`,
		example: "enqueue Mail 42 hi --queue mail\n" +
			"enqueue Mail --json '[42, {\"subject\": \"hi\"}]'\n" +
			"enqueue Mail 42 hi --queue mail --in 5m\n" +
			"enqueue Hello you --dev\n" +
			"  echo '{\"class\":\"Mail\",\"args\":[42],\"queue\":\"mail\"}' | " + a.name + " enqueue --json -",
		args: func(c *cobra.Command, args []string) error {
			if list == "-" {
				return nil
			}
			return someClass(c, args)
		},
		flags: func(f *flagSet) {
			f.StringVar(&queue, "queue", "", "queue (default: the class's, from the configuration or a running daemon)")
			f.StringVar(&list, "json", "", "all arguments as a JSON `list` (- reads standard input; without CLASS, jobs)")
			when.add(f)
		},
		do: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.enqueueLines(c, queue, when)
			}
			parsed, err := jobArgs(a.stdin, args[1:], list, c.Flags().Changed("json"))
			if err != nil {
				return err
			}
			return a.enqueue(c, args[0], parsed, queue, when)
		},
	})
	c.ValidArgsFunction = a.completeClass
	return c
}

func someClass(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("See: "+c.CommandPath()+" --help", "which class?")
	}
	return nil
}

// completeClass completes the first argument.
func (a *cli) completeClass(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.live(a.classNames)(c, args, prefix)
}

// jobArgs parses a job's arguments. It keeps the bytes of JSON, so that large numbers stay exact.
func jobArgs(stdin io.Reader, words []string, list string, hasList bool) (resqued.Args, error) {
	if !hasList {
		args := make(resqued.Args, len(words))
		for i, word := range words {
			if trimmed := strings.TrimSpace(word); json.Valid([]byte(trimmed)) {
				args[i] = json.RawMessage(trimmed)
				continue
			}
			text, err := jsonText(word)
			if err != nil {
				return nil, usage("", "argument %d: %s", i+1, err)
			}
			args[i] = text
		}
		return args, nil
	}
	if len(words) > 0 {
		return nil, usage("", "give the arguments either as words or with --json")
	}
	if list == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxInput+1))
		switch {
		case err != nil:
			return nil, fmt.Errorf("standard input: %w", err)
		case len(text) > maxInput:
			return nil, usage("", "standard input holds more than %s", view.Size(maxInput))
		}
		list = string(text)
	}
	var args resqued.Args
	if err := json.Unmarshal([]byte(list), &args); err != nil || args == nil {
		return nil, usage(`Example: --json '[42, "hi"]'`, "--json needs a JSON list of arguments, got %s", wire.Printable(list, 80))
	}
	return args, nil
}

// jsonText encodes a text as Ruby's JSON does, which escapes less than Go's.
func jsonText(word string) (json.RawMessage, error) {
	payload, err := wire.EncodePayload("text", []string{word})
	if err != nil {
		return nil, err
	}
	e, err := wire.Parse(payload, 0)
	if err != nil {
		return nil, err
	}
	return e.Args[0], nil
}

func (a *cli) enqueue(c *cobra.Command, class string, args resqued.Args, queue string, when whenFlags) error {
	in, at, err := when.parse(time.Now())
	if err != nil {
		return err
	}
	cfg, queue, err := a.loadFor(c, class, queue)
	if err != nil {
		return err
	}
	// This is the user's mistake, so refuse it before a connection to Redis.
	payload, err := wire.EncodePayload(class, args)
	if err != nil {
		return usage("", "%s", err)
	}
	pusher, err := a.client(cfg.Config)
	if err != nil {
		return err
	}
	defer func() { _ = pusher.Close() }()
	opts := []client.Option{client.Queue(queue)}
	switch {
	case when.in != "":
		opts = append(opts, client.In(in))
	case when.at != "":
		opts = append(opts, client.At(at))
	}
	res, err := pusher.EnqueueRaw(c.Context(), payload, opts...)
	if errors.Is(err, client.ErrLonerLater) {
		return usage("", "%s", err)
	}
	if err != nil {
		if !client.NotEnqueued(err) {
			err = fmt.Errorf("%w (the job may have been pushed anyway)", err)
		}
		return err
	}
	jobs := pushed{}
	if res.Status == client.StatusEnqueued || res.Status == client.StatusDelayed {
		jobs.add(res.Queue, class)
	}
	by := a.workedBy(c.Context(), cfg.Config, jobs)
	defer a.warnUnworked(by)
	v := map[string]any{
		"class": class, "args": args, "queue": res.Queue, "position": res.Position, "status": res.Status,
		"worked": by.Worked, "warnings": by.Warnings,
	}
	job, to := jobText(class, args.String()), wire.Printable(res.Queue, 0)
	name, text := to+"\n", fmt.Sprintf("enqueued %s to %s (position %d)\n", job, to, res.Position)
	known, ok := a.program().Classes(cfg.Config).Lookup(class)
	loner := ok && known.Lock != nil && known.Lock.Loner
	switch {
	case res.Status == client.StatusDelayed:
		v["due"] = res.Due
		text = fmt.Sprintf("delayed %s: to %s at %s (in %s)\n", job, to, res.Due.Format(time.RFC3339), view.Age(time.Until(res.Due).Round(time.Second)))
	case a.flags.output == outJSON:
	case res.Status == client.StatusDuplicate && loner:
		a.note("not enqueued: %s is a loner, and one with the same lock waits already", job)
		return nil
	case res.Status == client.StatusLocked:
		a.note("not enqueued: %s is a loner, and one with the same lock runs", job)
		return nil
	case res.Status == client.StatusDuplicate:
		name, text = "", fmt.Sprintf("duplicate of a waiting job in %s; nothing enqueued\n", to)
	}
	return a.result(v, name, text)
}

// loadFor reads the configuration for a job that is pushed, with several stores that of its
// queue's store, and finds the queue if none is named.
func (a *cli) loadFor(c *cobra.Command, class, queue string) (*config.Resolved, string, error) {
	cfg, err := a.load(c)
	several, ok := errors.AsType[*severalStores](err)
	if err != nil && !ok {
		return nil, "", err
	}
	if !ok {
		if queue == "" {
			queue, err = a.queueOf(c.Context(), cfg.Config, class)
		}
		return cfg, queue, err
	}
	if queue == "" {
		if queue, err = a.queueInStores(c.Context(), several.loaded, class); err != nil {
			return nil, "", err
		}
	}
	home, err := homeOf(several.loaded, queue)
	if err != nil {
		return nil, "", err
	}
	cfg, err = a.loadOf(c, home)
	return cfg, queue, err
}

// queueInStores is queueOf for several stores: any store's daemons may know the queue.
func (a *cli) queueInStores(ctx context.Context, r *config.Resolved, class string) (queue string, err error) {
	for _, one := range r.Stores {
		if queue, err = a.queueOf(ctx, one.Config, class); err == nil {
			return queue, nil
		}
	}
	return "", err
}

// enqueuer pushes jobs; *client.Client and *client.Stores implement it.
type enqueuer interface {
	EnqueueMany(ctx context.Context, jobs []client.EnqueueParams) ([]client.EnqueueResult, error)
	Close() error
}

func (a *cli) clients(r *config.Resolved) (*client.Stores, error) {
	var all []client.Store
	for i, one := range r.Stores {
		all = append(all, client.Store{
			Name: one.Store, Queues: one.Routes[i].Queues, URL: one.RedisURL, Namespace: one.Namespace, CAFile: one.RedisCAFile,
			CertFile: one.RedisCertFile, KeyFile: one.RedisKeyFile,
		})
	}
	common := a.clientOptions(r.Stores[0].Config)
	common.CAFile, common.CertFile, common.KeyFile = "", "", "" // a store without them has the system's, or none
	return client.NewStores(common, all...)
}

func (a *cli) client(cfg config.Config) (*client.Client, error) {
	return client.New(a.clientOptions(cfg))
}

func (a *cli) clientOptions(cfg config.Config) client.Options {
	return client.Options{
		URL: cfg.RedisURL, Namespace: cfg.Namespace, CAFile: cfg.RedisCAFile, CertFile: cfg.RedisCertFile, KeyFile: cfg.RedisKeyFile,
		Handlers: a.program().Classes(cfg), Ruby34: app.RubyStyle(cfg) == wire.Ruby34,
		UniqueQueues: cfg.UniqueQueues, UniqueQueuesStrict: cfg.UniqueQueuesStrict,
	}
}

// jobText returns a job as Class["arg",2], safe for a terminal.
func jobText(class, args string) string {
	return wire.Printable(class, 100) + wire.Printable(wire.ShortArgs(args), 200)
}

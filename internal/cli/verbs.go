package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
)

// verb declares a command: its texts, what it may change, its arguments and flags, and its work.
type verb struct {
	// example has the lines that show how to use it, without the program's name.
	use, short, long, example string
	kind                      kind
	// args checks the arguments; nil = none are allowed. names completes them.
	args  cobra.PositionalArgs
	names func(ctx context.Context, s *store.Store) ([]string, error)
	flags func(f *flagSet)

	// One of these does its work: run in the store that it needs, list in each of several stores if
	// no name is given, do without any. A verb without them prints its help.
	run  func(ctx context.Context, s *session, args []string) error
	list func(ctx context.Context, s *session, args []string) (*listing, error)
	do   func(c *cobra.Command, args []string) error
}

// kind is a verb's effect on Redis.
type kind string

const (
	// shows is for verbs that show changing data; they have --watch.
	shows kind = "shows"
	// reads is for other verbs that change nothing.
	reads kind = "reads"
	// adds is for verbs that only add, or that use only Ruby's keys. They work next to a newer
	// version, which can read what this one writes.
	adds kind = "adds"
	// edits is for verbs that change what other programs wrote below resqued:. They refuse if a
	// newer version wrote what this one cannot read.
	edits kind = "edits"
	// daemon is for verbs that handle signals themselves.
	daemon kind = "daemon"
	// noRedis is for verbs that work on files, processes or PostgreSQL.
	noRedis kind = "no redis"
)

func is(c *cobra.Command, k kind) bool { return c.Annotations["kind"] == string(k) }

// command returns the command of a verb, and of its subcommands.
func (a *cli) command(v verb, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: a.examples(v.example), Annotations: map[string]string{"kind": string(v.kind)},
		Args: v.args, RunE: v.do,
	}
	c.AddCommand(subs...)
	switch {
	case v.args != nil:
	case len(subs) > 0:
		c.Args = noSuchVerb
	default:
		c.Args = none
	}
	switch {
	case v.run != nil:
		c.RunE = func(c *cobra.Command, args []string) error {
			r, err := a.load(c)
			if err != nil {
				return err
			}
			return a.inStore(c, r, func(ctx context.Context, s *session) error { return v.run(ctx, s, args) })
		}
	case v.list != nil:
		c.RunE = func(c *cobra.Command, args []string) error {
			return a.list(c, len(args) == 0, func(ctx context.Context, s *session) (*listing, error) { return v.list(ctx, s, args) })
		}
	case v.do == nil:
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if v.names != nil {
		c.ValidArgsFunction = a.live(v.names)
	}
	if v.flags != nil {
		a.addFlags(c, v.flags)
	}
	if v.kind == shows {
		a.addWatch(c)
	}
	return c
}

// lists returns the command of a verb that lists things, with the subcommand "ls" that does the same.
func (a *cli) lists(v verb, short string, subs ...*cobra.Command) *cobra.Command {
	ls := v
	_, args, _ := strings.Cut(v.use, " ")
	ls.use, ls.short, ls.long, ls.example = strings.TrimSpace("ls "+args), short, "", ""
	return a.command(v, append([]*cobra.Command{a.command(ls)}, subs...)...)
}

// examples puts the program's name before lines that are not indented.
func (a *cli) examples(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && !strings.HasPrefix(line, " ") {
			line = "  " + a.name + " " + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// flagSet are the flags of a verb, with their completions and what is checked before it runs.
type flagSet struct {
	*pflag.FlagSet
	completers map[string]completer
	checks     []func() error
}

// limit declares --limit, of least or more.
func (f *flagSet) limit(to *int, most, least int, help string) {
	f.IntVar(to, "limit", most, help)
	f.check(func() error {
		if *to < least {
			return usage("", "--limit %d: use %d or more", *to, least)
		}
		return nil
	})
}

// check adds what is checked before the verb runs.
func (f *flagSet) check(valid func() error) { f.checks = append(f.checks, valid) }

// addFlags declares the flags of a verb. Names of queues and classes are completed, and files where
// the help names a file or a path.
func (a *cli) addFlags(c *cobra.Command, declare func(f *flagSet)) {
	f := &flagSet{FlagSet: pflag.NewFlagSet("", pflag.ContinueOnError), completers: map[string]completer{
		"queue": a.live(queueNames), "class": a.live(a.classNames),
	}}
	declare(f)
	f.VisitAll(func(flag *pflag.Flag) {
		c.Flags().AddFlag(flag)
		complete := f.completers[flag.Name]
		if value, _ := pflag.UnquoteUsage(flag); complete == nil && value != "file" && value != "path" {
			complete = cobra.NoFileCompletions
		}
		if complete != nil {
			_ = c.RegisterFlagCompletionFunc(flag.Name, complete)
		}
	})
	c.PreRunE = func(*cobra.Command, []string) error {
		for _, check := range f.checks {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	}
}

// consent is whether a verb asks before it changes things, or only shows what it would change.
type consent struct{ yes, dryRun bool }

func (o *consent) add(f *flagSet) {
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show what would change")
}

// none refuses arguments.
func none(c *cobra.Command, args []string) error { return exactly(0, "no arguments")(c, args) }

// exactly requires n arguments; what names them in the error.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("See: "+c.CommandPath()+" --help", "%s takes %s, got %s", c.CommandPath(), what, plural(len(args), "argument"))
		}
		return nil
	}
}

// some requires arguments; which asks for them, and see is the verb that lists them.
func (a *cli) some(which, see string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("See: "+a.again()+" "+see, "%s", which)
		}
		return nil
	}
}

// someOrAll requires the names of things, or --all. which and name ask for them, and see is the verb
// that lists them.
func (a *cli) someOrAll(all *bool, which, things, name, see string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case *all && len(args) > 0:
			return usage("", "name %s or use --all, not both", things)
		case !*all && len(args) == 0:
			return usage(name+", or use --all. See: "+a.again()+" "+see, "%s", which)
		}
		return nil
	}
}

// session is a verb at work in a store.
type session struct {
	*output
	*store.Store
	// jobs changes waiting and failed jobs.
	jobs   *client.Client
	a      *cli
	cmd    *cobra.Command
	loaded *config.Resolved
}

// inStore opens a store for a verb, unless the verb would change what this version cannot read.
func (a *cli) inStore(c *cobra.Command, r *config.Resolved, do func(ctx context.Context, s *session) error) error {
	opened, err := app.OpenStore(r.Config, "resqued-cli")
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	if err := a.checkFormat(c, opened); err != nil {
		return err
	}
	jobs, err := a.client(r.Config)
	if err != nil {
		return err
	}
	defer func() { _ = jobs.Close() }()
	ctx := filter.WithTenants(c.Context(), a.program().Tenancy(r.Config))
	return do(ctx, &session{output: &a.output, Store: opened, jobs: jobs, a: a, cmd: c, loaded: r})
}

// again is the start of a command to copy.
func (s *session) again() string { return s.a.again() }

// lookup explains the error of a name that was not found; see is the verb that lists names.
func (s *session) lookup(err error, see string) error {
	return lookup(err, s.again()+" "+see, s.cmd)
}

// did notes a change of n things for "resqued events".
func (s *session) did(kind store.EventKind, subject, text string, n int) {
	s.a.did(kind, subject, text, n)
}

// list prints the list that read returns. If there are several stores, none is named and
// everything is requested, it has the rows of all. A store that fails does not stop the others: a
// warning names it, and its error sets the exit code.
func (a *cli) list(c *cobra.Command, everything bool, read func(ctx context.Context, s *session) (*listing, error)) error {
	r, err := a.load(c)
	several, ok := errors.AsType[*severalStores](err)
	if ok && everything && a.flags.output != outName { // names are for verbs that work on one store
		r, err = several.loaded, nil
	}
	if err != nil {
		return err
	}
	all, failed := &listing{}, error(nil)
	for _, one := range each(r) {
		if a.loaded = one; len(r.Stores) > 0 {
			a.listed = one.Store
		}
		err := a.inStore(c, one, func(ctx context.Context, s *session) error {
			l, err := read(ctx, s)
			if err == nil && len(r.Stores) > 0 {
				all.merge(one.Store, l)
			} else if err == nil {
				all = l
			}
			return err
		})
		a.listed = ""
		if err != nil && len(r.Stores) == 0 {
			return err
		}
		if err != nil {
			p := a.explained(asProblem(err))
			a.warn("store %s: %s", one.Store, strings.Join(p.lines, "; "))
			all.partial, failed = true, exitCode(p.exit)
		}
	}
	if err := a.print(all); err != nil {
		return err
	}
	return failed
}

// checkFormat returns an error if a verb would change data that this version cannot read. A verb
// that only reads gets a warning that its result may be incomplete, one that only adds gets none.
func (out *output) checkFormat(c *cobra.Command, s *store.Store) error {
	unread, ok := errors.AsType[*rdb.FormatError](s.CheckFormat(c.Context()))
	if !ok {
		return nil // the verb itself will meet other errors
	}
	switch {
	case is(c, edits):
		return &problem{exit: exitFailed, code: "format", cause: unread, lines: []string{"nothing was changed: " + unread.Error()}}
	case is(c, adds):
		return nil // a newer version reads what it writes
	}
	out.warn("not all may be shown: %s", unread.Error())
	return nil
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// orderPoll is the polling interval for the answer to an order, and its effect.
const orderPoll = 100 * time.Millisecond

// orderView is the result of an order.
type orderView struct {
	Worker string `json:"worker"`
	// Process is the target worker process; empty = all of the master.
	Process string `json:"process,omitempty"`
	Order   string `json:"order"`
	// Outcome is done, refused, gone (it has left), old (its version takes no orders) or
	// no_answer.
	Outcome string `json:"outcome"`
	// Answer is the master's answer.
	Answer string `json:"answer"`
	// Reached: the effect was awaited and has come.
	Reached bool `json:"reached,omitempty"`
	// Idle: it is paused, and none of its jobs runs any more.
	Idle   bool `json:"idle,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`

	target view.Ordered
	id     string
}

type orderOptions struct {
	consent
	verb store.Verb
	// idle waits until the paused masters have no job.
	all, wait, idle bool
}

var orderTexts = map[store.Verb][2]string{
	store.OrderPause: {"stop masters from taking jobs, as signal USR2", `Stop masters from taking jobs until "workers resume", as signal USR2 does;
running jobs continue. Pauses of queues ("queues pause") are independent.
--wait waits until they are paused.`},
	store.OrderResume: {"let paused masters work again, as signal CONT", `Let paused masters work again, as signal CONT does. Paused queues ("queues
resume") stay paused. --wait waits until they run.`},
	store.OrderDrain: {"let masters finish their jobs and leave, as signal QUIT", `Let masters finish their running jobs and leave, as signal QUIT does. For a
named worker process the successor starts first, as with recycle. --wait waits
until they have left. On a terminal it asks first; elsewhere it needs --yes.

A service manager that restarts ended services, such as systemd with
Restart=always, starts a drained daemon again at once. To keep a machine from
working, use "workers pause", or stop the service there.`},
	store.OrderRecycle: {"replace worker processes", `Replace all worker processes of masters, or those named. Successors start
first, with the configuration in use, which is not read again; the old ones
finish their jobs, at most max_retiring of them at a time beyond the full
number. --wait waits until no old one takes jobs.`},
}

func (a *cli) orderCommand(order store.Verb) *cobra.Command {
	o := orderOptions{verb: order}
	name := string(order)
	return a.command(verb{
		use: name + " HOST|MASTER|PROCESS…", kind: edits, short: orderTexts[order][0],
		long: orderTexts[order][1] + `

HOST means all its masters, MASTER is host:pid as "workers" lists it. The order
waits in Redis until the master reads it, a few seconds later, and is dropped
after a minute. Any user who can write to this Redis can give it. Ruby workers
and older versions of resqued need a signal on their machine instead.`,
		example: "workers " + name + " web-1\nworkers " + name + " web-1:4242 --wait",
		args:    a.someOrAll(&o.all, "which master?", "masters", "Name a host or a master", "workers"),
		names:   masterNames,
		flags: func(f *flagSet) {
			f.BoolVar(&o.all, "all", false, "all live masters")
			f.BoolVar(&o.wait, "wait", false, "wait until it is done, without limit")
			f.BoolVar(&o.dryRun, "dry-run", false, "only show what would change")
			if order == store.OrderDrain {
				f.BoolVar(&o.yes, "yes", false, "do not ask")
			}
		},
		run: func(ctx context.Context, s *session, args []string) error { return giveOrder(ctx, s, args, o) },
	})
}

// maintainCommand makes "workers maintain".
func (a *cli) maintainCommand() *cobra.Command {
	o := orderOptions{verb: store.OrderPause, wait: true, idle: true}
	return a.command(verb{
		use: "maintain HOST|MASTER…", kind: edits, short: "pause masters, and wait until none of their jobs runs",
		long: `Pause masters as "workers pause" does, and wait until none of their jobs runs
any more: then the machine can be worked on. They stay paused until "workers
resume", also if the wait is interrupted; one that is started again is not
paused. To end jobs that take too long, see "jobs --worker" and "jobs kill".`,
		example: "workers maintain web-1\nworkers resume web-1",
		args:    a.someOrAll(&o.all, "which machine?", "masters", "Name a host or a master", "workers"),
		names:   masterNames,
		flags: func(f *flagSet) {
			f.BoolVar(&o.all, "all", false, "all live masters")
			f.BoolVar(&o.dryRun, "dry-run", false, "only show what would change")
		},
		run: func(ctx context.Context, s *session, args []string) error { return giveOrder(ctx, s, args, o) },
	})
}

func masterNames(ctx context.Context, s *store.Store) ([]string, error) {
	masters, err := view.Masters(ctx, s)
	var names []string
	for _, m := range masters {
		names = append(names, m.Host, m.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func giveOrder(ctx context.Context, s *session, names []string, o orderOptions) error {
	masters, err := view.Masters(ctx, s.Store)
	if err != nil {
		return err
	}
	var targets []view.Ordered
	if o.all {
		for _, m := range masters {
			targets = append(targets, view.Ordered{Master: m})
		}
	} else if targets, err = view.FindOrdered(ctx, s.Store, masters, names); err != nil {
		if foreign, ok := errors.AsType[*view.NotOursError](err); ok {
			return failure("foreign", "Send its process a signal on its machine: USR2 pauses, CONT resumes, QUIT drains.", "%s", foreign)
		}
		return s.lookup(err, "workers")
	}
	views := make([]*orderView, len(targets))
	for i, t := range targets {
		views[i] = &orderView{Worker: t.Name, Process: t.Proc, Order: string(o.verb), target: t, DryRun: o.dryRun}
	}
	if o.dryRun || len(views) == 0 {
		return s.tellOrders(views)
	}
	if err := s.a.confirm(o.yes || o.verb != store.OrderDrain, "drain "+plural(len(views), "daemon")+": "+orderNames(views)); err != nil {
		return err
	}
	for _, v := range views {
		if v.id, v.Outcome, err = s.RequestOrder(ctx, v.target.ID, o.verb, v.target.Proc); err != nil {
			return err
		}
		if v.Outcome == store.OrderAsked {
			s.did(store.EventOrdered, cmp.Or(v.Process, v.Worker), string(o.verb), 1)
		}
	}
	if err := awaitAnswers(ctx, s, views); err != nil {
		return err
	}
	if o.wait {
		err = awaitEffect(ctx, s, views, o.verb)
	}
	if o.idle && err == nil {
		err = awaitIdle(ctx, s, views)
	}
	return cmp.Or(err, s.tellOrders(views))
}

func orderNames(views []*orderView) string {
	names := make([]string, len(views))
	for i, v := range views {
		if names[i] = v.Worker; v.Process != "" {
			names[i] = v.Process
		}
	}
	return wire.Printable(strings.Join(names, ", "), 300)
}

// awaitAnswers waits until each order is answered, its master has gone, or it is too old.
func awaitAnswers(ctx context.Context, s *session, views []*orderView) error {
	end := time.Now().Add(store.OrderPatience + 5*time.Second)
	for {
		waiting := 0
		for _, v := range views {
			if v.Outcome != store.OrderAsked {
				continue
			}
			answer, there, err := s.OrderAnswered(ctx, v.target.ID, v.id)
			switch {
			case err != nil:
				return err
			case answer != nil:
				v.Answer = answer.Text
				if v.Outcome = "refused"; answer.Done {
					v.Outcome = "done"
				}
			case !there:
				v.Outcome = store.OrderGone
			case time.Now().After(end):
				v.Outcome = "no_answer"
			default:
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		if err := nap(ctx, orderPoll); err != nil {
			return err
		}
	}
}

// awaitEffect waits until the effect of orders is visible.
func awaitEffect(ctx context.Context, s *session, views []*orderView, verb store.Verb) error {
	for {
		masters, err := view.Masters(ctx, s.Store)
		if err != nil {
			return err
		}
		waiting := 0
		for _, v := range views {
			if v.Outcome == "done" && !v.Reached {
				if v.Reached = reached(masters, v, verb); !v.Reached {
					waiting++
				}
			}
		}
		if waiting == 0 {
			return nil
		}
		if err := nap(ctx, 2*orderPoll); err != nil {
			return err
		}
	}
}

// awaitIdle waits until no job of paused masters runs, and says for how many it waits.
func awaitIdle(ctx context.Context, s *session, views []*orderView) error {
	for said := -1; ; {
		jobs, err := view.Jobs(ctx, s)
		if err != nil {
			return err
		}
		left := 0
		for _, v := range views {
			if v.Outcome != "done" || !v.Reached {
				continue
			}
			n := 0
			for _, j := range jobs { // also of processes that leave, or run a suspect
				if strings.HasPrefix(j.Run.Proc, v.target.ID+":") {
					n++
				}
			}
			v.Idle = n == 0
			left += n
		}
		if left == 0 {
			return nil
		}
		if left != said {
			s.note("waiting for %s", plural(left, "running job"))
			said = left
		}
		if err := nap(ctx, 2*orderPoll); err != nil {
			return err
		}
	}
}

// reached reports whether an order has its effect, as it has if the master has left.
func reached(masters []*view.Master, v *orderView, verb store.Verb) bool {
	i := slices.IndexFunc(masters, func(m *view.Master) bool { return m.ID == v.target.ID })
	switch {
	case i < 0:
		return true
	case verb == store.OrderPause:
		return masters[i].State == "paused"
	case verb == store.OrderResume:
		return masters[i].State == "running"
	case verb == store.OrderDrain && v.Process == "":
		return false
	}
	before := v.target.Procs
	if v.Process != "" {
		before = []string{v.Process}
	}
	return !slices.ContainsFunc(before, func(p string) bool { return slices.Contains(masters[i].Procs, p) })
}

func nap(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *session) tellOrders(views []*orderView) error {
	l := &listing{}
	refused := &problem{exit: exitFailed, code: "order"}
	for _, v := range views {
		name, answer := orderNames([]*orderView{v}), wire.Printable(v.Answer, 300)
		text, refusal := "", ""
		switch {
		case v.DryRun:
			text = "would " + v.Order + " " + name
		case v.Outcome == "done" && v.Idle:
			text = name + ": paused, and none of its jobs runs; then: " + s.again() + " workers resume " + name
		case v.Outcome == "done" && v.Reached:
			text = name + ": " + answer + "; that is so now"
		case v.Outcome == "done":
			text = name + ": " + answer
		case v.Outcome == store.OrderGone && v.Order == string(store.OrderDrain):
			text = name + ": it is gone"
		case v.Outcome == store.OrderGone:
			refusal = ": it is gone"
		case v.Outcome == store.OrderOld:
			refusal = ": its version of resqued does not take orders; send it a signal on its machine (USR2, CONT, QUIT)"
		case v.Outcome == "refused":
			refusal = ": refused: " + answer
		default:
			refusal = ": no answer; it is dead, or cut off from Redis. The order is dropped"
		}
		l.add(v.Worker, v)
		if refusal != "" {
			refused.lines = append(refused.lines, name+refusal)
			continue
		}
		l.lines.WriteString(text + "\n")
	}
	if len(views) == 0 && s.forPeople() {
		s.note("no master lives")
	}
	if err := s.tell(l); err != nil || len(refused.lines) == 0 {
		return err
	}
	return refused
}

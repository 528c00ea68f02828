package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) workersCommand() *cobra.Command {
	show := a.command(verb{
		use: "show [WORKER…]", kind: shows, short: "show processes, threads and running jobs",
		args: cobra.ArbitraryArgs, names: workerNames, run: showWorkers,
	})
	return a.lists(verb{
		use: "workers [WORKER…]", kind: shows, short: "list masters and other workers, or show what they do",
		long: `List the masters of resqued, host:pid, and other workers, or show what they do.
A name may be cut short: web-1 is all workers of that host. STATE is that of
the master (starting, running, paused, draining, killing), idle or busy for
other workers, or

  stale    its lease in Redis is over: it is dead, or cut off from Redis
  ghost    it is registered, but has no process of resqued
  broken   its entry in Redis is not a hash: only its processes are known

RECYCLE is how soon the next worker process is replaced, BEAT the age of the
last sign of life of a worker process; RSS and job counts are as old. CONFIG is
a digest of the configuration without secrets. DIFFERS says how a master
differs from most: version, config, or a setting that all daemons must share.`,
		example: "workers\nworkers show web-1",
		args:    cobra.ArbitraryArgs, names: workerNames,
		list: func(ctx context.Context, s *session, names []string) (*listing, error) {
			views, err := readWorkers(ctx, s, names)
			if err != nil {
				return nil, err
			}
			return s.listWorkers(views, false), nil
		},
	}, "list workers (default)", show, a.processesCommand(),
		a.orderCommand(store.OrderPause), a.maintainCommand(), a.orderCommand(store.OrderResume), a.orderCommand(store.OrderDrain), a.orderCommand(store.OrderRecycle))
}

// processesCommand makes "workers processes".
func (a *cli) processesCommand() *cobra.Command {
	return a.command(verb{
		use: "processes [WORKER…]", kind: shows, short: "list worker processes by memory",
		long: `List worker processes, those first that use most memory with their runners. A
process that leaks has more memory the more jobs it has DONE; it is replaced
after jobs_per_fork or max_rss. RUNNERS is the memory of its runners; processes
that are forked count what they share each.`,
		example: "workers processes\nworkers processes web-1 --watch",
		args:    cobra.ArbitraryArgs, names: workerNames,
		run: func(ctx context.Context, s *session, names []string) error {
			views, err := readWorkers(ctx, s, names)
			if err != nil {
				return err
			}
			type process struct {
				Worker     string `json:"worker"`
				RunnersRSS int64  `json:"runners_rss"`
				view.Process
			}
			var list []process
			for _, v := range views {
				for _, p := range v.Processes {
					one := process{Worker: v.Worker, Process: p}
					for _, r := range p.Runners {
						one.RunnersRSS += r.RSS
					}
					list = append(list, one)
				}
			}
			slices.SortStableFunc(list, func(a, b process) int { return cmp.Compare(b.RSS+b.RunnersRSS, a.RSS+a.RunnersRSS) })
			l := newListing("WORKER, >PID, >SLOT, STATE, >RSS, >RUNNERS, >DONE, >OF, >BUSY, +PROCESS")
			for i := range list {
				p := &list[i]
				runners, limit := "", ""
				if p.RunnersRSS > 0 {
					runners = view.Size(p.RunnersRSS)
				}
				if p.Limit > 0 {
					limit = strconv.Itoa(p.Limit)
				}
				l.add(p.Proc, p, p.Worker, strconv.Itoa(p.PID), strconv.Itoa(p.Slot), p.State, view.Size(p.RSS), runners, strconv.Itoa(p.Done), limit,
					fmt.Sprintf("%d/%d", p.Busy, p.Threads), p.Proc)
			}
			return s.printOr(l, "no worker process of resqued")
		},
	})
}

func workerNames(ctx context.Context, s *store.Store) ([]string, error) {
	views, err := view.Workers(ctx, s)
	names := make([]string, len(views))
	for i, v := range views {
		names[i] = v.Worker
	}
	return names, err
}

func readWorkers(ctx context.Context, s *session, names []string) ([]*view.Worker, error) {
	views, err := view.Workers(ctx, s)
	view.MarkSettings(views, app.SettingsDiffer)
	if err == nil && len(names) > 0 {
		views, err = view.FindWorkers(views, names)
	}
	if err != nil {
		return nil, s.lookup(err, "workers")
	}
	noteParked(ctx, s)
	return views, nil
}

// showWorkers prints workers with their processes and jobs.
func showWorkers(ctx context.Context, s *session, names []string) error {
	views, err := readWorkers(ctx, s, names)
	if err != nil {
		return err
	}
	l := s.listWorkers(views, true)
	if !s.forPeople() {
		return s.print(l)
	}
	var b strings.Builder
	for _, v := range views {
		s.writeTree(&b, v)
	}
	return s.printText(b.String())
}

// listWorkers lists workers; jobs adds their jobs to the JSON.
func (out *output) listWorkers(views []*view.Worker, jobs bool) *listing {
	now := time.Now()
	l := newListing("WORKER, STATE, >PROCS, >BUSY, >RSS, >RECYCLE, >BEAT, VERSION, =CONFIG, =DIFFERS, QUEUES, +HOST").
		paints("STATE", workerColours).paints("DIFFERS", differsColours)
	for _, v := range views {
		v.Store = out.listed
		if !jobs {
			for i := range v.Processes {
				v.Processes[i].Jobs = nil
			}
			v.Job = nil
		}
		if v.Problem != "" {
			out.note("%s: its entry in Redis is not a hash: %s", v.Worker, wire.Printable(v.Problem, 500))
		}
		for _, p := range v.Processes {
			if p.Problem != "" {
				out.note("%s: what process %d does cannot be read: %s", v.Worker, p.PID, wire.Printable(p.Problem, 500))
			}
		}
		l.add(v.Worker, v, v.Worker, v.State, processes(v), fmt.Sprintf("%d/%d", v.Busy, v.Threads), memory(v),
			recycle(v), view.Since(v.Beat, now), v.Version, v.Config, strings.Join(v.Differs, ", "), v.Queues, v.Host)
	}
	if len(views) == 0 && out.forPeople() {
		out.note("no workers")
	}
	return l
}

// writeTree prints a worker with its processes and their jobs.
func (out *output) writeTree(b *strings.Builder, v *view.Worker) {
	fmt.Fprintf(b, "%s  %s  %d/%d busy  %s", wire.Printable(v.Worker, 0), out.paint(workerColours.of(v.State), v.State),
		v.Busy, v.Threads, wire.Printable(v.Queues, 0))
	if v.Version != "" {
		fmt.Fprintf(b, "  version %s", wire.Printable(v.Version, 100))
	}
	if v.Config != "" {
		fmt.Fprintf(b, "  config %s", wire.Printable(v.Config, 100))
	}
	if len(v.Differs) > 0 {
		b.WriteString("  " + out.paint(yellow, "differs: "+wire.Printable(strings.Join(v.Differing(), ", "), 0)))
	}
	b.WriteByte('\n')
	if v.Job != nil {
		fmt.Fprintf(b, "   %s  %s\n", jobText(v.Job.Class, string(v.Job.Args)), view.Age(time.Duration(v.Job.RunningS)*time.Second))
	}
	for _, t := range v.Templates {
		out.writeTemplate(b, t)
	}
	for _, p := range v.Processes {
		done := strconv.Itoa(p.Done)
		if p.Limit > 0 {
			done += "/" + strconv.Itoa(p.Limit)
		}
		recycle := ""
		if p.RecycleIn != nil {
			recycle = ", recycles in " + plural(*p.RecycleIn, "job")
		}
		slot := "#" + strconv.Itoa(p.Slot)
		if p.Alone {
			slot = "suspect"
		}
		seen := ""
		if old := time.Duration(p.BeatS) * time.Second; old > store.DefaultBeatEvery+time.Second {
			seen = ", as of " + view.Age(old) + " ago"
		}
		fmt.Fprintf(b, "%s %d  %s  %s  %s done%s%s  %d/%d busy\n", slot, p.PID,
			out.paint(workerColours.of(p.State), wire.Printable(p.State, 40)), view.Size(p.RSS), done, recycle, seen, p.Busy, p.Threads)
		if p.Unread {
			fmt.Fprintf(b, "   version %s writes in another format: what it has in hand cannot be read\n", wire.Printable(p.Version, 100))
		}
		for _, r := range p.Runners {
			out.writeRunner(b, r)
		}
		for _, j := range p.Jobs {
			fmt.Fprintf(b, "   t%d %s  %s  %s", j.Thread, jobText(j.Class, string(j.Args)),
				view.Age(time.Duration(j.RunningS)*time.Second), wire.Printable(j.Queue, 100))
			if strings.HasPrefix(j.OnDeath, "fails") {
				b.WriteString("  if the process dies, " + j.OnDeath)
			}
			b.WriteByte('\n')
		}
		if text := p.IfItDies(); text != "" {
			b.WriteString("   if it dies: " + text + "\n")
		}
	}
}

// writeTemplate prints a template of runners below its master.
func (out *output) writeTemplate(b *strings.Builder, t store.TemplateInfo) {
	fmt.Fprintf(b, "template %s  %s", wire.Printable(t.Runner, 100), out.paint(runnerColours.of(t.State), wire.Printable(t.State, 40)))
	if t.PID > 0 {
		fmt.Fprintf(b, "  %d", t.PID)
	}
	if t.Restarts > 0 {
		fmt.Fprintf(b, "  %s", plural(t.Restarts, "restart"))
	}
	writeWhy(b, t.Why)
}

// writeRunner prints a runner below its worker process.
func (out *output) writeRunner(b *strings.Builder, r store.RunnerInfo) {
	state := r.State
	if r.Slots > 1 {
		state = fmt.Sprintf("%s %d/%d", r.State, r.Busy, r.Slots)
	}
	fmt.Fprintf(b, "   runner %s  %d  %s", wire.Printable(r.Runner, 100), r.PID, out.paint(runnerColours.of(r.State), wire.Printable(state, 40)))
	if r.RSS > 0 {
		b.WriteString("  " + view.Size(r.RSS))
		if r.Forked {
			b.WriteString(" (shared in part)")
		}
	}
	fmt.Fprintf(b, "  %s", plural(r.Jobs, "job"))
	writeWhy(b, r.Why)
}

// writeWhy ends a line, with the reason for a state if there is one.
func writeWhy(b *strings.Builder, why string) {
	if why, _, _ = strings.Cut(why, "\n"); why != "" {
		b.WriteString("  " + wire.Printable(why, 300))
	}
	b.WriteByte('\n')
}

var runnerColours = colours{"ready": green, store.RunnerBusy: green, store.RunnerFailed: red, store.RunnerIdle: "", other: yellow}

// memory formats the memory of a worker's processes, "" if unknown.
func memory(v *view.Worker) string {
	if rss := v.RSS(); rss > 0 {
		return view.Size(rss)
	}
	return ""
}

// recycle formats after how many jobs the next process is replaced, "" for never.
func recycle(v *view.Worker) string {
	if least := v.RecycleIn(); least != nil {
		return plural(*least, "job")
	}
	return ""
}

func processes(v *view.Worker) string {
	if v.Kind == view.KindForeign {
		return ""
	}
	return strconv.Itoa(len(v.Processes))
}

var differsColours = colours{"—": "", other: yellow}

var workerColours = colours{
	"running": green, view.WorkerBusy: green, view.WorkerStale: red, view.WorkerGhost: red, view.WorkerBroken: red,
	"": "", view.WorkerIdle: "", other: yellow,
}

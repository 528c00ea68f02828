package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Kinds of workers.
const (
	kindResqued = "resqued"
	kindForeign = "foreign" // Ruby's Resque, its fork, node-resque
)

// States that no process gives itself.
const (
	stateIdle  = "idle"
	stateBusy  = "busy"
	stateStale = "stale" // its lease is past: dead, or cut off from Redis
	stateGhost = "ghost" // registered, but no process stands behind it
)

// workerView is a master of resqued with its processes, or one foreign worker.
type workerView struct {
	// Worker names it: host:pid of a master, the whole id of a foreign worker.
	Worker  string `json:"worker"`
	Kind    string `json:"kind"`
	State   string `json:"state"`
	Busy    int    `json:"busy"`
	Threads int    `json:"threads"`
	Queues  string `json:"queues"`
	// Processes are those of a master of resqued.
	Processes []processView `json:"processes"`
	// Job is what a foreign worker says it works on.
	Job *runningView `json:"job,omitempty"`

	beat time.Time
}

type processView struct {
	Proc string `json:"proc"`
	PID  int    `json:"pid"`
	Slot int    `json:"slot"`
	// Alone: the process is there for one suspect, beside the slots.
	Alone   bool   `json:"alone,omitempty"`
	State   string `json:"state"`
	Busy    int    `json:"busy"`
	Threads int    `json:"threads"`
	RSS     int64  `json:"rss"`
	Done    int    `json:"done"`
	Limit   int    `json:"limit"`
	// RecycleIn is how many jobs it takes until it is replaced; null = any number.
	RecycleIn *int          `json:"recycle_in"`
	Version   string        `json:"version"`
	Jobs      []runningView `json:"jobs,omitempty"`
}

type runningView struct {
	// ID is what "jobs" takes; empty of a foreign worker's job without one.
	ID     string          `json:"id,omitempty"`
	Class  string          `json:"class"`
	Args   json.RawMessage `json:"args"`
	Queue  string          `json:"queue"`
	Thread int             `json:"thread"`
	// RunningS is how long it has been running, in seconds.
	RunningS int64 `json:"running_s"`
}

func (a *cli) workersCommand() *cobra.Command {
	run := func(show bool) func(c *cobra.Command, args []string) error {
		return func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				views, err := a.workers(ctx, c, s, args)
				if err != nil {
					return err
				}
				a.noteParked(ctx, s)
				return a.printWorkers(views, show)
			})
		}
	}
	complete := a.live(func(ctx context.Context, s *store.Store) ([]string, error) {
		views, err := allWorkers(ctx, s)
		names := make([]string, len(views))
		for i, v := range views {
			names[i] = v.Worker
		}
		return names, err
	})
	parent := &cobra.Command{
		Use: "workers [WORKER…]", Short: "list masters and other workers, or show what they do",
		Long: `List the masters of resqued, host:pid, and the workers of others, or show what
they do. A name may be cut short: web-1 is all workers of that host. STATE is that
of the master (starting, running, paused, draining, killing), idle or busy of other
workers, or

  stale    its lease in Redis is past: it is dead, or cut off from Redis
  ghost    it is registered, but no process of resqued stands behind it

RECYCLE is how soon the next worker process is replaced, BEAT how long ago a worker
process was last heard of.`,
		Example: "  " + a.name + " workers\n  " + a.name + " workers show web-1",
		Args:    cobra.ArbitraryArgs, RunE: run(false), ValidArgsFunction: complete,
	}
	parent.AddCommand(
		&cobra.Command{
			Use: "ls [WORKER…]", Short: "list workers (what the bare noun does)",
			Args: cobra.ArbitraryArgs, RunE: run(false), ValidArgsFunction: complete,
		},
		&cobra.Command{
			Use: "show [WORKER…]", Short: "show processes, threads and running jobs",
			Args: cobra.ArbitraryArgs, RunE: run(true), ValidArgsFunction: complete,
		})
	return parent
}

// workers returns the workers whose names begin with one of names, or all.
func (a *cli) workers(ctx context.Context, c *cobra.Command, s *store.Store, names []string) ([]*workerView, error) {
	views, err := allWorkers(ctx, s)
	if err != nil || len(names) == 0 {
		return views, err
	}
	known := []string{}
	for _, v := range views {
		known = append(known, v.Worker)
	}
	var picked []*workerView
	for _, name := range names {
		found := false
		for _, v := range views {
			if strings.HasPrefix(v.Worker, name) {
				found = true
				if !slices.Contains(picked, v) {
					picked = append(picked, v)
				}
			}
		}
		if !found {
			for _, sub := range c.Commands() {
				known = append(known, sub.Name())
			}
			return nil, notFound("worker", name, known, a.name+" workers")
		}
	}
	return picked, nil
}

func allWorkers(ctx context.Context, s *store.Store) ([]*workerView, error) {
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	masters, err := s.MasterList(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := s.WorkerList(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	views := map[string]*workerView{}
	pids := map[string]bool{}
	view := func(master string) *workerView {
		if views[master] == nil {
			views[master] = &workerView{Worker: masterName(master), Kind: kindResqued, Processes: []processView{}}
		}
		return views[master]
	}
	for id, fields := range masters {
		v := view(id)
		v.State, v.Queues = fields["state"], fields["queues"]
		v.Threads = threadsOf(fields)
	}
	for _, p := range procs {
		pv := viewProcess(p, now)
		pids[p.Fields["host"]+":"+p.Fields["pid"]] = true
		v := view(masterOf(p.Proc))
		v.Processes = append(v.Processes, pv)
		v.Busy += pv.Busy
		if masters[masterOf(p.Proc)] == nil {
			// Its master is gone: what is left of it drains, or waits for its recovery.
			v.State, v.Queues = pv.State, p.Fields["queues"]
			v.Threads += pv.Threads
		}
		// A lease ends one lease after the beat that set it.
		if beat := time.UnixMilli(p.LeaseMS).Add(-leaseOf(masters[masterOf(p.Proc)])); beat.After(v.beat) {
			v.beat = beat
		}
	}
	list := make([]*workerView, 0, len(views))
	for _, v := range views {
		slices.SortFunc(v.Processes, func(a, b processView) int { return a.Slot - b.Slot })
		list = append(list, v)
	}
	list = append(list, strangers(ids, pids, now)...)
	slices.SortStableFunc(list, func(a, b *workerView) int {
		return strings.Compare(b.Kind+"\x00"+a.Worker, a.Kind+"\x00"+b.Worker)
	})
	return list, nil
}

// strangers are the registered workers that are no threads of a living process
// of resqued.
func strangers(ids []store.WorkerInfo, pids map[string]bool, now time.Time) []*workerView {
	var list []*workerView
	for _, w := range ids {
		name, err := wire.ParseWorkerID(w.ID)
		if err == nil && name.Ours && pids[name.Host+":"+strconv.Itoa(name.PID)] {
			continue
		}
		v := &workerView{Worker: w.ID, Kind: kindForeign, State: stateIdle, Threads: 1, Processes: []processView{}}
		if err == nil {
			v.Queues = strings.Join(name.Queues, ",")
			v.Threads = max(1, name.Processes*name.Threads)
		}
		if w.Working != "" {
			v.State, v.Busy, v.Job = stateBusy, 1, foreignJob(w.Working, now)
		}
		if err == nil && name.Ours {
			v.Kind, v.State = kindResqued, stateGhost
		}
		list = append(list, v)
	}
	return list
}

func viewProcess(p store.ProcInfo, now time.Time) processView {
	number := func(field string) int {
		n, _ := strconv.Atoi(p.Fields[field])
		return n
	}
	rss, _ := strconv.ParseInt(p.Fields["rss"], 10, 64)
	v := processView{
		Proc: p.Proc, PID: number("pid"), Slot: number("slot"), State: p.Fields["state"], Busy: len(p.Running),
		Threads: number("threads"), RSS: rss, Done: number("done"), Limit: number("quota"), Version: p.Fields["version"],
	}
	if p.LeaseMS < now.UnixMilli() {
		v.State = stateStale
	}
	if p.Fields[store.InfoAlone] != "" {
		v.Alone, v.Limit = true, 0
	}
	if v.Limit > 0 {
		left := max(0, v.Limit-v.Done)
		v.RecycleIn = &left
	}
	for _, job := range p.Running {
		r := runningView{Queue: job.Queue, Args: json.RawMessage("null"), RunningS: int64(max(0, now.Sub(job.StartedAt)).Seconds())}
		if e, err := wire.Parse(job.Payload, 0); err == nil {
			r.ID, r.Class, r.Args = e.ID, e.Class, json.RawMessage(e.Args.String())
		}
		if r.ID == "" {
			r.ID = store.RunName{Proc: p.Proc, Token: job.Token}.String()
		}
		if name, err := wire.ParseWorkerID(job.Worker); err == nil {
			r.Thread = name.Thread
		}
		v.Jobs = append(v.Jobs, r)
	}
	return v
}

func foreignJob(working string, now time.Time) *runningView {
	var w struct {
		Queue   string          `json:"queue"`
		RunAt   string          `json:"run_at"`
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal([]byte(working), &w) != nil {
		return nil
	}
	r := &runningView{Queue: w.Queue, Args: json.RawMessage("null")}
	if e, err := wire.Parse(w.Payload, 0); err == nil {
		r.Class, r.Args = e.Class, json.RawMessage(e.Args.String())
	}
	if t, err := time.Parse(time.RFC3339, w.RunAt); err == nil {
		r.RunningS = int64(max(0, now.Sub(t)).Seconds())
	}
	return r
}

func (a *cli) printWorkers(views []*workerView, show bool) error {
	now := time.Now()
	l := &listing{columns: []column{
		{title: "WORKER"},
		{title: "STATE", colour: workerColour},
		{title: "PROCS", right: true},
		{title: "BUSY", right: true},
		{title: "RSS", right: true},
		{title: "RECYCLE", right: true},
		{title: "BEAT", right: true},
		{title: "QUEUES"},
	}}
	var b strings.Builder
	for _, v := range views {
		if !show {
			for i := range v.Processes {
				v.Processes[i].Jobs = nil
			}
			v.Job = nil
		}
		l.add(v.Worker, v, v.Worker, v.State, processes(v), fmt.Sprintf("%d/%d", v.Busy, v.Threads), v.memory(),
			v.recycle(), since(v.beat, now), v.Queues)
		if show {
			a.writeTree(&b, v)
		}
	}
	if len(views) == 0 && a.flags.output != outJSON && a.flags.output != outName {
		a.note("no workers")
	}
	if show && (a.flags.output == outTable || a.flags.output == outWide) {
		return a.printText(b.String())
	}
	return a.print(l)
}

// writeTree shows one worker with its processes and their jobs.
func (a *cli) writeTree(b *strings.Builder, v *workerView) {
	fmt.Fprintf(b, "%s  %s  %d/%d busy  %s\n", wire.Printable(v.Worker, 0), a.paint(workerColour(v.State), v.State),
		v.Busy, v.Threads, wire.Printable(v.Queues, 0))
	if v.Job != nil {
		fmt.Fprintf(b, "   %s  %s\n", jobText(v.Job.Class, string(v.Job.Args)), age(time.Duration(v.Job.RunningS)*time.Second))
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
		fmt.Fprintf(b, "%s %d  %s  %s  %s done%s  %d/%d busy\n", slot, p.PID,
			a.paint(workerColour(p.State), wire.Printable(p.State, 40)), size(p.RSS), done, recycle, p.Busy, p.Threads)
		for _, j := range p.Jobs {
			fmt.Fprintf(b, "   t%d %s  %s  %s\n", j.Thread, jobText(j.Class, string(j.Args)),
				age(time.Duration(j.RunningS)*time.Second), wire.Printable(j.Queue, 100))
		}
	}
}

func (v *workerView) memory() string {
	var total int64
	for _, p := range v.Processes {
		total += p.RSS
	}
	if total == 0 {
		return ""
	}
	return size(total)
}

// recycle is how soon the next process will be replaced.
func (v *workerView) recycle() string {
	least := -1
	for _, p := range v.Processes {
		if p.RecycleIn != nil && (least < 0 || *p.RecycleIn < least) {
			least = *p.RecycleIn
		}
	}
	if least < 0 {
		return ""
	}
	return plural(least, "job")
}

func processes(v *workerView) string {
	if v.Kind == kindForeign {
		return ""
	}
	return strconv.Itoa(len(v.Processes))
}

// threadsOf is how many jobs a master runs at a time.
func threadsOf(fields map[string]string) int {
	slots, _ := strconv.Atoi(fields["slots"])
	threads, _ := strconv.Atoi(fields["threads"])
	return slots * threads
}

// leaseOf is how long the leases last that a master's processes take.
func leaseOf(fields map[string]string) time.Duration {
	if ms, err := strconv.ParseInt(fields["lease_ms"], 10, 64); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	return store.DefaultLease
}

// masterOf is the id of the master that started a process.
func masterOf(process string) string {
	id, err := proc.ParseIdentity(process)
	if err != nil {
		return process
	}
	return id.String()
}

// masterName is how people call a master: host:pid.
func masterName(master string) string {
	id, err := proc.ParseIdentity(master)
	if err != nil {
		return master
	}
	return fmt.Sprintf("%s:%d", id.Host, id.PID)
}

func workerColour(state string) string {
	switch state {
	case "running", stateBusy:
		return green
	case stateStale, stateGhost:
		return red
	case "", stateIdle:
		return ""
	}
	return yellow
}

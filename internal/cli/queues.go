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

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// maxOldest bounds for how many queues the first job is read: one round trip each.
	maxOldest = 500
	// maxShown is how many jobs "queues show" shows of a queue unless told otherwise.
	maxShown = 10
)

// The states of a queue.
const (
	queueRuns    = "run"     // somebody serves it
	queueIdle    = "idle"    // nobody serves it, and it is empty
	queueOrphan  = "orphan"  // nobody serves it, and jobs wait
	queueStarved = "starved" // all of its jobs were locked when last tried
	queuePaused  = "paused"  // somebody wants its jobs to wait
	queueBroken  = "broken"  // its key is no list
)

// queueView is one queue as people see it.
type queueView struct {
	Queue string `json:"queue"`
	State string `json:"state"`
	// Size is null when the key is no list.
	Size *int64 `json:"size"`
	// OldestS is the waiting time of the first job in seconds, if it tells when
	// it was pushed; plain Resque payloads do not.
	OldestS      *int64  `json:"oldest_s"`
	OldestSource *string `json:"oldest_source"`
	Busy         int     `json:"busy"`
	// Cap is the most threads of one master; null = none.
	Cap *int `json:"cap"`
	// Served counts the threads and foreign workers whose queues include it.
	Served int `json:"served"`
	// Suspects counts the jobs that were set apart to run alone; Size does not.
	Suspects int64     `json:"suspects"`
	Jobs     []jobView `json:"jobs,omitempty"`

	oldest time.Time
	broken string
}

// jobView is one waiting job.
type jobView struct {
	Position int64           `json:"position"`
	Class    string          `json:"class"`
	Args     json.RawMessage `json:"args"`
	Invalid  string          `json:"invalid,omitempty"`
}

func (a *cli) queuesCommand() *cobra.Command {
	ls := func(c *cobra.Command, args []string) error {
		return a.withStore(c, func(ctx context.Context, s *store.Store) error {
			return a.listQueues(ctx, c, s, args)
		})
	}
	parent := &cobra.Command{
		Use: "queues [QUEUE…]", Short: "list queues, or show what waits in them",
		Long: `List queues, or show what waits in them. STATE is

  run      somebody serves the queue
  starved  somebody does, but when last tried all of its jobs were locked
  orphan   jobs wait and nobody serves it
  idle     nobody serves it and it is empty
  paused   its jobs wait until "queues resume"
  broken   its key in Redis is no list

OLDEST is known for jobs that say when they were pushed; plain Resque payloads do
not. CAP is the most threads of one daemon that may work on the queue. SUSPECTS (-o
wide) wait beside the queue to run alone, because their worker process has died.`,
		Example: "  " + a.name + " queues\n  " + a.name + " queues show mail --limit 3",
		Args:    cobra.ArbitraryArgs, RunE: ls, ValidArgsFunction: a.live(queueNames),
	}
	parent.AddCommand(&cobra.Command{
		Use: "ls [QUEUE…]", Short: "list queues (what the bare noun does)",
		Args: cobra.ArbitraryArgs, RunE: ls, ValidArgsFunction: a.live(queueNames),
	})
	limit := int64(maxShown)
	show := &cobra.Command{
		Use: "show QUEUE…", Short: "show the first jobs that wait in a queue",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+a.name+" queues", "which queue?")
			}
			return nil
		},
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 {
				return usage("", "--limit %d: use 0 or more", limit)
			}
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				return a.showQueues(ctx, c, s, args, limit)
			})
		},
	}
	show.Flags().Int64Var(&limit, "limit", maxShown, "how many jobs of each queue")
	parent.AddCommand(show, a.pauseQueuesCommand(true), a.pauseQueuesCommand(false), a.removeQueuesCommand(true), a.removeQueuesCommand(false))
	return parent
}

func (a *cli) listQueues(ctx context.Context, c *cobra.Command, s *store.Store, names []string) error {
	views, err := a.queues(ctx, c, s, names)
	if err != nil {
		return err
	}
	now := time.Now()
	l := &listing{columns: []column{
		{title: "QUEUE"},
		{title: "STATE", colour: queueColour},
		{title: "SIZE", right: true},
		{title: "OLDEST", right: true},
		{title: "BUSY", right: true},
		{title: "CAP", right: true},
		{title: "SUSPECTS", right: true, wide: true},
		{title: "SERVED BY", right: true, wide: true},
		{title: "PROBLEM", wide: true},
	}}
	for _, v := range views {
		l.add(v.Queue, v, v.Queue, v.State, optional(v.Size), since(v.oldest, now), strconv.Itoa(v.Busy),
			optional(v.Cap), strconv.FormatInt(v.Suspects, 10), plural(v.Served, "thread"), v.broken)
	}
	if len(views) == 0 && a.flags.output != outJSON && a.flags.output != outName {
		a.note("no queues yet: a queue exists from the first job that is pushed to it")
	}
	return a.print(l)
}

func (a *cli) showQueues(ctx context.Context, c *cobra.Command, s *store.Store, names []string, limit int64) error {
	views, err := a.queues(ctx, c, s, names)
	if err != nil {
		return err
	}
	l := &listing{columns: []column{{title: "QUEUE"}, {title: "#", right: true}, {title: "CLASS"}, {title: "ARGS"}}}
	for _, v := range views {
		payloads, err := s.Payloads(ctx, v.Queue, 0, limit)
		if err != nil && v.broken == "" {
			return err
		}
		l.partial = l.partial || v.Size != nil && int64(len(payloads)) < *v.Size
		v.Jobs = []jobView{}
		for i, p := range payloads {
			job := viewJob(int64(i)+1, p)
			v.Jobs = append(v.Jobs, job)
			class, args := job.Class, string(job.Args)
			if job.Invalid != "" {
				class, args = "(invalid)", job.Invalid
			}
			l.rows = append(l.rows, []string{v.Queue, strconv.FormatInt(job.Position, 10), class, args})
		}
		l.names = append(l.names, v.Queue)
		l.items = append(l.items, v)
	}
	if len(l.rows) == 0 && a.flags.output != outJSON && a.flags.output != outName {
		a.note("no job waits in %s", wire.Printable(strings.Join(names, ", "), 200))
	}
	return a.print(l)
}

func viewJob(position int64, payload []byte) jobView {
	e, err := wire.Parse(payload, 0)
	if err != nil {
		return jobView{Position: position, Args: json.RawMessage("null"), Invalid: err.Error()}
	}
	return jobView{Position: position, Class: e.Class, Args: json.RawMessage(e.Args.String())}
}

// queues returns the named queues, or all.
func (a *cli) queues(ctx context.Context, c *cobra.Command, s *store.Store, names []string) ([]*queueView, error) {
	list, err := s.QueueList(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if list, err = a.pickQueues(c, list, names); err != nil {
			return nil, err
		}
	}
	workers, err := s.WorkerList(ctx)
	if err != nil {
		return nil, err
	}
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	caps := a.caps(ctx, s)
	busy := busyByQueue(workers, procs)
	lists := queueLists(workers)
	views := make([]*queueView, len(list))
	for i, q := range list {
		v := &queueView{Queue: q.Name, Size: &q.Size, Busy: busy[q.Name], Suspects: q.Suspects}
		for _, l := range lists {
			if selector.MatchAny(l.patterns, q.Name) {
				v.Served += l.workers
			}
		}
		if n := caps(q.Name); n > 0 {
			v.Cap = &n
		}
		v.judge(q)
		if i < maxOldest && q.Err == nil && q.Size > 0 {
			v.age(ctx, s)
		}
		views[i] = v
	}
	return views, nil
}

// queueList is a list of queues, and how many workers have it.
type queueList struct {
	patterns []string
	workers  int
}

// queueLists returns the lists of workers, each once: there may be many thousand workers,
// of which nearly all have the same one.
func queueLists(workers []store.WorkerInfo) []*queueList {
	var lists []*queueList
	known := map[string]*queueList{}
	for _, w := range workers {
		name, err := wire.ParseWorkerID(w.ID)
		if err != nil {
			continue
		}
		key := strings.Join(name.Queues, "\x00")
		l := known[key]
		if l == nil {
			l = &queueList{patterns: plainPatterns(name.Queues)}
			known[key], lists = l, append(lists, l)
		}
		l.workers++
	}
	return lists
}

func (v *queueView) judge(q store.QueueInfo) {
	switch {
	case q.Err != nil:
		v.State, v.Size, v.broken = queueBroken, nil, q.Err.Error()
	case q.Paused:
		v.State = queuePaused
	case v.Served == 0 && q.Size+q.Suspects > 0:
		v.State = queueOrphan
	case v.Served == 0:
		v.State = queueIdle
	case q.Size > 0 && q.Bounces >= q.Size:
		v.State = queueStarved
	default:
		v.State = queueRuns
	}
}

// age reads when the first job was pushed. A queue that changes its type
// meanwhile, or a server that is busy, costs this one detail only.
func (v *queueView) age(ctx context.Context, s *store.Store) {
	head, err := s.Payloads(ctx, v.Queue, 0, 1)
	if err != nil || len(head) == 0 {
		return
	}
	e, err := wire.Parse(head[0], 0)
	if err != nil || e.EnqueuedAt.IsZero() {
		return
	}
	v.oldest = e.EnqueuedAt
	waited, source := int64(max(0, time.Since(e.EnqueuedAt)).Seconds()), "exact"
	v.OldestS, v.OldestSource = &waited, &source
}

func (a *cli) pickQueues(c *cobra.Command, list []store.QueueInfo, names []string) ([]store.QueueInfo, error) {
	var picked []store.QueueInfo
	known := make([]string, 0, len(list))
	for _, q := range list {
		known = append(known, q.Name)
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			for _, sub := range c.Commands() {
				known = append(known, sub.Name())
			}
			return nil, notFound("queue", name, known, a.name+" queues")
		}
		picked = append(picked, list[i])
	}
	return picked, nil
}

// caps returns the smallest cap that any living master puts on a queue.
func (a *cli) caps(ctx context.Context, s *store.Store) func(queue string) int {
	var specs []selector.Spec
	masters, err := s.MasterList(ctx)
	if err != nil {
		return func(string) int { return 0 }
	}
	for _, fields := range masters {
		if spec, _, err := selector.Parse(strings.Split(fields["queues"], ","), max(1, threadsOf(fields))); err == nil {
			specs = append(specs, spec)
		}
	}
	return func(queue string) int {
		least := 0
		for _, spec := range specs {
			for _, choice := range spec.Resolve([]string{queue}) {
				if choice.Queue == queue && choice.Cap > 0 && (least == 0 || choice.Cap < least) {
					least = choice.Cap
				}
			}
		}
		return least
	}
}

// busyByQueue counts the jobs in hand: resqued's from its own records, those of
// other workers from what they say of themselves.
func busyByQueue(workers []store.WorkerInfo, procs []store.ProcInfo) map[string]int {
	busy := map[string]int{}
	for _, p := range procs {
		for _, job := range p.Running {
			busy[job.Queue]++
		}
	}
	for _, w := range workers {
		name, err := wire.ParseWorkerID(w.ID)
		if w.Working == "" || err == nil && name.Ours {
			continue
		}
		var working struct {
			Queue string `json:"queue"`
		}
		if json.Unmarshal([]byte(w.Working), &working) == nil && working.Queue != "" {
			busy[working.Queue]++
		}
	}
	return busy
}

// plainPatterns undoes what the Files.com fork does to queues in its ids:
// "mail~8" is the queue mail with a cap.
func plainPatterns(queues []string) []string {
	out := make([]string, len(queues))
	for i, q := range queues {
		name, limit, capped := strings.Cut(q, "~")
		if _, err := strconv.Atoi(strings.TrimSuffix(limit, "%")); capped && err == nil {
			q = name
		}
		out[i] = q
	}
	return out
}

func queueColour(state string) string {
	switch state {
	case queueRuns:
		return green
	case queueStarved, queueOrphan, queuePaused:
		return yellow
	case queueBroken:
		return red
	}
	return ""
}

// optional is a number, or "" for none.
func optional[T int | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

package pages

import (
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// Workers shows who works: hosts, masters, their slots, threads and jobs.
type Workers struct {
	Frame
	// Hosts have the masters of resqued.
	Hosts Widget[[]WorkerHost]
	// Foreign are workers of Ruby's Resque and other programs.
	Foreign []*view.Worker
	// Filter is a part of the names.
	Filter string
	// Processes counts all, Shown those of the page.
	Processes, Threads, Busy int
	Pager                    Pager
	// Alone: the page is about one master, and named after it.
	Alone bool
}

// WorkerHost is a machine with its masters.
type WorkerHost struct {
	Host    string
	Masters []WorkerMaster
}

// WorkerMaster is a master with its processes.
type WorkerMaster struct {
	*view.Worker
	// Orders: it takes orders, such as to pause.
	Orders bool
	Rows   []ProcessRow
	// Suspects are the processes that were started for one job each.
	Suspects []ProcessRow
}

// ProcessRow is a worker process.
type ProcessRow struct {
	view.Process
	// Rate is how many jobs it ends by the second; nil = not known.
	Rate *float64
	// RSSRing is its memory at the last samples.
	RSSRing []float64
	// Why says why it will be replaced, if not for its number of jobs: "memory".
	Why string
	// Last says how one before it in its slot has ended within the last hour, if not by its number of jobs.
	Last string
}

// Recycles says when the process is replaced, as far as that can be foreseen. Its count of jobs
// is that of its last beat, so that what follows is an estimate.
func (r ProcessRow) Recycles() string {
	switch {
	case r.Alone:
		return "runs one suspect, then ends"
	case r.State == "draining" || r.State == "retiring":
		if r.Busy > 0 {
			return "leaving: waits for " + view.Plural(r.Busy, "job")
		}
		return "leaving"
	case r.RecycleIn == nil:
		return "is not recycled"
	}
	n := *r.RecycleIn
	if n <= 0 {
		return "about to be recycled"
	}
	said := "recycles in " + view.Grouped(int64(n)) + " jobs"
	if n == 1 {
		said = "recycles after this job"
	}
	// A rate that decays says nothing of more than a day.
	if r.Rate != nil && float64(n) < *r.Rate*(24*time.Hour).Seconds() {
		said += " (~" + view.Age(time.Duration(float64(n) / *r.Rate * float64(time.Second))) + ")"
	}
	return said
}

// recalled is for how long an end is told beside the processes that came after it.
const recalled = time.Hour

// Recall tells of processes what events say: why they leave, and how one before them has ended.
// Events are the newest ones, the newest first.
func (m *WorkerMaster) Recall(events []Event, now time.Time) {
	for _, rows := range [][]ProcessRow{m.Rows, m.Suspects} {
		for i := range rows {
			rows[i].recall(events, now)
		}
	}
}

func (r *ProcessRow) recall(events []Event, now time.Time) {
	slot, number := slotOf(r.Proc)
	for _, e := range events {
		switch e.Kind {
		case string(store.EventRecycled), string(store.EventDied):
		default:
			continue
		}
		if e.Subject == r.Proc {
			if reason, ok := strings.CutPrefix(e.Said, "for its "); ok && e.Kind == string(store.EventRecycled) {
				r.Why, _, _ = strings.Cut(reason, ",")
			}
			continue
		}
		at, before := slotOf(e.Subject)
		if slot != "" && !r.Alone && r.Last == "" && at == slot && before < number && now.Sub(e.At) < recalled {
			r.Last = view.Age(now.Sub(e.At)) + " ago: " + e.Kind + ", " + strings.TrimPrefix(e.Said, "worker process: ")
		}
	}
}

// slotOf returns the part of a process's id that those have in common which follow each other in a
// slot, and its number, which grows.
func slotOf(proc string) (slot string, number int) {
	i := strings.LastIndexByte(proc, '.')
	if i < 0 {
		return "", 0
	}
	number, err := strconv.Atoi(proc[i+1:])
	if err != nil {
		return "", 0
	}
	return proc[:i], number
}

// Worker is one master or foreign worker.
type Worker struct {
	Frame
	Name   string
	Master Widget[WorkerMaster]
	Events []Event
}

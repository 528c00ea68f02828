package pages

import (
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// Workers shows hosts, masters, their slots, threads and jobs.
type Workers struct {
	Frame
	// Hosts have the masters of resqued.
	Hosts Widget[[]WorkerHost]
	// Foreign are workers of Ruby's Resque and other programs.
	Foreign []*view.Worker
	// Filter is a part of the names.
	Filter string
	// The numbers count all, not only the page's.
	Processes, Threads, Busy int
	Pager                    Pager
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
	// Rate is how many jobs it ends per second; nil = unknown.
	Rate *float64
	// RSSRing is its memory in the last samples.
	RSSRing []float64
	// Why is why it will be replaced, if not for its number of jobs: "memory".
	Why string
	// Last is how its predecessor ended in the last hour, if not by its number of jobs.
	Last string
}

// Recycles estimates when the process is replaced, with the job count of its last heartbeat.
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
	// A decaying rate says nothing about more than a day.
	if r.Rate != nil && float64(n) < *r.Rate*(24*time.Hour).Seconds() {
		said += " (~" + view.Age(time.Duration(float64(n) / *r.Rate * float64(time.Second))) + ")"
	}
	return said
}

// recalled is how long an end is shown with the successor process.
const recalled = time.Hour

// Recall adds why processes leave and how their predecessors ended. events: the newest first.
func (m *WorkerMaster) Recall(events []view.Event, now time.Time) {
	for _, rows := range [][]ProcessRow{m.Rows, m.Suspects} {
		for i := range rows {
			rows[i].recall(events, now)
		}
	}
}

func (r *ProcessRow) recall(events []view.Event, now time.Time) {
	slot, number := slotOf(r.Proc)
	for _, e := range events {
		switch e.Kind {
		case string(store.EventRecycled), string(store.EventDied):
		default:
			continue
		}
		if e.Subject == r.Proc {
			if reason, ok := strings.CutPrefix(e.Text, "for its "); ok && e.Kind == string(store.EventRecycled) {
				r.Why, _, _ = strings.Cut(reason, ",")
			}
			continue
		}
		at, before := slotOf(e.Subject)
		if slot != "" && !r.Alone && r.Last == "" && at == slot && before < number && now.Sub(e.At) < recalled {
			r.Last = view.Age(now.Sub(e.At)) + " ago: " + e.Kind + ", " + strings.TrimPrefix(e.Text, "worker process: ")
		}
	}
}

// slotOf splits a process's id: the part common to a slot's processes, and a growing number.
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

// Worker is the page of a master or a foreign worker.
type Worker struct {
	Frame
	Name   string
	Master Widget[WorkerMaster]
	Events []view.Event
}

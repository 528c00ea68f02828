package pages

import (
	"html/template"
	"strings"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/view"
)

// Overview is the first page: totals, and what needs attention.
type Overview struct {
	Frame
	Stats     Widget[*view.Stats]
	Locks     Widget[int]
	Attention Widget[[]Attention]
	// Chart is of Span, one of Spans.
	Chart       Widget[*Chart]
	Spans       []Link
	Queues      Widget[[]QueueRow]
	MoreQueues  int
	Running     Widget[[]*view.Job]
	MoreRunning int
}

// totals are the totals of Stats on the page, with their names there.
var totals = []struct{ name, said string }{
	{"processed", "processed"},
	{"running", "busy"},
	{"threads", "threads"},
	{"waiting", "waiting"},
	{"failures", "failures"},
	{"delayed", "delayed"},
	{"longjobs", "long jobs"},
}

// Total writes a total, or "—" if it is unknown.
func (p *Overview) Total(name string, n int64) string {
	if !p.Stats.Data.Known(name) {
		return "—"
	}
	return view.Grouped(n)
}

// Unknown says which totals could not be read, grouped by reason.
func (p *Overview) Unknown() (all []*Trouble) {
	said := map[string][]string{}
	var reasons []string
	for _, t := range totals {
		if why := p.Stats.Data.Missing[t.name]; why != "" {
			if said[why] == nil {
				reasons = append(reasons, why)
			}
			said[why] = append(said[why], t.said)
		}
	}
	for _, why := range reasons {
		all = append(all, &Trouble{Unknown: strings.Join(said[why], ", "), Why: text(why, maxError)})
	}
	return all
}

// Attention is something that needs attention.
type Attention struct {
	// Urgent: jobs are held up, or a promise does not hold.
	Urgent bool
	Text   string
	// View is the page with details.
	View string
	// Command fixes it; Fix says how if no command does.
	Command, Fix string
}

var attentionViews = map[string]string{
	"redis": "redis", "daemons": "workers", "queues": "queues", "unique": "locks", "locks": "locks", "parked": "failed", "schedules": "schedule",
}

// NeedsAttention returns the findings that are not OK, the urgent ones first.
func NeedsAttention(findings []view.Finding) []Attention {
	var urgent, rest []Attention
	for _, f := range findings {
		if f.Status == view.FindingOK {
			continue
		}
		a := Attention{Urgent: f.Status == view.FindingFail, Text: f.Text, View: attentionViews[f.Check], Fix: f.Fix}
		if f.Check == "redis" { // next to others its text needs a subject
			if rest, ok := strings.CutPrefix(a.Text, "it "); ok {
				a.Text = "Redis " + rest
			} else {
				a.Text = "Redis: " + a.Text
			}
		}
		if f.Command && f.Fix != "" {
			a.Command, a.Fix = f.Fix, ""
		}
		if f.Check == "queues" && strings.HasPrefix(f.Fix, "locks ") {
			a.View = "locks"
		}
		if a.Urgent {
			urgent = append(urgent, a)
		} else {
			rest = append(rest, a)
		}
	}
	return append(urgent, rest...)
}

// QueueRow is a queue in a list.
type QueueRow struct {
	*view.Queue
	// In and Out are how many jobs per second came and were taken; nil = unknown.
	In, Out *float64
	// Spark are its lengths of the last minutes.
	Spark []float64
	// ServedBy says in a few words what works it; "" = the number of threads.
	ServedBy string
}

// Queues lists queues.
type Queues struct {
	Frame
	Rows Widget[[]QueueRow]
	// Filter is a part of the names, State one of the states, Sort the column.
	Filter, State, Sort string
	// Total counts all queues, States those of each state.
	Total  int
	States []Link
	Pager  Pager
}

// Queue is the page of a queue.
type Queue struct {
	Frame
	Name  string
	Queue Widget[QueueRow]
	Chart Widget[*Chart]
	Spans []Link
	// Jobs are the page of waiting jobs that Pager names.
	Jobs   Widget[[]view.WaitingJob]
	Pager  Pager
	Filter Filter
	// Search is the progress of a search.
	Search *Search
}

// Search is the progress of a search in steps.
type Search struct {
	// Scanned of Total were read, Found match.
	Scanned, Total int64
	Found          int
	// Next continues the search; "" = it is finished.
	Next template.URL
}

// Jobs lists running jobs.
type Jobs struct {
	Frame
	Rows   Widget[[]*view.Job]
	Filter Filter
	Total  int
	Pager  Pager
}

// Job is the page of a running job.
type Job struct {
	Frame
	Name string
	Job  Widget[*view.Job]
	// Siblings are the other jobs of its process, which die with it if it does not stop.
	Siblings []view.ThreadJob
	Events   []view.Event
}

// Locks shows locks and the queues that wait for them.
type Locks struct {
	Frame
	Waiting Widget[[]view.LockedQueue]
	Held    Widget[[]*view.Lock]
	Unique  Widget[[]view.UniqueQueue]
	Kind    string
	Kinds   []Link
	// Database has the locks in PostgreSQL; nil = no such database. DatabaseCut: there are more.
	Database    *Widget[[]*view.Lock]
	DatabaseCut bool
	// Cut: there are more locks.
	Cut bool
}

// Lock is the page of a lock.
type Lock struct {
	Frame
	Key  string
	Lock Widget[*view.Lock]
}

// LongJobs lists the runs of long jobs.
type LongJobs struct {
	Frame
	Runs      Widget[[]view.LongJob]
	Recurring Widget[[]view.Recurring]
	Status    string
	States    []Link
	More      bool
}

// LongJob is the page of a run.
type LongJob struct {
	Frame
	UUID string
	Run  Widget[view.LongJob]
}

// Schedule shows recurring and delayed jobs.
type Schedule struct {
	Frame
	Recurring Widget[[]*view.Schedule]
	Delayed   Widget[[]view.DelayedJob]
	// Pager leads to later jobs.
	Pager  Pager
	Filter Filter
}

// Limits shows how many jobs run and wait for each limit.
type Limits struct {
	Frame
	Rows Widget[[]view.Limit]
}

// Classes shows what each class of jobs costs.
type Classes struct {
	Frame
	Rows  Widget[[]view.Class]
	Sort  string
	Span  string
	Spans []Link
	// Since and Until are the span instead, as they were written.
	Since, Until string
}

// Class is the page of a class.
type Class struct {
	Frame
	Name string
	Row  Widget[view.Class]
	// Chart is how many jobs ran, Times how long they took.
	Chart, Times Widget[*Chart]
	Spans        []Link
}

// Redis shows the server and the findings.
type Redis struct {
	Frame
	Server   Widget[rdb.Server]
	Findings Widget[[]view.Finding]
}

// Events lists events.
type Events struct {
	Frame
	Rows  Widget[[]view.Event]
	Kind  string
	Kinds []Link
	Pager Pager
}

// Confirm asks before an irreversible change.
type Confirm struct {
	Frame
	// Question is the question, Details the consequences.
	Question string
	Details  []string
	// Action is where the form is sent, Fields its content, Button the button's text.
	Action template.URL
	Fields []Field
	Button string
	Back   template.URL
	// Command is the equivalent shell command.
	Command string
}

// Field is a hidden value of a form.
type Field struct{ Name, Value string }

// Message is a page with a message only, such as an error.
type Message struct {
	Frame
	Text string
	Hint string
	// Links are other pages to try.
	Links []Link
}

// Operation is the page of a bulk change.
type Operation struct {
	Frame
	// Description of the change: "Retry failures of Mail".
	What string
	// Done of Total were changed, Failed were not.
	Done, Total, Failed int64
	Ended               bool
	Err                 string
	// Cancel is where the form to stop it is sent; "" = it cannot be stopped.
	Cancel template.URL
	Back   template.URL
}

package pages

import (
	"html/template"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
)

// Overview is the first page: how it is as a whole, and what needs somebody.
type Overview struct {
	Frame
	Stats     Widget[*view.Stats]
	Locks     Widget[int]
	Attention Widget[[]Attention]
	// Chart is of Span, one of Spans.
	Chart  Widget[*Chart]
	Spans  []Link
	Queues Widget[[]QueueRow]
	// MoreQueues is how many others there are.
	MoreQueues int
	Running    Widget[[]*view.Job]
	// MoreRunning is how many others run.
	MoreRunning int
}

// totals are those of Stats that the page shows, with what it calls them.
var totals = []struct{ name, said string }{
	{"processed", "processed"},
	{"running", "busy"},
	{"threads", "threads"},
	{"waiting", "waiting"},
	{"failures", "failures"},
	{"delayed", "delayed"},
	{"longjobs", "long jobs"},
}

// Total writes one of them, or that it is not known.
func (p *Overview) Total(name string, n int64) string {
	if !p.Stats.Data.Known(name) {
		return "—"
	}
	return view.Grouped(n)
}

// Unknown says which of them could not be read, those together that have one reason.
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

// Attention is something that needs somebody.
type Attention struct {
	// Urgent reports that jobs wait for it or a promise does not hold.
	Urgent bool
	Text   string
	// View is the page that shows more of it.
	View string
	// Command mends it; Fix says how where no command does.
	Command, Fix string
}

// attentionViews has for each check of view.Findings the page that shows more.
var attentionViews = map[string]string{
	"redis": "redis", "daemons": "workers", "queues": "queues", "unique": "locks", "locks": "locks", "parked": "failed", "schedules": "schedule",
}

// NeedsAttention returns what of findings is not as it should be, the urgent ones first.
func NeedsAttention(findings []view.Finding) []Attention {
	var urgent, rest []Attention
	for _, f := range findings {
		if f.Status == view.FindingOK {
			continue
		}
		a := Attention{Urgent: f.Status == view.FindingFail, Text: f.Text, View: attentionViews[f.Check], Fix: f.Fix}
		if f.Check == "redis" { // beside others its text needs a subject
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
	// In and Out are how many jobs by the second came and were taken; nil = not known.
	In, Out *float64
	// Spark are its lengths of the last minutes.
	Spark []float64
	// ServedBy says who works it in a few words; "" = the number of threads.
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

// Queue is one queue.
type Queue struct {
	Frame
	Name  string
	Queue Widget[QueueRow]
	Chart Widget[*Chart]
	Spans []Link
	// Jobs are those of the page that Pager names.
	Jobs  Widget[[]view.WaitingJob]
	Pager Pager
	// Class and Args are what is searched for, Search how far that has come.
	Class, Args string
	Search      *Search
}

// Search is how far a search has come that goes in steps.
type Search struct {
	// Scanned of Total are looked at, Found fit.
	Scanned, Total int64
	Found          int
	// Next goes on; "" = all is looked at.
	Next template.URL
}

// Jobs lists running jobs.
type Jobs struct {
	Frame
	Rows Widget[[]*view.Job]
	// Class, Queue and Older are the filter.
	Class, Queue, Older string
	Total               int
	Pager               Pager
}

// Job is one running job.
type Job struct {
	Frame
	Name string
	Job  Widget[*view.Job]
	// Siblings are the other jobs of its process, which die with it if it does not stop.
	Siblings []view.ThreadJob
	Events   []Event
}

// Locks shows who waits for whom.
type Locks struct {
	Frame
	// Waiting are queues of which jobs wait for locks.
	Waiting Widget[[]view.LockedQueue]
	Held    Widget[[]LockRow]
	Unique  Widget[[]view.UniqueQueue]
	Kind    string
	Kinds   []Link
	// Database has the locks in PostgreSQL; nil = there is no such database. DatabaseCut: there are
	// more.
	Database    *Widget[[]*view.Lock]
	DatabaseCut bool
	// Cut: there are more locks than were read.
	Cut   bool
	Pager Pager
}

// LockRow is a lock.
type LockRow struct {
	*view.Lock
	// Waiters are queues in which jobs are known to wait for it.
	Waiters []string
}

// Lock is one lock.
type Lock struct {
	Frame
	Key  string
	Lock Widget[*view.Lock]
}

// LongJobs lists the runs of long jobs.
type LongJobs struct {
	Frame
	Runs      Widget[[]LongRow]
	Recurring Widget[[]view.Recurring]
	Status    string
	States    []Link
	More      bool
	// Alone: the page is about one run, and named after it.
	Alone bool
}

// LongRow is a run with its slices.
type LongRow struct {
	view.LongJob
	Timeline []Slice
}

// Slice is one turn of a long job.
type Slice struct {
	At      time.Time
	Took    time.Duration
	Units   int64
	Outcome string
	Worker  string
}

// LongJob is one run.
type LongJob struct {
	Frame
	UUID string
	Run  Widget[LongRow]
}

// Schedule shows what runs when.
type Schedule struct {
	Frame
	Recurring Widget[[]*view.Schedule]
	Delayed   Widget[[]view.DelayedJob]
	// Pager leads to those that are due later.
	Pager        Pager
	Class, Queue string
}

// Classes shows what each class of jobs costs.
type Classes struct {
	Frame
	Rows  Widget[[]ClassRow]
	Sort  string
	Span  string
	Spans []Link
}

// ClassRow is what was measured of a class in the span.
type ClassRow struct {
	Class                string
	Runs, Failed, NotRun int64
	WaitP95              time.Duration
	P50, P95, P99        time.Duration
	Time                 time.Duration
	// Share is Time as a part of that of all classes.
	Share float64
	Spark []float64
}

// Class is one class.
type Class struct {
	Frame
	Name string
	Row  Widget[ClassRow]
	// Chart is how many ran by time, Times how long they took.
	Chart, Times Widget[*Chart]
	Spans        []Link
}

// Redis shows the server and what the checks have found.
type Redis struct {
	Frame
	Server   Widget[Server]
	Findings Widget[[]view.Finding]
	Keys     Widget[[]KeySize]
}

// Server is what the server says of itself.
type Server struct {
	Version, Role, Policy, Unsaved string
	Memory, MemoryLimit            int64
	Clients, ClientLimit           int64
	AppendOnly                     *bool
	RoundTrip, Ahead               time.Duration
}

// KeySize is how much a kind of keys holds.
type KeySize struct {
	What  string
	Count int64
	Bytes int64
}

// Events shows what happened when, and by whom.
type Events struct {
	Frame
	Rows  Widget[[]Event]
	Kind  string
	Kinds []Link
	Pager Pager
}

// Event is something that happened.
type Event struct {
	ID   string
	At   time.Time
	Kind string
	// Text says what happened to what, Said only what.
	Text, Said string
	// Who did it, From where.
	Who, From string
	// Subject is what it happened to: a process, a queue.
	Subject string
	// Urgent: it cost somebody a job or a process.
	Urgent bool
}

// Confirm asks before something that cannot be undone.
type Confirm struct {
	Frame
	// Question is what is asked, Details what it would cost.
	Question string
	Details  []string
	// Action is where the form is sent, Fields what it holds. Button names the act.
	Action template.URL
	Fields []Field
	Button string
	// Back leads back.
	Back template.URL
	// Command does the same from a shell.
	Command string
}

// Field is a hidden value of a form.
type Field struct{ Name, Value string }

// Message is a page that has nothing else to say: an error, something that was not found.
type Message struct {
	Frame
	Text string
	// Hint says what to do.
	Hint string
	// Links lead on: to what may have been meant.
	Links []Link
}

// Operation is an act on many records that is under way, or has ended.
type Operation struct {
	Frame
	// What is being done: "Retry failures of Mail".
	What string
	// Done of Total are done, Failed were not.
	Done, Total, Failed int64
	Ended               bool
	Err                 string
	// Cancel is where the form to stop it is sent; "" = it cannot be.
	Cancel template.URL
	Back   template.URL
}

// names of templates.
func (*Overview) name() string  { return "overview" }
func (*Queues) name() string    { return "queues" }
func (*Queue) name() string     { return "queue" }
func (*Jobs) name() string      { return "jobs" }
func (*Job) name() string       { return "job" }
func (*Failed) name() string    { return "failed" }
func (*Failure) name() string   { return "failure" }
func (*Workers) name() string   { return "workers" }
func (*Worker) name() string    { return "worker" }
func (*Locks) name() string     { return "locks" }
func (*Lock) name() string      { return "lock" }
func (*LongJobs) name() string  { return "longjobs" }
func (*LongJob) name() string   { return "longjob" }
func (*Schedule) name() string  { return "schedule" }
func (*Classes) name() string   { return "classes" }
func (*Class) name() string     { return "class" }
func (*Redis) name() string     { return "redis" }
func (*Events) name() string    { return "events" }
func (*Confirm) name() string   { return "confirm" }
func (*Message) name() string   { return "message" }
func (*Operation) name() string { return "operation" }

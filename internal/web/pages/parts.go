package pages

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// part passes an item and its page to the template of a part.
type part struct{ Page, Of any }

type eventsPart struct {
	Frame *Frame
	Rows  []view.Event
}

// By reports whether any event has a known author.
func (p eventsPart) By() bool {
	return slices.ContainsFunc(p.Rows, func(e view.Event) bool { return e.By != "" })
}

// Alone reports whether the page is about one thing, and named after it.
func (*Workers) Alone() bool { return false }

// Alone is as for Workers.
func (*Worker) Alone() bool { return true }

// Alone is as for Workers.
func (*LongJobs) Alone() bool { return false }

// Alone is as for Workers.
func (*LongJob) Alone() bool { return true }

// List are the events.
func (p *Events) List() eventsPart { return eventsPart{&p.Frame, p.Rows.Data} }

// EventList are the events of the job, the newest first, including its start.
func (p *Job) EventList() eventsPart {
	rows := p.Events
	if j := p.Job.Data; j != nil && !j.Started.IsZero() {
		start := view.Event{ID: "start", At: j.Started, Kind: "started", Text: "taken from " + text(j.Queue, view.MaxName) + " by " + text(wire.WorkerText(j.Worker), view.MaxName)}
		at, _ := slices.BinarySearchFunc(rows, start.At, func(e view.Event, t time.Time) int { return t.Compare(e.At) })
		rows = slices.Insert(slices.Clone(rows), at, start)
	}
	return eventsPart{&p.Frame, rows}
}

// EventList are the events of the daemon and its processes.
func (p *Worker) EventList() eventsPart { return eventsPart{&p.Frame, p.Events} }

func aged(rows []QueueRow) bool {
	return slices.ContainsFunc(rows, func(r QueueRow) bool { return r.OldestS != nil })
}

// Ages reports whether the age of any queue's oldest job is known.
func (p *Overview) Ages() bool { return aged(p.Queues.Data) }

// Ages reports whether the list has a column of ages.
func (p *Queues) Ages() bool { return p.Sort == "oldest" || aged(p.Rows.Data) }

// Rates reports whether any queue's rates are known.
func (p *Queues) Rates() bool {
	for _, r := range p.Rows.Data {
		if r.In != nil || r.Out != nil {
			return true
		}
	}
	return false
}

// Column is the heading of a sortable column.
func (p *Queues) Column(text, sort string) Link {
	return Link{text, p.With("/queues", "name", p.Filter, "state", p.State, "sort", sort), p.Sort == sort}
}

// Column is the heading of a sortable column.
func (p *Classes) Column(text, sort string) Link {
	return Link{text, p.With("/classes", "span", p.Span, "since", p.Since, "until", p.Until, "sort", sort), p.Sort == sort}
}

// Whole returns seconds without their fraction.
func (f *Frame) Whole(seconds float64) int64 { return int64(seconds) }

// Thousandth returns milliseconds in seconds.
func (f *Frame) Thousandth(ms int64) int64 { return ms / 1000 }

// Fine writes a short duration.
func (f *Frame) Fine(d time.Duration) string {
	switch {
	case d <= 0:
		return "—"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	}
	return took(d)
}

// Timeline draws the slices of a run, and the pauses between them, on a time line.
func (f *Frame) Timeline(r view.LongJob) template.HTML {
	if len(r.Timeline) == 0 {
		return ""
	}
	from := r.Timeline[0].Started
	to := from
	for _, s := range r.Timeline {
		if s.Started.Before(from) {
			from = s.Started
		}
		if end := s.Started.Add(s.Took()); end.After(to) {
			to = end
		}
	}
	if r.Status == "running" && f.Now.After(to) {
		to = f.Now
	}
	whole := max(to.Sub(from), time.Second)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="timeline" width="100%%" height="34" role="img" aria-label="%s"><rect class="track" x="0" y="2" width="100%%" height="14" rx="2"/>`,
		template.HTMLEscapeString(fmt.Sprintf("%s since %s", view.Plural(len(r.Timeline), "slice"), f.moment(from))))
	for _, s := range r.Timeline {
		class := "slice"
		switch s.Outcome {
		case "failed", "died", "killed":
			class = "slice alert"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.2f%%" y="2" width="%.2f%%" height="14"><title>%s</title></rect>`, class,
			100*float64(s.Started.Sub(from))/float64(whole), max(0.15, 100*float64(s.Took())/float64(whole)-0.1),
			template.HTMLEscapeString(fmt.Sprintf("%s %s, %s, %s", f.moment(s.Started), took(s.Took()), text(s.Outcome, 40), text(wire.WorkerText(s.Proc), view.MaxName))))
	}
	end := f.moment(to)
	if to.Equal(f.Now) {
		end = "now"
	}
	fmt.Fprintf(&b, `<text class="tick" x="0" y="31">%s</text><text class="tick" x="100%%" y="31" text-anchor="end">%s</text></svg>`, f.moment(from), end)
	return template.HTML(b.String()) //nolint:gosec // numbers, and texts that are escaped
}

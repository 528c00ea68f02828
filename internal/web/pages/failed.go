package pages

import (
	"html/template"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/view"
)

// Failed lists failures.
type Failed struct {
	Frame
	// Flat lists failures one by one instead of in groups.
	Flat   bool
	Groups Widget[view.FailureGroups]
	Rows   Widget[[]view.Failure]
	Filter FailedFilter
	Total  int64
	Search *Search
	Pager  Pager
	Parked Widget[[]*view.ParkedJob]
}

// FailedFilter selects failures. Empty fields match all.
type FailedFilter struct {
	Class, Error, Args, Queue string
}

// Any reports whether the filter excludes anything.
func (f FailedFilter) Any() bool { return f.Class+f.Error+f.Args+f.Queue != "" }

// Records is the filter for records; Args needs a look at what is shown of them.
func (f FailedFilter) Records() client.FailedFilter {
	return client.FailedFilter{Class: f.Class, Error: f.Error, Queue: f.Queue, All: f.Class+f.Error+f.Queue == ""}
}

// Pairs are the filter's parameters in an address.
func (f FailedFilter) Pairs() []string {
	return []string{"class", f.Class, "error", f.Error, "args", f.Args, "queue", f.Queue}
}

// Flatly returns the address of the flat list with the filter.
func (p *Failed) Flatly(more ...string) template.URL {
	return p.With("/failed", append(append(p.Filter.Pairs(), "view", "flat"), more...)...)
}

// Grouped returns the address of the groups with the filter.
func (p *Failed) Grouped() template.URL { return p.With("/failed", p.Filter.Pairs()...) }

// Of returns the address of a group's failures.
func (p *Failed) Of(g *view.FailureGroup) template.URL {
	return p.With("/failed", "class", g.Class, "error", g.Exception, "queue", g.Queue, "view", "flat")
}

// Failure is the page of a failure.
type Failure struct {
	Frame
	ID      string
	Failure Widget[view.Failure]
}

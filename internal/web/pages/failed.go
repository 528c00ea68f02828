package pages

import (
	"html/template"

	"github.com/resqued/resqued/internal/view"
)

// Failed lists failures.
type Failed struct {
	Frame
	// Flat lists failures one by one instead of in groups.
	Flat   bool
	Groups Widget[view.FailureGroups]
	Rows   Widget[[]view.Failure]
	Filter Filter
	Total  int64
	Search *Search
	Pager  Pager
	Parked Widget[[]*view.ParkedJob]
}

// Flatly returns the address of the flat list with the filter.
func (p *Failed) Flatly(more ...string) template.URL {
	return p.With("/failed", append(append(p.Filter.Pairs(), "view", "flat"), more...)...)
}

// Grouped returns the address of the groups with the filter.
func (p *Failed) Grouped() template.URL { return p.With("/failed", p.Filter.Pairs()...) }

// Of returns the address of a group's failures.
func (p *Failed) Of(g *view.FailureGroup) template.URL {
	pairs := append(p.Filter.Pairs(), "view", "flat")
	if g.ID != "" && p.Filter.Words["group"] == nil {
		pairs = append(pairs, "group", g.ID)
	}
	return p.With("/failed", pairs...)
}

// Form is the form of the filter.
func (p *Failed) Form() filterPart {
	one := filterPart{Filter: p.Filter, Action: p.Path("/failed")}
	if p.Flat {
		one.View = "flat"
	}
	return one
}

// Failure is the page of a failure.
type Failure struct {
	Frame
	ID      string
	Failure Widget[view.Failure]
}

package pages

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/selector/filter"
)

// Filter are the conditions of a list, as in its address.
type Filter struct {
	Kind  filter.Kind
	Words url.Values
}

// first are the conditions that a page always asks for; the others are below "More".
var first = map[filter.Kind][]string{
	filter.Failures: {"class", "error", "arg", "queue"},
	filter.Waiting:  {"class", "arg"},
	filter.Delayed:  {"class", "queue"},
	filter.Running:  {"class", "queue", "until"},
}

// hints are in empty fields; the name of the condition where there is none.
var hints = map[string]string{
	"class": "class: Mail*", "arg": "argument: 0.id=42", "error": "part of the error", "worker": "host or worker", "args": "arguments: [42]", "match": "arguments match",
	"since": "since 2h, 10:00", "until": "until 1h, today", "retried": "retried: yes, no",
}

// FilterField is a condition in a form.
type FilterField struct{ Name, Help, Hint, Value string }

// Any reports whether there is a condition.
func (f Filter) Any() bool { return len(f.Words) > 0 }

// Pairs are the conditions as parameters of an address.
func (f Filter) Pairs() (pairs []string) {
	filter.Each(f.Words, func(word, value string) { pairs = append(pairs, word, value) })
	return pairs
}

// First are the fields that are always shown.
func (f Filter) First() []FilterField { return f.fields(true) }

// More are the other fields.
func (f Filter) More() []FilterField { return f.fields(false) }

// Open reports whether one of the other fields is filled.
func (f Filter) Open() bool {
	return slices.ContainsFunc(f.More(), func(one FilterField) bool { return one.Value != "" })
}

func (f Filter) fields(always bool) (fields []FilterField) {
	for _, w := range filter.Words(f.Kind) {
		if slices.Contains(first[f.Kind], w.Name) != always || w.Name == "queue" && f.Kind == filter.Waiting {
			continue // waiting jobs are listed by queue
		}
		one := FilterField{Name: w.Name, Help: w.Help, Hint: cmp.Or(hints[w.Name], w.Name)}
		values := f.Words[w.Name]
		for _, one.Value = range values {
			fields = append(fields, one)
		}
		if len(values) == 0 {
			fields = append(fields, one)
		}
	}
	return fields
}

// filterPart is the form of a filter. Its list is at Action, with View as a hidden parameter.
type filterPart struct {
	Filter
	Action template.URL
	View   string
	// Name is the queue's.
	Name string
}

// Beside reports whether the name is a parameter of the address. Browsers leave those out that are not fields.
func (p filterPart) Beside() bool { return strings.Contains(string(p.Action), "?") }

// Address is the address of the list with the conditions.
func (p filterPart) Address() template.URL {
	sign := "?"
	if p.Beside() {
		sign = "&"
	}
	if !p.Any() {
		return p.Action
	}
	return p.Action + template.URL(sign+p.Words.Encode()) //nolint:gosec // escaped
}

// Form is the form of the filter.
func (p *Queue) Form() filterPart {
	return filterPart{Filter: p.Filter, Action: p.Path("/queues", p.Name), Name: p.Name}
}

// Form is the form of the filter.
func (p *Jobs) Form() filterPart { return filterPart{Filter: p.Filter, Action: p.Path("/jobs")} }

// Form is the form of the filter.
func (p *Schedule) Form() filterPart {
	return filterPart{Filter: p.Filter, Action: p.Path("/schedule")}
}

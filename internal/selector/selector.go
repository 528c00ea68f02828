// Package selector decides from which queues a process may take jobs, and in what order. It is
// pure: the caller says which queues exist.
//
// A specification is a list of names ("critical") and globs ("img_*"), each perhaps with a cap
// ("mail:8", "reports:25%"), and of exclusions ("!low", "!img_*"). The order of names and globs is
// their priority. Exclusions remove queues from what globs match, wherever they are in the list.
package selector

import (
	"slices"
	"strings"
)

// Spec is a parsed queue specification. It is plain data and survives JSON.
type Spec struct {
	// Patterns are the names and globs in order of priority.
	Patterns []Pattern `json:"patterns"`
	// Exclude are the exclusions, without "!".
	Exclude []string `json:"exclude,omitempty"`
}

// Pattern is one entry of a specification.
type Pattern struct {
	// Text is the queue's name or a glob, without cap.
	Text string `json:"text"`
	Glob bool   `json:"glob,omitempty"`
	// Cap is the most threads that each matching queue may occupy in the whole master; 0 = no cap.
	Cap int `json:"cap,omitempty"`
	// Source is the entry as written ("reports:25%"), for messages.
	Source string `json:"source"`
}

// Choice is one queue of a plan.
type Choice struct {
	Queue string
	Cap   int
}

// Resolve returns the queues to take jobs from, in order of priority, each once. The first pattern
// that matches a queue sets its place and cap. A glob yields the known queues that it matches and
// no exclusion covers, sorted; a name yields itself, known or not. A sorted known is cheaper.
func (s Spec) Resolve(known []string) []Choice {
	if !s.Dynamic() {
		known = nil
	} else if !slices.IsSorted(known) {
		known = slices.Sorted(slices.Values(known))
	}
	choices := make([]Choice, 0, len(s.Patterns)+len(known))
	taken := make([]bool, len(known)) // by index: cheaper than a map of names
	for _, p := range s.Patterns {
		if !p.Glob {
			i, found := slices.BinarySearch(known, p.Text)
			if found && taken[i] {
				continue
			}
			if found {
				taken[i] = true
			}
			choices = append(choices, Choice{Queue: p.Text, Cap: p.Cap})
			continue
		}
		for i, queue := range known {
			if taken[i] || i > 0 && known[i-1] == queue || !Matches(p.Text, queue) || s.excluded(queue) || companion(queue) {
				continue
			}
			taken[i] = true
			choices = append(choices, Choice{Queue: queue, Cap: p.Cap})
		}
	}
	return choices
}

// companion reports whether a key would be resque-uniqueue's for another queue; see
// wire.CheckQueue.
func companion(queue string) bool {
	return strings.HasSuffix(queue, ":start_at") || strings.HasSuffix(queue, ":uniqueue")
}

// Dynamic reports whether the plan depends on existing queues, so that these must be reread.
func (s Spec) Dynamic() bool {
	return slices.ContainsFunc(s.Patterns, func(p Pattern) bool { return p.Glob })
}

// Names returns names and globs in order, without caps, as in a worker id of Resque.
func (s Spec) Names() []string {
	names := make([]string, len(s.Patterns))
	for i, p := range s.Patterns {
		names[i] = p.Text
	}
	return names
}

// String returns the specification as it is written in QUEUES, exclusions last.
func (s Spec) String() string {
	var b strings.Builder
	for _, p := range s.Patterns {
		b.WriteString(p.Source)
		b.WriteByte(',')
	}
	for _, text := range s.Exclude {
		b.WriteString("!" + text + ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

func (s Spec) excluded(queue string) bool {
	return slices.ContainsFunc(s.Exclude, func(text string) bool { return matchEntry(text, queue) })
}

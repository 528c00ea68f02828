// Package selector decides from which queues a process may take jobs, and in
// what order. It is pure: it is told which queues exist and answers with a plan.
//
// A specification is a list of entries: names ("critical"), globs ("img_*"),
// both perhaps with a cap ("mail:8", "reports:25%"), and exclusions ("!low",
// "!img_*"), which take queues away from what globs match. The order of names
// and globs is the order of priority; exclusions may stand anywhere.
package selector

import (
	"slices"
	"strings"
)

// Spec is a parsed queue specification. It is plain data and survives JSON.
type Spec struct {
	// Patterns in order of priority: names and globs, each perhaps with a cap.
	Patterns []Pattern `json:"patterns"`
	// Exclude are the patterns written with a leading "!", without it.
	Exclude []string `json:"exclude,omitempty"`
}

// Pattern is one entry of a specification.
type Pattern struct {
	// Text is the queue's name or a glob, without cap.
	Text string `json:"text"`
	Glob bool   `json:"glob,omitempty"`
	// Cap is the most threads that a queue matching this pattern may occupy over
	// the whole master; 0 = no cap. For a glob the cap holds for each queue.
	Cap int `json:"cap,omitempty"`
	// Source is the entry as it was written ("reports:25%"), for messages.
	Source string `json:"source"`
}

// Choice is one queue of a plan.
type Choice struct {
	Queue string
	// Cap as in Pattern.
	Cap int
}

// Resolve returns the queues to take jobs from, in order of priority, each once.
// A queue that several patterns match stands where the first of them puts it,
// with that one's cap. A glob stands for the known queues that it matches, in
// alphabetical order and without the excluded ones; a name stands for itself,
// known or not. known need not be sorted, but it costs less when it is.
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
			if taken[i] || i > 0 && known[i-1] == queue || !match(p.Text, queue) || s.excluded(queue) || companion(queue) {
				continue
			}
			taken[i] = true
			choices = append(choices, Choice{Queue: queue, Cap: p.Cap})
		}
	}
	return choices
}

// companion reports whether the key of a queue would be one that stands beside the list of a
// unique queue; see wire.CheckQueue. What others add under such a name is none of a queue.
func companion(queue string) bool {
	return strings.HasSuffix(queue, ":start_at") || strings.HasSuffix(queue, ":uniqueue")
}

// Dynamic reports whether the plan depends on which queues exist, so that they
// must be read again and again.
func (s Spec) Dynamic() bool {
	return slices.ContainsFunc(s.Patterns, func(p Pattern) bool { return p.Glob })
}

// Names returns the names and globs in order, without caps and exclusions: the
// queue part of a worker id, as Resque writes it.
func (s Spec) Names() []string {
	names := make([]string, len(s.Patterns))
	for i, p := range s.Patterns {
		names[i] = p.Text
	}
	return names
}

// String returns the specification as it may be written in QUEUES: entries
// joined by commas, exclusions last.
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

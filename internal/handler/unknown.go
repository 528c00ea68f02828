package handler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/wire"
)

const (
	shownName    = 120  // bytes of a class name in a message
	shownClasses = 10   // known classes in a message
	looked       = 1000 // known classes compared with an unknown one
)

// UnknownClassError says that a job's class is not registered, or that its runner does not
// perform it.
type UnknownClassError struct {
	// Class is the name as in the payload.
	Class string
	// Known are some registered classes, nearest first; Others is how many more there are.
	Known  []string
	Others int
	// Runner performs only the known classes; "" = the class is not registered.
	Runner string
}

// Error names the class and the known ones, safe to print.
func (e *UnknownClassError) Error() string {
	what := `no handler for class "` + wire.Printable(e.Class, shownName) + `"`
	if len(e.Known) == 0 {
		return what + ": no class is registered at all; name a command for it under handlers in the configuration," +
			" or for classes of Ruby, Python or Node start with --runner 'COMMAND'"
	}
	names := make([]string, len(e.Known))
	for i, name := range e.Known {
		names[i] = wire.Printable(name, shownName)
	}
	list := strings.Join(names, ", ")
	if e.Others > 0 {
		list += fmt.Sprintf(" and %d more", e.Others)
	}
	if e.Runner != "" {
		return what + ": the runner " + e.Runner + " does not perform it, only those of its classes in the configuration: " + list
	}
	return what + "; known classes: " + list
}

// Exception is the exception name in the failure record.
func (e *UnknownClassError) Exception() string { return "Resqued::UnknownClass" }

func newUnknownClass(class string, known []string) *UnknownClassError {
	candidates := slices.Clone(known[:min(len(known), looked)])
	far := make(map[string]int, len(candidates))
	for _, name := range candidates {
		far[name] = distance(class, name)
	}
	slices.SortStableFunc(candidates, func(a, b string) int { return far[a] - far[b] })
	shown := candidates[:min(len(candidates), shownClasses)]
	return &UnknownClassError{Class: class, Known: shown, Others: len(known) - len(shown)}
}

// distance counts the bytes to insert, remove or replace to turn a into b, ignoring case, within
// the first 64 bytes of each.
func distance(a, b string) int {
	const limit = 64
	a = strings.ToLower(a[:min(len(a), limit)])
	b = strings.ToLower(b[:min(len(b), limit)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

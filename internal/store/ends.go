package store

import (
	"fmt"
	"strconv"
	"strings"
)

// FieldEnds is the field of a master's entry for its ProcEnds.
const FieldEnds = "ends"

// RecycledFor are the reasons for replacing worker processes.
var RecycledFor = [...]string{"jobs", "memory", "age", "other"}

// ProcEnds counts how a master's processes have ended since its start. Not every end has an event: there may be
// hundreds per second.
type ProcEnds struct {
	// Died counts worker processes and runners.
	Died int64
	// Recycled counts replaced worker processes, in the order of RecycledFor.
	Recycled [len(RecycledFor)]int64
}

// CountRecycled counts a replaced worker process; reason is as in the logs.
func (e *ProcEnds) CountRecycled(reason string) {
	if reason == "quota" {
		reason = RecycledFor[0]
	}
	for i, why := range RecycledFor {
		if reason == why || i == len(RecycledFor)-1 {
			e.Recycled[i]++
			return
		}
	}
}

// Add adds other counts.
func (e *ProcEnds) Add(more ProcEnds) {
	e.Died += more.Died
	for i, n := range more.Recycled {
		e.Recycled[i] += n
	}
}

// Since returns the increase since earlier counts; never negative.
func (e ProcEnds) Since(before ProcEnds) ProcEnds {
	e.Died = max(0, e.Died-before.Died)
	for i, n := range before.Recycled {
		e.Recycled[i] = max(0, e.Recycled[i]-n)
	}
	return e
}

// String returns the counts for a master's entry: died=1 jobs=2 …
func (e ProcEnds) String() string {
	text := fmt.Appendf(nil, "died=%d", e.Died)
	for i, n := range e.Recycled {
		text = fmt.Appendf(text, " %s=%d", RecycledFor[i], n)
	}
	return string(text)
}

// ParseProcEnds reads the output of String. It ignores invalid counts and those of other versions.
func ParseProcEnds(text string) (e ProcEnds) {
	for one := range strings.FieldsSeq(text) {
		name, number, _ := strings.Cut(one, "=")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 {
			continue
		}
		if name == "died" {
			e.Died = n
		}
		for i, why := range RecycledFor {
			if name == why {
				e.Recycled[i] = n
			}
		}
	}
	return e
}

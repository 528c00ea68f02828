package store

import (
	"fmt"
	"strconv"
	"strings"
)

// FieldEnds is the field of a master's entry that counts the ends of its processes.
const FieldEnds = "ends"

// RecycledFor are the reasons by which replaced worker processes are counted.
var RecycledFor = [...]string{"jobs", "memory", "age", "other"}

// ProcEnds counts how the processes of a master have ended since it has started. Events tell of
// single ones, but not of each: there may be hundreds a second.
type ProcEnds struct {
	// Died are worker processes and runners.
	Died int64
	// Recycled are worker processes that were replaced, in the order of RecycledFor.
	Recycled [len(RecycledFor)]int64
}

// CountRecycled counts a worker process that was replaced, by the reason that logs have for it.
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

// Since returns what has come to earlier counts; nothing is less than none.
func (e ProcEnds) Since(before ProcEnds) ProcEnds {
	e.Died = max(0, e.Died-before.Died)
	for i, n := range before.Recycled {
		e.Recycled[i] = max(0, e.Recycled[i]-n)
	}
	return e
}

// String returns the counts as they stand in a master's entry: died=1 jobs=2 …
func (e ProcEnds) String() string {
	text := fmt.Appendf(nil, "died=%d", e.Died)
	for i, n := range e.Recycled {
		text = fmt.Appendf(text, " %s=%d", RecycledFor[i], n)
	}
	return string(text)
}

// ParseProcEnds reads what String has written. What another version has written besides, or what is
// no count, is left out.
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

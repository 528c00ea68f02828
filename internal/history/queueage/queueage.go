// Package queueage finds out how long the jobs of a queue have waited, although most payloads do not
// say when they were pushed.
//
// A process looks at each queue about once a second. A look searches for a payload that was at the
// end of the list at the last look: jobs behind it were pushed in between. So jobs get numbers, in
// the order in which they were pushed, and each look is a mark: at its time the jobs up to a number
// had been pushed. Any program may take jobs in the meantime.
//
// # Limits
//
// A job that was there at the first look has waited for that long at least. If payloads are equal
// byte for byte, a look cannot tell which one it has found. Then it counts the jobs that have ended
// instead, which the history knows some seconds later. A job that goes back to the head of its
// queue counts as old as the oldest mark that is left. A job that goes to the tail counts as new:
// so do jobs whose lock is held and that cannot wait in a line.
package queueage

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Source says where an age comes from.
type Source string

// The sources of an age, the best first.
const (
	Exact    Source = "exact"    // the payload says when it was pushed
	Measured Source = "measured" // it is that of a mark: a second or two older than the job at most, or 2 % of its age
	Estimate Source = "estimate" // some of the queue's payloads are equal, or the last look is some time ago
	AtLeast  Source = "at_least" // the job was there at the first look, or at the first one after a pause
)

const (
	// The middle one of three marks is dropped if at most step (ms), or their age divided by share, is
	// between the other two.
	step, share = 100, 50
	// maxMarks bounds the marks of a list; a day takes some 600.
	maxMarks = 800
	// MaxAnchor is the length of the largest payload that is looked for again, in bytes.
	MaxAnchor = 4096
)

// mark says that the jobs up to n had been pushed at a time (ms), and those behind it had not.
type mark struct{ n, at int64 }

// anchor is a payload that is looked for at the next look, and the number of its job.
type anchor struct {
	payload []byte
	n       int64
}

// List is what is known of the jobs of one list. The zero List knows nothing.
type List struct {
	marks  []mark // by number; the last has that of the last job
	first  int64  // the number of the job at the head
	before int64  // the jobs up to this number were there at the first look
	unsure int64  // the jobs up to this number have numbers that are estimated
	taken  int64  // as in Look, at the last one
	// tail is from the end of the list as it was, middle from the middle as it was once, front the head.
	tail, middle, front anchor
}

// Look is what a look at a list has read.
type Look struct {
	// Len is how many jobs wait; it is not 0.
	Len int64
	// Tail, Middle and Front are the places, from 0 at the head, of the payloads of Anchors; -1 is one that is
	// not there. Twice: the payload of Tail is at another place, too.
	Tail, Middle, Front int64
	Twice               bool
	// Last are the last payloads of the list, the very last at the end, Head is the first, and Half the one at
	// the place that Half says; nil = there is none.
	Last       [][]byte
	Head, Half []byte
	// Taken is how many jobs of the queue have ended since the history began, 0 = not known. It is needed only
	// where Twice is set.
	Taken int64
	// From and To limit the time (ms) at which those jobs were pushed that are seen for the first
	// time. From is 0 at the first look of all. Rough: the last look is long ago.
	From, To int64
	Rough    bool
	// Blind: nothing could be looked for.
	Blind bool
}

// Anchors returns the payloads that are to be looked for: one from the end of the list as it was, one
// from its middle, and the one at its head. The second need be looked for only if the
// first is not there. Each may be nil.
func (l *List) Anchors() (tail, middle, front []byte) {
	return l.tail.payload, l.middle.payload, l.front.payload
}

// Len is how many jobs the list had at the last look; 0 = nothing is known.
func (l *List) Len() int64 {
	if len(l.marks) == 0 {
		return 0
	}
	return l.last() - l.first + 1
}

// Seen is when the list was looked at last (ms), or a look earlier.
func (l *List) Seen() int64 {
	if len(l.marks) == 0 {
		return 0
	}
	return l.marks[len(l.marks)-1].at
}

// Half is a place in the middle of the list, whose payload a look brings.
func (l *List) Half() int64 { return max(0, (l.last()-l.first)/2) }

// See adds a look.
func (l *List) See(s Look) {
	half := l.Half()
	last := l.last()
	total := l.tail.n + s.Len // if all anchors are gone these were pushed later
	switch {
	case len(l.marks) == 0:
	case s.Blind, l.tail.payload == nil && l.front.payload == nil: // payloads that are too large are not looked for
		total = max(last, l.first+s.Len-1)
		l.unsure = total
	case s.Tail >= 0 && !s.Twice:
		total = l.tail.n + s.Len - 1 - s.Tail
	case s.Tail >= 0 && s.Front >= 0 && !bytes.Equal(l.tail.payload, l.front.payload):
		total = l.front.n + s.Len - 1 - s.Front
	case s.Tail >= 0:
		taken := s.Taken - l.taken
		if l.taken == 0 || s.Taken == 0 {
			taken = 0
		}
		total = max(last, l.first+max(0, taken)+s.Len-1)
		l.unsure = total
	case s.Middle >= 0:
		total = l.middle.n + s.Len - 1 - s.Middle
	case s.Front >= 0:
		total = l.front.n + s.Len - 1 - s.Front
	}
	if s.Rough && total > last { // the new ones have waited for less, but it is not known how much
		s.From, l.before = s.To, total
	}
	switch {
	case len(l.marks) == 0 && s.From == 0:
		l.before = total
		l.marks = append(l.marks, mark{total, s.To})
	case len(l.marks) == 0:
		l.marks = append(l.marks, mark{0, s.From}, mark{total, s.To})
	default:
		l.note(total, s.From, s.To)
	}
	l.first, l.taken = total-s.Len+1, s.Taken
	l.forget(s.To)
	l.front = newAnchor(s.Head, l.first)
	if s.Tail < 0 && s.Middle < 0 || l.middle.n < l.first+half {
		l.middle = newAnchor(s.Half, l.first+half)
	}
	l.tail = anchor{n: total}
	for i, payload := range slices.Backward(s.Last) {
		if len(payload) == 0 || len(payload) > MaxAnchor {
			continue
		}
		alone := !slices.ContainsFunc(s.Last[:i], func(p []byte) bool { return bytes.Equal(p, payload) })
		if l.tail.payload == nil || alone {
			l.tail = anchor{payload, total - int64(len(s.Last)-1-i)}
		}
		if alone {
			break
		}
	}
}

func newAnchor(payload []byte, n int64) anchor {
	if len(payload) > MaxAnchor {
		payload = nil
	}
	return anchor{payload, n}
}

// last is the number of the last job.
func (l *List) last() int64 {
	if len(l.marks) == 0 {
		return 0
	}
	return l.marks[len(l.marks)-1].n
}

// note adds a mark: what is new was pushed between from and to.
func (l *List) note(total, from, to int64) {
	for len(l.marks) > 1 && l.marks[len(l.marks)-2].n >= total {
		l.marks = l.marks[:len(l.marks)-1] // jobs were removed from the end
	}
	end := &l.marks[len(l.marks)-1]
	end.n = min(end.n, total)
	from, to = max(from, end.at), max(to, end.at)
	if len(l.marks) > 1 && l.marks[len(l.marks)-2].n == end.n {
		end.at = from
	} else if from > end.at {
		l.marks = append(l.marks, mark{end.n, from})
	}
	if total > l.last() {
		l.marks = append(l.marks, mark{total, to})
	}
}

// forget drops the marks of jobs that are gone, but for the last of these, and those that others
// nearby make up for.
func (l *List) forget(now int64) {
	gone := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].n >= l.first })
	l.marks = slices.Delete(l.marks, 0, max(0, min(gone, len(l.marks))-1))
	kept := l.marks[:0]
	for i, m := range l.marks {
		if n := len(kept); i > 0 && i < len(l.marks)-1 && n > 0 {
			next := l.marks[i+1]
			least := max(int64(step), (now-next.at)/share)
			if next.at-kept[n-1].at <= least || next.n == kept[n-1].n {
				continue
			}
		}
		kept = append(kept, m)
	}
	if l.marks = kept; len(l.marks) > maxMarks {
		l.marks = slices.Delete(l.marks, 1, 1+len(l.marks)-maxMarks)
	}
}

// Pushed returns the earliest time at which the job at a place may have been pushed (ms), 0 = at the
// head, and how well that is known. A place behind the end counts as the last one.
func (l *List) Pushed(place int64) (at int64, source Source) {
	n := min(l.first+place, l.last())
	i := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].n >= n })
	if i == len(l.marks) {
		return 0, AtLeast
	}
	at = l.marks[max(0, i-1)].at
	switch {
	case n <= l.before:
		return at, AtLeast
	case n <= l.unsure:
		return at, Estimate
	}
	return at, Measured
}

// String returns the list as it is written to Redis. Parse reads it.
func (l *List) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "1 %d %d %d %d", l.first, l.before, l.unsure, l.taken)
	for _, a := range l.anchors() {
		fmt.Fprintf(&b, " %d %d", a.n, len(a.payload))
	}
	var last mark
	for _, m := range l.marks {
		fmt.Fprintf(&b, " %d:%d", m.n-last.n, m.at-last.at)
		last = m
	}
	b.WriteByte('\n')
	for _, a := range l.anchors() {
		b.Write(a.payload)
	}
	return b.String()
}

func (l *List) anchors() []*anchor { return []*anchor{&l.tail, &l.middle, &l.front} }

// Parse reads what String has written. Of anything else it knows nothing.
func Parse(text string) List {
	head, payloads, _ := strings.Cut(text, "\n")
	version, head, _ := strings.Cut(head, " ")
	fields := strings.FieldsFunc(head, func(r rune) bool { return r == ' ' || r == ':' })
	numbers := make([]int64, len(fields))
	for i, field := range fields {
		var err error
		if numbers[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return List{}
		}
	}
	if version != "1" || len(numbers) < 10 || len(numbers)%2 != 0 || len(numbers) > 10+2*maxMarks {
		return List{}
	}
	l := List{first: numbers[0], before: numbers[1], unsure: numbers[2], taken: numbers[3]}
	for i, a := range l.anchors() {
		n := numbers[5+2*i]
		if n < 0 || n > int64(len(payloads)) {
			return List{}
		}
		if a.n = numbers[4+2*i]; n > 0 {
			a.payload = []byte(payloads[:n])
		}
		payloads = payloads[n:]
	}
	if payloads != "" {
		return List{}
	}
	var m mark
	for i := 10; i < len(numbers); i += 2 {
		if numbers[i] < 0 || numbers[i+1] < 0 {
			return List{}
		}
		m.n, m.at = m.n+numbers[i], m.at+numbers[i+1]
		l.marks = append(l.marks, m)
	}
	return l
}

// Package queueage estimates how long the jobs of a queue have waited. Most payloads do not say
// when they were pushed.
//
// A process looks at each queue about once a second and searches for a payload that was at the
// end of the list at the last look: jobs behind it were pushed in between. Jobs thereby get
// numbers in push order, and each look is a mark: by its time, the jobs up to a number had been
// pushed. Other programs may take jobs in between.
//
// # Limits
//
// A job found at the first look has waited at least since then. If payloads are equal byte for
// byte, a look cannot tell which one it has found, and counts the ended jobs instead, which the
// history knows some seconds later. Once the job at the end was removed, the ages of those that wait then are
// estimates: the queue may as well have been purged, and have got equal jobs. A job that returns to the head of its queue counts as old as
// the oldest mark left. A job that returns to the tail counts as new, as do jobs whose lock is
// held and that cannot wait in a line.
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
	Measured Source = "measured" // from a mark: at most a second or two, or 2 %, more than the job's age
	Estimate Source = "estimate" // some payloads are equal or may be, or the last look was too long ago
	AtLeast  Source = "at_least" // the job was there at the first look, or at the first one after a pause
)

const (
	// Of three marks, the middle one is dropped if the outer two are at most step (ms) or age/share apart.
	step, share = 100, 50
	// maxMarks bounds the marks of a list; a day takes about 600.
	maxMarks = 800
	// MaxAnchor is the largest payload, in bytes, that a look searches for.
	MaxAnchor = 4096
)

// mark: by time at (ms), the jobs up to number n had been pushed and later ones had not.
type mark struct{ n, at int64 }

// anchor is a payload that the next look searches for, and the number of its job.
type anchor struct {
	payload []byte
	n       int64
}

// List is what is known of the jobs of one list. The zero value knows nothing.
type List struct {
	marks  []mark // by number; the last one has the last job's number
	first  int64  // the number of the job at the head
	before int64  // the jobs up to this number were there at the first look
	unsure int64  // the numbers of the jobs up to this one are estimates
	taken  int64  // Look.Taken of the last look
	// tail was at the end of the list, middle once in its middle, front is its head.
	tail, middle, front anchor
}

// Look is the result of reading a list.
type Look struct {
	// Len is how many jobs wait; never 0.
	Len int64
	// Tail, Middle and Front are the places of the payloads of Anchors, from 0 at the head;
	// -1 = not found. Twice: the payload of Tail is at another place, too.
	Tail, Middle, Front int64
	Twice               bool
	// Last are the last payloads of the list, in its order. Head is the first payload, Half the
	// one at the place that Half returns; nil = none.
	Last       [][]byte
	Head, Half []byte
	// Taken is how many jobs of the queue have ended since the history began; 0 = unknown. Only
	// needed if Twice is set.
	Taken int64
	// From and To bound the push time (ms) of the jobs seen for the first time. From is 0 at the
	// very first look. Rough: the last look was long ago.
	From, To int64
	Rough    bool
	// Blind: the search was not possible.
	Blind bool
}

// Anchors returns the payloads to search for: from the end of the list, from its middle and from
// its head. middle is only needed if tail is not found. Each may be nil.
func (l *List) Anchors() (tail, middle, front []byte) {
	return l.tail.payload, l.middle.payload, l.front.payload
}

// Len returns how many jobs the list had at the last look; 0 = unknown.
func (l *List) Len() int64 {
	if len(l.marks) == 0 {
		return 0
	}
	return l.last() - l.first + 1
}

// Seen returns when the list was last looked at (ms), at most one look too early.
func (l *List) Seen() int64 {
	if len(l.marks) == 0 {
		return 0
	}
	return l.marks[len(l.marks)-1].at
}

// Half returns a place in the middle of the list; the next look reads its payload.
func (l *List) Half() int64 { return max(0, (l.last()-l.first)/2) }

// See adds a look.
func (l *List) See(s Look) {
	half := l.Half()
	last := l.last()
	total := l.tail.n + s.Len // without any anchor, all are new
	switch {
	case len(l.marks) == 0:
	case s.Blind, l.tail.payload == nil && l.front.payload == nil: // larger payloads are not searched for
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
	case s.Middle >= 0 || s.Front >= 0: // the end was removed, or all jobs were, and an equal one came
		if total = l.middle.n + s.Len - 1 - s.Middle; s.Middle < 0 {
			total = l.front.n + s.Len - 1 - s.Front
		}
		l.unsure = total
	}
	if s.Rough && total > last { // the new jobs have waited for less, but it is unknown how much
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

func (l *List) last() int64 {
	if len(l.marks) == 0 {
		return 0
	}
	return l.marks[len(l.marks)-1].n
}

// note adds a mark: new jobs were pushed between from and to.
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

// forget drops the marks of jobs that are gone, except the last, and marks too close to others.
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

// Pushed returns the earliest time (ms) at which the job at a place, 0 = head, may have been
// pushed, and how well that is known. A place behind the end counts as the last one.
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

// Parse reads what String has written. Any other text gives the zero List.
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

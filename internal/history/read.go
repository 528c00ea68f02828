package history

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Step is the distance of a series' points.
type Step time.Duration

// The steps. Points of a minute have no run and waiting times, except the sum of the run times.
// Minutes and five minutes reach back a day, hours a month.
const (
	Minute      = Step(time.Minute)
	FiveMinutes = Step(5 * time.Minute)
	Hour        = Step(time.Hour)
)

func (s Step) reach() time.Duration {
	if s == Hour {
		return dayTTL
	}
	return hourTTL
}

// Query asks for the points of a series that begin at From or later, and before To.
type Query struct {
	Name     Name
	From, To time.Time
	Step     Step
}

// Point is what was counted from At until the next point.
type Point struct {
	At time.Time
	Sum
}

// span returns the number of the first point and the one after the last, in steps since 1970.
func span(from, to time.Time, step time.Duration, reach time.Duration) (first, end int64) {
	seconds := int64(step / time.Second)
	first, end = floor(from.Unix(), seconds), floor(to.Unix()+seconds-1, seconds)
	first = max(first, end-int64(reach/step))
	return first, max(first, end)
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// step returns q.Step, or Hour if it is not valid.
func (q Query) step() Step {
	switch q.Step {
	case Minute, FiveMinutes:
		return q.Step
	default:
		return Hour
	}
}

// each calls f for each point with the number of the string that contains it, and the place of that
// string among those of all points.
func (q Query) each(f func(at time.Time, unit int64, n int)) {
	step, unit := q.step(), int64(60*60)
	if step == Hour {
		unit *= 24
	}
	first, end := span(q.From, q.To, time.Duration(step), step.reach())
	n, last := -1, int64(math.MinInt64)
	for i := first; i < end; i++ {
		at := i * int64(time.Duration(step)/time.Second)
		if now := floor(at, unit); now != last {
			n, last = n+1, now
		}
		f(time.Unix(at, 0).UTC(), last, n)
	}
}

// Keys returns the keys of the strings with the points of q, without the namespace.
func (q Query) Keys() []string {
	if q.step() == Hour {
		return q.keys('d')
	}
	return q.keys('h')
}

func (q Query) keys(letter rune) (keys []string) {
	q.each(func(_ time.Time, unit int64, n int) {
		if n == len(keys) {
			keys = append(keys, fmt.Sprintf("%s%s:%c%d", Prefix, q.Name, letter, unit))
		}
	})
	return keys
}

// Points reads the strings of Keys, in their order; a missing one is empty. It returns a point
// for each step, the oldest first.
func (q Query) Points(strings [][]byte) []Point {
	var out []Point
	q.each(func(at time.Time, _ int64, n int) {
		raw := stringAt(strings, n)
		p := Point{At: at}
		switch q.step() {
		case Minute:
			p.readMinute(raw, at.Minute())
		case FiveMinutes:
			five := at.Minute() / 5
			for i := range 5 {
				p.readMinute(raw, 5*five+i)
			}
			p.readBuckets(raw, fivesAt+five*fiveSize, 3)
		default:
			p.readHour(raw, at.Hour()*hourSize)
		}
		out = append(out, p)
	})
	return out
}

// ReadTotal reads the string of a total.
func ReadTotal(raw []byte) Sum {
	var s Sum
	n := numbers(raw)
	s.Runs, s.Failed, s.Unrun, s.Micros = n.at(0, 8), n.at(8, 8), n.at(16, 8), micros(n.at(24, 8), 1000)
	s.Interrupted = n.at(totalString, 8)
	s.readBuckets(n, 32, 6)
	return s
}

func (s *Sum) readMinute(n numbers, minute int) {
	at := minute * minuteSize
	s.Runs, s.Failed, s.Unrun = s.Runs+n.at(at, 4), s.Failed+n.at(at+4, 4), s.Unrun+n.at(at+8, 4)
	s.Micros += n.at(at+12, 4) * 10_000
}

func (s *Sum) readHour(n numbers, at int) {
	s.Runs, s.Failed, s.Unrun, s.Micros = n.at(at, 4), n.at(at+4, 4), n.at(at+8, 4), micros(n.at(at+16, 8), 1000)
	s.readBuckets(n, at+24, 4)
}

func (s *Sum) readBuckets(n numbers, at, size int) {
	for i := range allBuckets {
		*s.bucket(i) = n.at(at+i*size, size)
	}
}

// micros multiplies and saturates.
func micros(n, unit uint64) uint64 {
	if n > math.MaxUint64/unit {
		return math.MaxUint64
	}
	return n * unit
}

// numbers is a string from Redis with big-endian numbers. It may be too short; missing numbers are 0.
type numbers []byte

// stringAt returns a string of a reply, empty if it is missing.
func stringAt(strings [][]byte, n int) numbers {
	if n >= len(strings) {
		return nil
	}
	return strings[n]
}

// at returns the number of size bytes at byte at, without the highest bit of eight bytes.
func (n numbers) at(at, size int) uint64 {
	if at+size > len(n) {
		return 0
	}
	var b [8]byte
	copy(b[8-size:], n[at:at+size])
	return binary.BigEndian.Uint64(b[:]) & math.MaxInt64
}

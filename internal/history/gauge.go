package history

import (
	"fmt"
	"time"
)

const unknownAge = 1<<24 - 1

// Level is the length of a queue at a time.
type Level struct {
	At time.Time
	// Jobs is how many waited; 0 also if the queue was not checked.
	Jobs uint64
	// Oldest is how long the first job had waited; Unknown if it carries no time.
	Oldest time.Duration
	// Locked is how many locks blocked its jobs.
	Locked uint64
}

// WriteLevel returns the command that notes a queue's length in a minute since 1970.
func WriteLevel(queue string, minute int64, l Level) Write {
	w := write(fmt.Sprintf("%s:g%d", Name{Queue, queue}, minute/60), gaugeString, hourTTL)
	at := int(minute%60) * gaugeSize
	w.set(32, at, l.Jobs)
	age := uint64(unknownAge)
	if l.Oldest >= 0 {
		age = min(uint64(l.Oldest/time.Second), unknownAge-1)
	}
	w.set(24, at+4, age)
	w.set(24, at+7, l.Locked)
	return w
}

// Levels asks for a queue's length, minute by minute.
type Levels struct {
	Queue    string
	From, To time.Time
}

func (q Levels) query() Query {
	return Query{Name: Name{Queue, q.Queue}, From: q.From, To: q.To, Step: Minute}
}

// Keys returns the keys of the strings, without the namespace.
func (q Levels) Keys() []string { return q.query().keys('g') }

// Levels reads the strings of Keys, in their order; a missing one is empty.
func (q Levels) Levels(strings [][]byte) (out []Level) {
	q.query().each(func(at time.Time, _ int64, n int) {
		raw := stringAt(strings, n)
		place := at.Minute() * gaugeSize
		l := Level{At: at, Jobs: raw.at(place, 4), Locked: raw.at(place+7, 3)}
		if age := raw.at(place+4, 3); age == unknownAge {
			l.Oldest = Unknown
		} else {
			l.Oldest = time.Duration(age) * time.Second
		}
		out = append(out, l)
	})
	return out
}

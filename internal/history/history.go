// Package history is how many jobs ran, how long, and how long they had waited: sums by class,
// queue and host, as worker processes count them, as they travel to the master, and as they
// stand in Redis. It knows no Redis and no clock.
//
// Files: buckets.go the buckets of run times and waiting times; sums.go counting; packet.go what
// a worker process sends; collect.go what a master adds up; layout.go the strings in Redis, and
// what is added to them; read.go those strings as series; gauge.go how long queues were.
package history

import (
	"cmp"
	"errors"
	"strings"
)

// The limits of names. What is beyond them counts under Other.
const (
	// MaxNames is how many names there are in Redis, of all kinds.
	MaxNames = 400
	// MaxName is how many bytes a name may have.
	MaxName = 200
	// maxLocal is how many names of one kind a worker process keeps apart between two reports,
	// and a master between two writes.
	maxLocal = MaxNames
)

// Other is the name of all that has no name of its own.
const Other = "(other)"

// Kind says what a series is about.
type Kind byte

// The kinds of series.
const (
	All   Kind = 't' // every job; its only name is Everything
	Class Kind = 'c'
	Queue Kind = 'q'
	Host  Kind = 'h'
)

// Everything is the name of the series of all jobs.
const Everything = "all"

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k == All || k == Class || k == Queue || k == Host }

// Name names a series.
type Name struct {
	Kind Kind
	Name string
}

// AllJobs is the series of every job.
func AllJobs() Name { return Name{All, Everything} }

// String is the name as it stands in Redis: "c:Mail".
func (n Name) String() string { return string(rune(n.Kind)) + ":" + n.Name }

// Compare sorts by kind, then by name.
func (n Name) Compare(other Name) int {
	return cmp.Or(cmp.Compare(n.Kind, other.Kind), strings.Compare(n.Name, other.Name))
}

// ParseName reads what String returned.
func ParseName(text string) (Name, error) {
	kind, name, ok := strings.Cut(text, ":")
	if !ok || len(kind) != 1 || !Kind(kind[0]).Valid() || name == "" || len(name) > MaxName {
		return Name{}, errors.New("no name of a series: want t, c, q or h, a colon, and a name")
	}
	return Name{Kind(kind[0]), name}, nil
}

// bounded returns a name that may be counted under.
func bounded(name string) string {
	if name == "" || len(name) > MaxName {
		return Other
	}
	return name
}

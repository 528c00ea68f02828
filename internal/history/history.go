// Package history counts how many jobs ran, how long, and how long they had waited: sums by class,
// queue and host, from worker processes through the master to Redis. It does not use Redis or a clock.
//
// buckets.go has the buckets of run and waiting times; sums.go counts; packet.go is what a worker
// process sends; collect.go is what a master adds up; layout.go is the strings in Redis and the
// writes to them; read.go reads them as series; gauge.go is the lengths of queues.
package history

import (
	"cmp"
	"errors"
	"strings"
)

// The limits of names. Names beyond them count under Other.
const (
	// MaxNames bounds the names of all kinds in Redis.
	MaxNames = 400
	// MaxName bounds a name in bytes.
	MaxName = 200
	// maxLocal bounds the names of one kind in a worker process between two reports. A master
	// keeps 2*maxLocal of all kinds between two writes.
	maxLocal = MaxNames
)

// Other is the name for everything without a name of its own.
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

// AllJobs returns the name of the series of all jobs.
func AllJobs() Name { return Name{All, Everything} }

// String returns the name as in Redis: "c:Mail".
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

// bounded replaces an empty or overlong name by Other.
func bounded(name string) string {
	if name == "" || len(name) > MaxName {
		return Other
	}
	return name
}

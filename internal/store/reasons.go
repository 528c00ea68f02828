package store

import (
	"maps"
	"slices"
)

// Reason says why none of a queue's jobs can start now, whichever process asks. The zero value: it holds none.
// Why a daemon with a free thread does not take a job that could start is not among them: its cap on the queue, its
// state, or a queue that comes first.
type Reason byte

// The letters stand in the answers of lua/poll.lua.
const (
	Free   Reason = 'f' // one may start
	Locked Reason = 'l' // the locks of all are known to be held
	Lined  Reason = 'w' // so it is, and all wait in lines: the list of the queue is empty
	Paused Reason = 'p' // the queue is paused, or all are
)

// Reasons has the queues that hold jobs.
type Reasons map[string]Reason

// With returns the queues that have one of some reasons, sorted.
func (r Reasons) With(reasons ...Reason) []string {
	names := slices.Sorted(maps.Keys(r))
	return slices.DeleteFunc(names, func(queue string) bool { return !slices.Contains(reasons, r[queue]) })
}

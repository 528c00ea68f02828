package store

import (
	"maps"
	"slices"
)

// Reason says why none of a queue's jobs can start now, for any process. The zero value: it has none. Reasons
// of a daemon with a free thread, such as its cap, its state or an earlier queue, are not included.
type Reason byte

// The letters come from lua/poll.lua.
const (
	Free   Reason = 'f' // a job may start
	Locked Reason = 'l' // the locks of all are known to be held
	Lined  Reason = 'w' // likewise, and all wait in lines: the queue's list is empty
	Paused Reason = 'p' // the queue is paused, or all are
)

// Reasons maps the queues with jobs to their reasons.
type Reasons map[string]Reason

// With returns the queues with one of some reasons, sorted.
func (r Reasons) With(reasons ...Reason) []string {
	names := slices.Sorted(maps.Keys(r))
	return slices.DeleteFunc(names, func(queue string) bool { return !slices.Contains(reasons, r[queue]) })
}

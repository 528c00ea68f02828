package top

import (
	"slices"
	"time"
)

const (
	// share is which part of the time, at most, Redis works for snapshots: one of so many.
	share = 50
	// judged is by how many snapshots the pace is judged. The fastest counts: one that was
	// late for another reason does not slow down those after it.
	judged = 3
)

// pace says when the next snapshot is due.
type pace struct {
	every time.Duration
	took  []time.Duration
}

// next returns how long to wait after a snapshot that has taken so long. Its time on the way
// counts as well, so that Redis is busy for less than its share.
func (p *pace) next(took time.Duration) time.Duration {
	p.took = append(p.took, took)
	p.took = p.took[max(0, len(p.took)-judged):]
	return max(p.every, share*slices.Min(p.took))
}

package view

import (
	"maps"
	"slices"
	"strings"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

// Scale is how much work more daemons could do.
type Scale struct {
	// Jobs is Waiting plus Running.
	Jobs int64 `json:"jobs"`
	// Waiting counts jobs that a free thread would take.
	Waiting int64 `json:"waiting"`
	// Running counts resqued's jobs in flight.
	Running int64 `json:"running"`
}

// ParseQueues reads a queue list in the format of the configuration: "mail,img_*,!low".
func ParseQueues(list string) (selector.Spec, error) {
	spec, _, err := selector.Parse(strings.Split(list, ","), 1)
	return spec, err
}

// Scale returns the work of the queues that spec selects. Jobs that wait for a lock, suspects and
// paused queues don't count: another daemon would not take them. Caps are per daemon.
func (v *Snapshot) Scale(spec selector.Spec) Scale {
	running := map[string]int64{}
	for _, p := range v.read.procs {
		for _, job := range p.Running {
			running[job.Queue]++
		}
	}
	names := slices.Collect(maps.Keys(running)) // a queue may have been removed
	for _, q := range v.read.queues {
		names = append(names, q.Name)
	}
	var s Scale
	selected := map[string]bool{}
	for _, c := range spec.Resolve(names) {
		selected[c.Queue] = true
		s.Running += running[c.Queue]
	}
	for _, q := range v.read.queues {
		if selected[q.Name] && q.Reason() == store.Free {
			s.Waiting += q.Size - q.Lined
		}
	}
	s.Jobs = s.Waiting + s.Running
	return s
}

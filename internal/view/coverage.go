package view

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// foreignDead is how old a dead Ruby worker's heartbeat is. Resque prunes after 5 min; clocks
// differ.
const foreignDead = 10 * time.Minute

// Coverage is which queues the running workers take jobs from.
type Coverage struct {
	// Masters are the entries of resqued's masters by id.
	Masters map[string]map[string]string
	specs   []selector.Spec
	// foreign are the queue lists of other workers.
	foreign []*queueList
}

// Covers reads which queues are worked.
func Covers(ctx context.Context, s *store.Store) (*Coverage, error) {
	masters, err := s.MasterList(ctx)
	if err != nil {
		return nil, err
	}
	c := &Coverage{Masters: masters}
	for _, id := range slices.Sorted(maps.Keys(masters)) {
		fields := masters[id]
		if fields[store.FieldUnread] != "" {
			continue
		}
		if spec, _, err := selector.Parse(strings.Split(fields["queues"], ","), max(1, threadsOf(fields))); err == nil {
			c.specs = append(c.specs, spec)
		}
	}
	ids, beats, err := s.WorkerIDs(ctx)
	if err != nil {
		return nil, err
	}
	var others []store.WorkerInfo
	for _, id := range ids {
		name, err := wire.ParseWorkerID(id)
		beat, beats := beats[id]
		if err != nil || name.Ours || beats && time.Since(beat) > foreignDead {
			continue
		}
		others = append(others, store.NewWorkerInfo(id))
	}
	c.foreign = queueLists(others)
	return c, nil
}

// Any reports whether any worker is running.
func (c *Coverage) Any() bool { return len(c.specs)+len(c.foreign) > 0 }

// Works reports whether a worker takes jobs from a queue.
func (c *Coverage) Works(queue string) bool {
	return c.WorksForeign(queue) || slices.ContainsFunc(c.specs, func(s selector.Spec) bool {
		return slices.ContainsFunc(s.Resolve([]string{queue}), func(chosen selector.Choice) bool { return chosen.Queue == queue })
	})
}

// WorksForeign reports whether a worker that is not resqued's takes jobs from a queue.
func (c *Coverage) WorksForeign(queue string) bool {
	return slices.ContainsFunc(c.foreign, func(l *queueList) bool { return selector.MatchAny(l.patterns, queue) })
}

// Names returns the queues that workers name, without patterns, those of resqued's masters first.
func (c *Coverage) Names() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) && !strings.ContainsAny(name, "*?[!") {
			names = append(names, name)
		}
	}
	for _, s := range c.specs {
		for _, p := range s.Patterns {
			if !p.Glob {
				add(p.Text)
			}
		}
	}
	for _, l := range c.foreign {
		for _, name := range l.patterns {
			add(name)
		}
	}
	return names
}

package longjob

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// WorkTree is like WorkEach for the leaves of a tree of maps, in the order of their sorted
// paths. Each value that is not a map[string]any is a leaf, identified by its path. Between two
// slices leaves may be added and removed anywhere.
func WorkTree(ctx context.Context, r *Runner, key string, tree map[string]any, fn func(ctx context.Context, path []string, leaf any) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	var leaves []leafAt
	walkTree(nil, tree, func(l leafAt) { leaves = append(leaves, l) })
	var after []string
	if s.place.Value != nil { // an older version has saved the last path that is done
		if err := json.Unmarshal(s.place.Value, &after); err != nil {
			return fmt.Errorf("longjob: the last path of step %q: %w", key, err)
		}
		s.place.Value = nil
	}
	l := &list{step: s, n: len(leaves), print: func(i int) (mark64, error) {
		m, _, err := fingerprint(leaves[i].path)
		return m, err
	}}
	if after != nil {
		l.was = func() []bool {
			done := make([]bool, len(leaves))
			for i := range leaves {
				done[i] = slices.Compare(leaves[i].path, after) <= 0
			}
			return done
		}
	}
	return l.work(ctx, func(ctx context.Context, i int) error { return fn(ctx, leaves[i].path, leaves[i].leaf) })
}

type leafAt struct {
	path []string
	leaf any
}

func walkTree(path []string, node map[string]any, each func(leafAt)) {
	for _, name := range slices.Sorted(maps.Keys(node)) {
		at := append(slices.Clone(path), name)
		if branch, ok := node[name].(map[string]any); ok {
			walkTree(at, branch, each)
		} else {
			each(leafAt{at, node[name]})
		}
	}
}

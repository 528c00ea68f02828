package longjob

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// WorkTree runs fn for each leaf of a tree of maps, in the order of their sorted paths, each
// as a unit. Whatever is no map[string]any is a leaf. A later slice goes on with the first
// path behind the last one that is done: leaves may come and go meanwhile.
func WorkTree(ctx context.Context, r *Runner, key string, tree map[string]any, fn func(ctx context.Context, path []string, leaf any) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	var after []string
	if s.place.N > 0 {
		if err := json.Unmarshal(s.place.Value, &after); err != nil {
			return fmt.Errorf("longjob: the last path of step %q: %w", key, err)
		}
	}
	total := countLeaves(tree)
	s.enter(total)
	type leafAt struct {
		path []string
		leaf any
	}
	var walk func(path []string, node map[string]any, each func(leafAt) error) error
	walk = func(path []string, node map[string]any, each func(leafAt) error) error {
		for _, name := range slices.Sorted(maps.Keys(node)) {
			at := append(slices.Clone(path), name)
			if branch, ok := node[name].(map[string]any); ok {
				if err := walk(at, branch, each); err != nil {
					return err
				}
				continue
			}
			if after != nil && slices.Compare(at, after) <= 0 {
				continue
			}
			if err := each(leafAt{at, node[name]}); err != nil {
				return err
			}
		}
		return nil
	}
	err = walk(nil, tree, func(l leafAt) error {
		return eachItem(ctx, s, l.path, total, true, func(ctx context.Context, path []string) error { return fn(ctx, path, l.leaf) })
	})
	if err != nil {
		return err
	}
	return s.complete(ctx, total)
}

func countLeaves(node map[string]any) int64 {
	var n int64
	for _, v := range node {
		if branch, ok := v.(map[string]any); ok {
			n += countLeaves(branch)
		} else {
			n++
		}
	}
	return n
}

package store

import (
	"context"
	"fmt"
	"slices"
)

const (
	// pageElements and pageBytes bound what a walk reads at a time.
	pageElements = 500
	pageBytes    = 1 << 20
	// overlap is how far a list may move toward its head between two reads (in pages of
	// small elements) and still be found by the same read.
	overlap = 200
	// maxRestarts bounds how often a walk begins anew, because the element before its place is gone.
	maxRestarts = 200
)

// walk goes through a list from its head to its tail while others push to it and take
// from it. What stands there all the time is seen at least once.
type walk struct {
	s   *Store
	key string
	// pos is the index of the next element as far as is known, size how many are read.
	pos, size int64
	// last is the element before pos, by which the place is found again.
	last     string
	restarts int
}

func (s *Store) walk(key string) *walk { return &walk{s: s, key: key, size: 16} }

// next returns the next elements and the index of the first of them; none at the end.
func (w *walk) next(ctx context.Context) (from int64, page []string, err error) {
	for {
		start := max(0, w.pos-min(overlap, w.size))
		part, err := w.s.db.Read.LRange(ctx, w.key, start, w.pos+w.size-1).Result()
		if err != nil {
			return 0, nil, err
		}
		bytes := 0
		for _, element := range part {
			bytes += len(element)
		}
		switch {
		case bytes > pageBytes:
			w.size = max(1, w.size/2)
		case bytes < pageBytes/4:
			w.size = min(2*w.size, pageElements)
		}
		if w.pos == 0 {
			return 0, part, nil
		}
		for i := min(w.pos-1-start, int64(len(part))-1); i >= 0; i-- {
			if part[i] == w.last {
				w.pos = start + i + 1
				return w.pos, part[i+1:], nil
			}
		}
		if err := w.back(ctx, start); err != nil {
			return 0, nil, err
		}
	}
}

// back looks for the last element before an index. It is there if more than overlap was taken from the head.
// Otherwise the walk begins anew.
func (w *walk) back(ctx context.Context, end int64) error {
	for end > 0 {
		start := max(0, end-w.size)
		part, err := w.s.db.Read.LRange(ctx, w.key, start, end-1).Result()
		if err != nil {
			return err
		}
		for i, element := range slices.Backward(part) {
			if element == w.last {
				w.pos = start + int64(i) + 1
				return nil
			}
		}
		end = start
	}
	if w.restarts++; w.restarts > maxRestarts {
		return fmt.Errorf("%s changes faster than it can be read", w.key)
	}
	w.pos = 0
	return nil
}

// done steps over the elements of a page that are still there.
func (w *walk) done(from int64, kept []string) {
	w.pos = from + int64(len(kept))
	if len(kept) > 0 {
		w.last = kept[len(kept)-1]
	}
}

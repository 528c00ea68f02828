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
	// maxTail is how many elements are compared for that.
	maxTail = 64
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
	// tail are the last elements before pos, by which the place is found again. One alone may have equals; a job
	// among more than maxTail equals on each side may be missed if the head is taken from meanwhile.
	tail     []string
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
			if w.endsAt(part, int(i), start == 0) {
				w.pos = start + i + 1
				return w.pos, part[i+1:], nil
			}
		}
		if err := w.back(ctx, start); err != nil {
			return 0, nil, err
		}
	}
}

// back looks for the place of the walk before an index. It is there if more than overlap was taken from the head.
// Otherwise the walk begins anew.
func (w *walk) back(ctx context.Context, before int64) error {
	tail := int64(len(w.tail))
	for before > 0 {
		end := before + tail - 1 // the tail may reach beyond
		before = max(0, end-max(w.size, 2*tail))
		part, err := w.s.db.Read.LRange(ctx, w.key, before, end-1).Result()
		if err != nil {
			return err
		}
		for i := range slices.Backward(part) {
			if w.endsAt(part, i, before == 0) {
				w.pos = before + int64(i) + 1
				return nil
			}
		}
	}
	if w.restarts++; w.restarts > maxRestarts {
		return fmt.Errorf("%s changes faster than it can be read", w.key)
	}
	w.pos, w.tail = 0, nil
	return nil
}

// done steps over the elements of a page that are still there.
func (w *walk) done(from int64, kept []string) {
	w.pos = from + int64(len(kept))
	w.tail = append(w.tail, kept...)
	w.tail = slices.Delete(w.tail, 0, max(0, len(w.tail)-int(max(1, min(maxTail, w.size/2)))))
}

// endsAt reports whether the elements before the place of the walk end at an index of what was read. head: it was
// read from the head on, where elements may have been taken.
func (w *walk) endsAt(part []string, i int, head bool) bool {
	for back, element := range slices.Backward(w.tail) {
		at := i - (len(w.tail) - 1 - back)
		if at < 0 {
			return head
		}
		if part[at] != element {
			return false
		}
	}
	return true
}

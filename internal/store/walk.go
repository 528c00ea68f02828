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
	// overlap is how far a list may move toward its head between two reads and the position is still found
	// by the same read (in pages of small elements).
	overlap = 200
	// maxTail is how many elements are compared for that.
	maxTail = 64
	// maxRestarts bounds how often a walk starts again because its position is lost.
	maxRestarts = 200
)

// nextPage returns the size of the next page, at most limit elements, after a page of this size, so that pages have
// about bytes bytes.
func nextPage(size int64, page []string, bytes, limit int64) int64 {
	switch read := bytesOf(page); {
	case read > bytes:
		return max(1, size/2)
	case read < bytes/4:
		return min(2*size, limit)
	}
	return size
}

func bytesOf(texts []string) (n int64) {
	for _, text := range texts {
		n += int64(len(text))
	}
	return n
}

// walk iterates over a list from head to tail while other processes push and take. It sees an element that is
// there all the time at least once.
type walk struct {
	s   *Store
	key string
	// pos is the next element's index, as far as known, size how many are read.
	pos, size int64
	// tail are the last elements before pos, by which the position is found again, as a single one may
	// have equals. A job among more than maxTail equals on each side may be missed if the head is taken.
	tail     []string
	restarts int
}

func (s *Store) walk(key string) *walk { return &walk{s: s, key: key, size: 16} }

// next returns the next elements and the index of the first; none at the end.
func (w *walk) next(ctx context.Context) (from int64, page []string, err error) {
	for {
		start := max(0, w.pos-min(overlap, w.size))
		part, err := w.s.db.Read.LRange(ctx, w.key, start, w.pos+w.size-1).Result()
		if err != nil {
			return 0, nil, err
		}
		w.size = nextPage(w.size, part, pageBytes, pageElements)
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

// back searches for the position before an index, where it is if more than overlap was taken from the head.
// Otherwise the walk starts again.
func (w *walk) back(ctx context.Context, before int64) error {
	tail := int64(len(w.tail))
	for before > 0 {
		end := before + tail - 1 // the tail may reach further
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

// done advances past the elements of a page that are still there.
func (w *walk) done(from int64, kept []string) {
	w.pos = from + int64(len(kept))
	w.tail = append(w.tail, kept...)
	w.tail = slices.Delete(w.tail, 0, max(0, len(w.tail)-int(max(1, min(maxTail, w.size/2)))))
}

// endsAt reports whether the elements before the walk's position end at index i of part. head: part begins at
// the list's head, where elements may have been taken.
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

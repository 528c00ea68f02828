package workerproc

import (
	"slices"
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

const (
	// namesEvery is how often to read the names of queues that a glob may match.
	namesEvery = time.Minute
	// maxSeen bounds the names that are kept.
	maxSeen = 256
)

// watchlist chooses the queues to wait for. It belongs to the poller's goroutine.
type watchlist struct {
	queues  selector.Spec
	most    int       // how many queues a process waits for that shares with no other
	limit   int       // how many this one waits for, see waker.share
	place   float64   // from 0 to 1: which ones, if it may not wait for all
	seen    []string  // names that globs match; latest with jobs first
	namesAt time.Time // when names were last read
	known   int       // how many queues there were then
	watch   []string  // the choice; nil = undecided
	left    int       // how many of our known queues are not in watch
}

func (w *watchlist) note(names []string) {
	if len(names) == 0 || !w.queues.Dynamic() {
		return
	}
	names = names[:min(len(names), maxSeen)]
	for _, c := range w.queues.Resolve(names) {
		if _, found := slices.BinarySearch(names, c.Queue); !found {
			continue
		}
		i := slices.Index(w.seen, c.Queue)
		if i >= 0 && i < w.limit {
			continue
		}
		if i >= 0 {
			w.seen = slices.Delete(w.seen, i, i+1)
		}
		w.seen, w.watch = slices.Insert(w.seen, 0, c.Queue), nil
	}
	w.seen = w.seen[:min(len(w.seen), maxSeen)]
}

// stale reports whether to read the names of queues again; known is the current number of
// queues.
func (w *watchlist) stale(now time.Time, known int) bool {
	since := now.Sub(w.namesAt)
	return w.queues.Dynamic() && (since >= namesEvery || known != w.known && known <= store.SeenQueues && since >= asleep)
}

func (w *watchlist) learn(now time.Time, names []string) {
	w.namesAt = now
	w.known = len(names) // less than the total if there are many
	for _, c := range w.queues.Resolve(names) {
		if len(w.seen) < maxSeen && slices.Contains(names, c.Queue) && !slices.Contains(w.seen, c.Queue) {
			w.seen, w.watch = append(w.seen, c.Queue), nil
		}
	}
}

// choose returns the queues to wait for: named ones first, then those that globs match, latest
// with jobs first.
func (w *watchlist) choose() []string {
	if w.watch != nil {
		return w.watch
	}
	for _, c := range w.queues.Resolve(nil) {
		w.watch = append(w.watch, c.Queue)
	}
	for _, name := range w.seen {
		if !slices.Contains(w.watch, name) {
			w.watch = append(w.watch, name)
		}
	}
	w.left = max(len(w.watch)-w.limit, 0)
	if w.left > 0 && w.limit < w.most { // other processes wait for other queues
		most := w.watch[:min(len(w.watch), w.most)]
		at := int(w.place * float64(len(most)))
		w.watch = slices.Concat(most[at:], most[:at])[:w.limit]
	}
	w.watch = w.watch[:min(len(w.watch), w.limit)]
	return w.watch
}

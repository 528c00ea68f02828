package runner

import (
	"maps"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// watch observes which notes of schedules are renewed. It relies on its own clock and on what
// it has seen itself: the clock of the server may be set, and while Redis was away no daemon
// could renew a note.
type watch struct {
	kept  map[string]store.KeptNote
	since map[string]time.Time // when the note was first seen as it is
	began time.Time
}

// blind notes that Redis could not be asked.
func (w *watch) blind() { *w = watch{} }

// saw notes what stands in Redis.
func (w *watch) saw(kept map[string]store.KeptNote, now time.Time) {
	if w.began.IsZero() {
		w.began, w.since = now, map[string]time.Time{}
	}
	for name, note := range kept {
		if old, seen := w.kept[name]; !seen || old != note {
			w.since[name] = now
		}
	}
	maps.DeleteFunc(w.since, func(name string, _ time.Time) bool { _, there := kept[name]; return !there })
	w.kept = kept
}

// away reports whether no daemon has the schedule whose definition counts: its note has been
// as it is for so long.
func (w *watch) away(name string, now time.Time, long time.Duration) bool {
	since, noted := w.since[name]
	if !noted {
		since = w.began
	}
	return !since.IsZero() && now.Sub(since) >= long
}

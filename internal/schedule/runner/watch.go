package runner

import (
	"maps"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// watch observes which notes of schedules are renewed. It uses its own clock and only what it has
// seen: the server's clock may be set, and no daemon can renew a note while Redis is down.
type watch struct {
	kept  map[string]store.KeptNote
	since map[string]time.Time // when the note was first seen as it is
	began time.Time
}

// blind forgets everything, because Redis could not be read.
func (w *watch) blind() { *w = watch{} }

// saw takes the notes that are in Redis.
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

// away reports whether no daemon has the definition that counts: its note has not changed for
// long.
func (w *watch) away(name string, now time.Time, long time.Duration) bool {
	since, noted := w.since[name]
	if !noted {
		since = w.began
	}
	return !since.IsZero() && now.Sub(since) >= long
}

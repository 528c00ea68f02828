package store_test

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// pauses are all keys that keep jobs in queues, with values that do.
var pauses = map[string][]string{
	"pause:all":         {"true", "", "false"},
	"pause-all-workers": {"true", " TRUE\n"},
	"pause:queue:a":     {"true", "0"},
	"pause:queue:c":     {"true"},
	"pause:queue:d":     {"true"},
	"pause:queue:e":     {"true"},
}

// pause says by one more key that jobs have to wait, or by the same key that they need
// not. Only some sequences do: a pause keeps much else from happening.
func (m *model) pause(t *rapid.T) {
	if !m.pausing {
		return
	}
	key := rapid.SampledFrom([]string{"pause:all", "pause-all-workers", "pause:queue:a", "pause:queue:c", "pause:queue:d", "pause:queue:e"}).Draw(t, "key")
	if _, paused := m.now[key]; paused {
		m.resume(t)
		return
	}
	value := rapid.SampledFrom(pauses[key]).Draw(t, "value")
	if key == "pause-all-workers" && rapid.Bool().Draw(t, "of no pause") {
		value = rapid.SampledFrom([]string{"", "false", "true-ish", "1"}).Draw(t, "other value")
	}
	storetest.Must(t, m.Redis.Set(m.Ctx, storetest.Space+key, value, 0).Err())
}

// resume ends every pause.
func (m *model) resume(t *rapid.T) {
	for key := range pauses {
		storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+key).Err())
	}
}

// paused reports whether no daemon may take jobs out of a queue.
func paused(s storetest.Snapshot, queue string) bool {
	workers, _ := s.Value(storetest.Space + "pause-all-workers")
	_, all := s["pause:all"]
	_, one := s["pause:queue:"+queue]
	return all || one || strings.EqualFold(strings.TrimSpace(workers), "true")
}

// grantedInPause: no job of a paused queue is given to anybody.
func (m *model) grantedInPause(t *rapid.T, queue string) {
	if paused(m.now, queue) {
		t.Fatalf("a job of %s was taken in a pause", queue)
	}
}

// waitsInPause notes that a pause keeps jobs waiting.
func (m *model) waitsInPause() {
	if slices.ContainsFunc(modelQueues, func(q store.Queue) bool {
		return paused(m.now, q.Name) && len(m.now.Waiting(q.Name)) > 0
	}) {
		m.See("paused")
	}
}

package store_test

import (
	"crypto/sha1" //nolint:gosec // as in the scripts
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// purge empties a queue; what has died in it is forgotten.
func (m *model) purge(t *rapid.T) {
	queue := m.deadly(t).queue
	waiting := m.now.list("queue:" + queue)
	n, err := m.store.RemoveQueue(m.ctx, queue, true)
	must(t, err)
	for _, payload := range waiting {
		m.count[item{queue, payload}]--
		n--
	}
	for it, suspects := range m.now.apart() {
		if it.queue == queue {
			m.count[it] -= suspects
			n -= int64(suspects)
		}
	}
	if n != 0 {
		t.Fatalf("I1: %s was emptied of %d jobs more than it had", queue, n)
	}
	for it := range m.starts {
		if it.queue == queue {
			delete(m.starts, it)
		}
	}
	for it := range m.blamed {
		if it.queue == queue {
			m.see("death forgotten")
			m.pardon(it)
		}
	}
}

// dequeue removes all equal jobs from a queue. Their deaths are forgotten, unless suspects
// wait beside it.
func (m *model) dequeue(t *rapid.T) {
	it := m.deadly(t)
	queue, waiting := it.queue, m.now.list("queue:"+it.queue)
	if len(waiting) == 0 {
		return
	}
	if !slices.Contains(waiting, it.payload) {
		it.payload = rapid.SampledFrom(waiting).Draw(t, "dequeued")
	}
	n, err := m.store.Dequeue(m.ctx, queue, func(payload []byte) bool { return string(payload) == it.payload }, nil)
	must(t, err)
	if n == 0 {
		t.Fatalf("I1: %q of %s was not there to be dequeued", it.payload, queue)
	}
	m.count[it] -= int(n)
	delete(m.starts, it)
	if len(m.now.list("resqued:suspects:"+queue)) > 0 {
		m.stray[it] = true
		return
	}
	if m.blamed[it] {
		m.see("death forgotten")
	}
	m.pardon(it)
}

// deadly returns a job that may have killed its process, or none of any queue.
func (m *model) deadly(t *rapid.T) item {
	all := slices.SortedFunc(maps.Keys(m.blamed), func(a, b item) int { return strings.Compare(a.queue+a.payload, b.queue+b.payload) })
	if len(all) == 0 {
		return item{queue: m.anyQueue(t).Name}
	}
	return rapid.SampledFrom(all).Draw(t, "deadly")
}

// pardon: nothing is known any more of the deaths of a job, but in records of equal ones.
func (m *model) pardon(it item) { delete(m.blamed, it) }

// I11: each count of deaths is that of a job, unless that got out of sight.
func (m *model) checkDeaths(t *rapid.T) {
	if m.untidy {
		return
	}
	known := map[string]bool{}
	live, _ := m.now.places(t)
	for it, n := range live {
		if n > 0 {
			known[deathName(it)] = true
		}
	}
	for it := range m.stray {
		known[deathName(it)] = true
	}
	counted := map[string]bool{}
	for key := range m.now {
		queue, ok := strings.CutPrefix(key, "resqued:deaths:")
		if !ok {
			continue
		}
		counted[queue] = true
		for name := range m.now.hash(key) {
			if !known[queue+" "+name] {
				t.Fatalf("I11: deaths of %s %s are counted, and there is no such job", queue, name)
			}
		}
		if times := m.now.hash("resqued:died:" + queue); len(times) != len(m.now.hash(key)) {
			t.Fatalf("I11: deaths of %d jobs of %s are counted, and %d times are known", len(m.now.hash(key)), queue, len(times))
		}
	}
	for key := range m.now {
		if queue, ok := strings.CutPrefix(key, "resqued:died:"); ok && !counted[queue] {
			t.Fatalf("I11: left: %s", key)
		}
	}
	for queue := range m.now.hash("resqued:deaths") {
		if !counted[queue] {
			t.Fatalf("I11: %s counts among the queues with deaths, and has none", queue)
		}
		delete(counted, queue)
	}
	if len(counted) > 0 {
		t.Fatalf("I11: %v do not count among the queues with deaths", counted)
	}
}

// deathName is what names the count of a job, behind its queue.
func deathName(it item) string {
	return fmt.Sprintf("%s %x", it.queue, sha1.Sum([]byte(it.payload))) //nolint:gosec // as above
}

package store_test

import (
	"crypto/sha1" //nolint:gosec // as in the scripts
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/testkit/storetest"
)

// purge empties a queue; what has died in it is forgotten.
func (m *model) purge(t *rapid.T) {
	queue := m.deadly(t).Queue
	waiting := m.now.Waiting(queue)
	n, err := m.Store.RemoveQueue(m.Ctx, queue, true)
	storetest.Must(t, err)
	for _, payload := range waiting {
		m.count[storetest.Item{Queue: queue, Payload: payload}]--
		n--
	}
	for it, suspects := range m.now.Apart() {
		if it.Queue == queue {
			m.count[it] -= suspects
			n -= int64(suspects)
		}
	}
	if n != 0 {
		t.Fatalf("I1: %s was emptied of %d jobs more than it had", queue, n)
	}
	for it := range m.starts {
		if it.Queue == queue {
			delete(m.starts, it)
		}
	}
	for it := range m.blamed {
		if it.Queue == queue {
			m.See("death forgotten")
			m.pardon(it)
		}
	}
}

// dequeue removes all equal jobs from a queue. Their deaths are forgotten, unless suspects
// wait beside it.
func (m *model) dequeue(t *rapid.T) {
	it := m.deadly(t)
	queue, waiting := it.Queue, m.now.Waiting(it.Queue)
	if len(waiting) == 0 {
		return
	}
	if !slices.Contains(waiting, it.Payload) {
		it.Payload = rapid.SampledFrom(waiting).Draw(t, "dequeued")
	}
	n, err := m.Store.Dequeue(m.Ctx, queue, func(payload []byte) bool { return string(payload) == it.Payload }, nil)
	storetest.Must(t, err)
	if n == 0 {
		t.Fatalf("I1: %q of %s was not there to be dequeued", it.Payload, queue)
	}
	m.count[it] -= int(n)
	delete(m.starts, it)
	if len(m.now.List("resqued:suspects:"+queue)) > 0 {
		m.stray[it] = true
		return
	}
	if m.blamed[it] {
		m.See("death forgotten")
	}
	m.pardon(it)
}

// deadly returns a job that may have killed its process, or none of any queue.
func (m *model) deadly(t *rapid.T) storetest.Item {
	all := slices.SortedFunc(maps.Keys(m.blamed), func(a, b storetest.Item) int { return strings.Compare(a.Queue+a.Payload, b.Queue+b.Payload) })
	if len(all) == 0 {
		return storetest.Item{Queue: m.anyQueue(t).Name}
	}
	return rapid.SampledFrom(all).Draw(t, "deadly")
}

// pardon: nothing is known any more of the deaths of a job, but in records of equal ones.
func (m *model) pardon(it storetest.Item) { delete(m.blamed, it) }

// I11: each count of deaths is that of a job, unless that got out of sight.
func (m *model) checkDeaths(t *rapid.T) {
	if m.untidy {
		return
	}
	known := map[string]bool{}
	live, _ := m.now.Places(t)
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
		for name := range m.now.Hash(key) {
			if !known[queue+" "+name] {
				t.Fatalf("I11: deaths of %s %s are counted, and there is no such job", queue, name)
			}
		}
		if times := m.now.Hash("resqued:died:" + queue); len(times) != len(m.now.Hash(key)) {
			t.Fatalf("I11: deaths of %d jobs of %s are counted, and %d times are known", len(m.now.Hash(key)), queue, len(times))
		}
	}
	for key := range m.now {
		if queue, ok := strings.CutPrefix(key, "resqued:died:"); ok && !counted[queue] {
			t.Fatalf("I11: left: %s", key)
		}
	}
	for queue := range m.now.Hash("resqued:deaths") {
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
func deathName(it storetest.Item) string {
	return fmt.Sprintf("%s %x", it.Queue, sha1.Sum([]byte(it.Payload))) //nolint:gosec // as above
}

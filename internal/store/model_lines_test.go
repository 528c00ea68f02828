package store_test

import (
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/testkit/storetest"
)

// checkLines holds the lines to what is known of them: each has jobs, of its lock alone; the
// queue's count and the index by locks know of exactly these; and one whose lock is free is
// ready, unless that became free without a word to the lines (I5).
func (m *model) checkLines(t *rapid.T) {
	counts, known := m.checkTurns(t), map[string]bool{}
	for _, l := range m.now.Lines() {
		m.See("lined")
		counts[l.Queue] += len(l.Payloads)
		known[l.Queue+" "+l.Name] = true
		for _, payload := range l.Payloads {
			if name := m.lockName(l.Queue, payload); name != l.Name {
				t.Fatalf("a job with lock %q waits in the line of %q of %s", name, l.Name, l.Queue)
			}
		}
		lock := storetest.Space + "locket:job_locks:" + l.Name
		behind := m.now.Apart()[storetest.Item{Queue: l.Queue, Payload: l.Payloads[0]}] > 0 // the suspect goes first
		if _, ready := m.now.Hash("resqued:ready:" + l.Queue)[l.Name]; !ready && !m.now.Held(lock) && !m.freed[lock] && !m.orphaned(lock) && !behind {
			t.Fatalf("I5: %d jobs of %s wait in a line, and %s is free", len(l.Payloads), l.Queue, lock)
		}
	}
	for _, q := range modelQueues {
		if n := m.now.Number("resqued:lined", q.Name); n != counts[q.Name] {
			t.Fatalf("%d jobs of %s count as lined, and %d are", n, q.Name, counts[q.Name])
		}
		for name := range m.now.Hash("resqued:lines:" + q.Name) {
			if !known[q.Name+" "+name] {
				t.Fatalf("%s has no line for %q, and one is known", q.Name, name)
			}
			if !slices.Contains(awaiting(m.now.Hash("resqued:awaited")[name]), q.Name) {
				t.Fatalf("that %s waits for %q is not known", q.Name, name)
			}
			delete(known, q.Name+" "+name)
		}
	}
	if len(known) > 0 {
		t.Fatalf("lines that are not known: %v", known)
	}
	for name, text := range m.now.Hash("resqued:awaited") {
		for _, queue := range awaiting(text) {
			if _, there := m.now.Hash("resqued:lines:" + queue)[name]; !there {
				t.Fatalf("%s is said to wait for %q, and does not", queue, name)
			}
		}
	}
}

// orphaned reports whether the record of who holds a lock was lost, which no line is told of.
func (m *model) orphaned(lock string) bool {
	_, lost := m.orphans[lock]
	return lost
}

// awaiting reads a list of "<length> <queue>".
func awaiting(text string) (queues []string) {
	for text != "" {
		size, rest, _ := strings.Cut(text, " ")
		n, _ := strconv.Atoi(size)
		queues, text = append(queues, rest[:n]), rest[n:]
	}
	return queues
}

// strangers lets workers of others be registered for queues, or none any more.
func (m *model) strangers(t *rapid.T) {
	key := storetest.Space + "resqued:strangers"
	storetest.Must(t, m.Redis.Del(m.Ctx, key).Err())
	if !m.full && rapid.Bool().Draw(t, "strangers") {
		storetest.Must(t, m.Redis.SAdd(m.Ctx, key, rapid.SampledFrom([]string{"a", "*"}).Draw(t, "of")).Err())
	}
}

package store_test

import (
	"crypto/sha1" //nolint:gosec // as the scripts
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// alone: a process that runs nothing else asks for a suspect. It may hold jobs of
// steps before; the scripts do not look at that.
func (m *model) alone(t *rapid.T) {
	p := m.anyProcess(t)
	if p.fenced {
		return
	}
	m.runAlone(t, p, modelQueues, rapid.SampledFrom(fates).Draw(t, "fate"))
}

func (m *model) runAlone(t *rapid.T, p *process, queues []store.Queue, fate string) int {
	before := m.now.Apart()
	m.how = store.OnlySuspects
	got := m.request(t, p, nil, queues, 1, fate)
	m.how = store.SetApart
	after := m.Look(t).Apart()
	taken := 0
	for it, n := range before {
		taken += n - after[it]
	}
	if taken != got || got > 1 {
		t.Fatalf("I8: %d suspects were taken, %d run", taken, got)
	}
	if got > 0 {
		m.See("ran apart")
	}
	return got
}

// checkKept holds the locks that are kept to what may be: one is kept for a suspect, or a line, that waits for it, not for long.
// Each look makes the requests of lines old enough to be met with the next release.
func (m *model) checkKept(t *rapid.T, holders map[string]string) {
	maps.DeleteFunc(m.kept, func(lock, _ string) bool {
		_, there := m.now.Value(lock)
		m.freed[lock] = m.freed[lock] || !there
		return !there
	})
	for key, e := range m.now {
		lock := storetest.Space + key
		if strings.HasPrefix(key, "resqued:asks:") {
			storetest.Must(t, m.Redis.PExpire(m.Ctx, lock, 38*time.Second).Err())
		}
		if name, ok := strings.CutPrefix(key, "locket:job_locks:"); ok && strings.HasPrefix(e.Values[0], "line:") {
			waits := slices.ContainsFunc(m.now.Lines(), func(l storetest.Line) bool { return "line:"+l.Queue == e.Values[0] && l.Name == name })
			if m.kept[lock] != e.Values[0] && !waits || e.TTL <= 0 {
				t.Fatalf("I5: %s is kept for %q, which does not wait for it, for %d ms", lock, e.Values[0], e.TTL)
			}
			m.See("kept for a line")
			holders[lock], m.kept[lock] = e.Values[0], e.Values[0]
			continue
		}
		id, kept := "", false
		if strings.HasPrefix(key, "locket:job_locks:") {
			id, kept = strings.CutPrefix(e.Values[0], "suspect:")
		}
		if !kept {
			delete(m.kept, lock)
			continue
		}
		wanted := slices.ContainsFunc(slices.Collect(maps.Keys(m.now.Apart())), func(it storetest.Item) bool {
			return fmt.Sprintf("%x", sha1.Sum([]byte(it.Payload))) == id && m.lockKey(it.Queue, it.Payload) == lock //nolint:gosec // as the script
		})
		if m.kept[lock] != id && !wanted || e.TTL <= 0 {
			t.Fatalf("I8: %s is kept for %q, which does not wait for it, for %d ms", lock, id, e.TTL)
		}
		m.See("kept for a suspect")
		holders[lock], m.kept[lock] = e.Values[0], id
	}
}

// keeps reports whether locks are kept for suspects that were not before.
func (m *model) keeps(before storetest.Snapshot) bool {
	for key, e := range m.now {
		value, _ := before.Value(storetest.Space + key)
		if strings.HasPrefix(key, "locket:job_locks:") && value != e.Values[0] && strings.HasPrefix(e.Values[0], "suspect:") {
			return true
		}
	}
	return false
}

// unkeep lets the time pass for which locks are kept, and for which suspects and lines ask for them: those
// may be gone.
func (m *model) unkeep(t *rapid.T) {
	for lock := range m.kept {
		m.end(t, lock)
	}
	for key := range m.now {
		if strings.HasPrefix(key, "resqued:request:") || strings.HasPrefix(key, "resqued:asks:") {
			storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+key).Err())
		}
	}
}

// setApart: suspects have left their queues.
func (m *model) setApart(t *rapid.T) {
	before := m.now.Apart()
	for it, n := range m.Look(t).Apart() {
		if n > before[it] {
			m.See("set apart")
			delete(m.starts, it) // an equal one that comes now has its own
		}
	}
}

// suspected compares what a record says of its job with what has happened to it.
func (m *model) suspected(t *rapid.T, job store.Reserved) {
	it := storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}
	if job.Blame > 0 != m.blamed[it] || job.Blame > job.Deaths {
		t.Fatalf("I8: %d deaths are to the blame of %q of %s, of %d; suspected: %v", job.Blame, it.Payload, it.Queue, job.Deaths, m.blamed[it])
	}
	if job.Blame > 0 && m.how == store.SetApart {
		t.Fatalf("I8: a suspect runs beside others: %q of %s", it.Payload, it.Queue)
	}
}

// blame notes what the death of its process means for a job.
func (m *model) blame(it storetest.Item, a store.Action, before int) {
	switch {
	case a == store.Fail:
		delete(m.blamed, it)
	case a == store.Suspect, a == store.Requeue && before > 0:
		m.blamed[it] = true
	}
}

func (m *model) polledSuspects(t *rapid.T, told map[string]int, after storetest.Snapshot) {
	count := map[string]int{}
	for it, n := range after.Apart() {
		if !paused(after, it.Queue) {
			count[it.Queue] += n
		}
	}
	if len(told)+len(count) > 0 && !maps.Equal(told, count) {
		t.Fatalf("I8: %v wait apart, poll says %v", count, told)
	}
}

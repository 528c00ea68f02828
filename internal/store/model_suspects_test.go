package store_test

import (
	"maps"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/storetest"
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

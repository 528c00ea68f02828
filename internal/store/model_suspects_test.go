package store_test

import (
	"maps"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

// apart counts the payloads that were set apart.
func (s snapshot) apart() map[item]int {
	out := map[item]int{}
	for key, e := range s {
		queue, ok := strings.CutPrefix(key, "resqued:suspects:")
		for _, element := range e.values {
			if ok {
				_, payload, _ := strings.Cut(element, " ") // <start> <payload>
				out[item{queue, payload}]++
			}
		}
	}
	return out
}

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
	before := m.now.apart()
	m.how = store.OnlySuspects
	got := m.request(t, p, nil, queues, 1, fate)
	m.how = store.SetApart
	after := m.look(t).apart()
	taken := 0
	for it, n := range before {
		taken += n - after[it]
	}
	if taken != got || got > 1 {
		t.Fatalf("I8: %d suspects were taken, %d run", taken, got)
	}
	if got > 0 {
		m.see("ran apart")
	}
	return got
}

// setApart: suspects have left their queues.
func (m *model) setApart(t *rapid.T) {
	before := m.now.apart()
	for it, n := range m.look(t).apart() {
		if n > before[it] {
			m.see("set apart")
			delete(m.starts, it) // an equal one that comes now has its own
		}
	}
}

// suspected compares what a record says of its job with what has happened to it.
func (m *model) suspected(t *rapid.T, job store.Reserved) {
	it := item{job.Queue, string(job.Payload)}
	if job.Blame > 0 != m.blamed[it] || job.Blame > job.Deaths {
		t.Fatalf("I8: %d deaths are to the blame of %q of %s, of %d; suspected: %v", job.Blame, it.payload, it.queue, job.Deaths, m.blamed[it])
	}
	if job.Blame > 0 && m.how == store.SetApart {
		t.Fatalf("I8: a suspect runs beside others: %q of %s", it.payload, it.queue)
	}
}

// blame notes what the death of its process means for a job.
func (m *model) blame(it item, a store.Action, before int) {
	switch {
	case a == store.Fail:
		delete(m.blamed, it)
	case a == store.Suspect, a == store.Requeue && before > 0:
		m.blamed[it] = true
	}
}

func (m *model) polledSuspects(t *rapid.T, told map[string]int, after snapshot) {
	count := map[string]int{}
	for it, n := range after.apart() {
		if !after.paused(it.queue) {
			count[it.queue] += n
		}
	}
	if len(told)+len(count) > 0 && !maps.Equal(told, count) {
		t.Fatalf("I8: %v wait apart, poll says %v", count, told)
	}
}

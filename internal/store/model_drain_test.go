package store_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// drain runs all processes without interference: all jobs are done in a bounded
// number of exchanges, and nothing is left.
func (m *model) drain(t *rapid.T) {
	m.resume(t)
	for lock := range m.foreign {
		m.end(t, lock)
	}
	m.unkeep(t)
	for _, p := range m.procs {
		if p.fenced {
			var verdicts []store.Verdict
			for _, job := range m.fence(t, p) {
				verdicts = append(verdicts, store.Verdict{Token: job.Token, Action: store.Requeue})
			}
			m.recover(t, p, verdicts)
			m.register(t, p)
		}
	}
	m.check(t)
	for m.finish(t); m.work(t); m.finish(t) {
	}
	// The last look at the empty queues tidies up.
	m.request(t, m.procs[0], nil, modelQueues, 1, "answered")
	m.check(t)
	for lock := range m.orphans {
		m.end(t, lock) // no job wanted it, and its time is over
	}
	m.now = m.Look(t)
	m.unmark(t)
	for _, p := range m.procs {
		held, err := m.Store.Unregister(m.Ctx, p.name)
		storetest.Must(t, err)
		if held > 0 {
			t.Fatalf("I1: %s holds %d jobs still", p.name, held)
		}
	}
	for _, queue := range []string{"d", "e"} {
		_, err := m.Store.RepairUneven(m.Ctx, queue) // a daemon does it when it looks next
		storetest.Must(t, err)
	}
	m.checkResidue(t)
}

// unmark enqueues a loner for each marker that is left: its job is nowhere, so it
// blocks no push. The new job removes it.
func (m *model) unmark(t *rapid.T) {
	for i := range 3 {
		key := fmt.Sprint("lock:C:", i)
		if _, left := m.now[store.MarkerKey(key)]; !left {
			continue
		}
		queue, p := theQueue("c"), m.procs[0]
		payload := fmt.Sprint("loner ", i)
		m.bodies[payload] = body{}
		m.enqueueLoner(t, queue, payload, key, 0)
		m.now = m.Look(t)
		m.request(t, p, nil, []store.Queue{queue}, 1, "answered")
		m.now = m.Look(t)
		m.acquireFor(t, p, p.tokens()[0], key, time.Hour, true)
		m.finish(t)
	}
}

// finish ends every job.
func (m *model) finish(t *rapid.T) {
	for _, p := range m.procs {
		var ends []store.Completion
		for _, token := range p.tokens() {
			c := p.end(token, store.Done)
			m.counted(t, &c)
			ends = append(ends, c)
		}
		if len(ends) > 0 {
			m.request(t, p, ends, nil, 0, "answered")
		}
	}
	m.check(t)
}

// work lets each process ask once for jobs, and returns false when none are there.
func (m *model) work(t *rapid.T) bool {
	m.arrive(t)
	reply, err := m.Store.Poll(m.Ctx, store.PollRequest{All: true})
	storetest.Must(t, err)
	m.polled(t, reply)
	waiting, got := 0, 0
	for _, q := range modelQueues {
		waiting += len(m.now.Waiting(q.Name))
		m.patience(t, q.Name)
	}
	for _, n := range m.now.Apart() {
		waiting += n
	}
	if waiting == 0 {
		return false
	}
	for _, p := range m.procs {
		got += m.request(t, p, nil, modelQueues, 4, "answered")
		m.check(t)
		got += m.runAlone(t, p, modelQueues, "answered")
		m.check(t)
	}
	if got == 0 {
		t.Fatalf("I5: %d jobs wait, all locks are free, and nobody gets one: %v", waiting, m.now)
	}
	return true
}

func (m *model) checkResidue(t *rapid.T) {
	stay := []string{"resqued:strangers", "queues", "failed", "stat:", "resqued:meta", "resqued:fence", "resqued:deaths", "resqued:deaths:", "resqued:died:"} // see checkDeaths
	for key, e := range m.Look(t) {
		known := slices.ContainsFunc(stay, func(s string) bool { return key == s || strings.HasSuffix(s, ":") && strings.HasPrefix(key, s) })
		// The companions of a counter that another program has removed expire.
		passes := (strings.HasPrefix(key, "resqued:seen:") || strings.HasPrefix(key, "resqued:blocked:") || strings.HasPrefix(key, "resqued:open:")) && e.TTL > 0
		passes = passes || shown(key) && e.TTL > 0 || strings.HasPrefix(key, attemptsPrefix) // see checkAttempts
		passes = passes || (strings.HasPrefix(key, "resqued:request:") || strings.HasPrefix(key, "resqued:asks:")) && e.TTL > 0
		passes = passes || m.untidy && strings.HasPrefix(key, "timestamps:")
		if !known && !passes {
			t.Fatalf("left: %s, %q", key, e.Values)
		}
	}
}

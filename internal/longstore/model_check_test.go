package longstore_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// check compares the database with the model, and with what must be true whatever the
// model says.
func (m *longModel) check(t *rapid.T) {
	was := m.now
	m.now = m.Look(t)
	m.checkKeys(t)
	for _, uuid := range m.order {
		m.checkRun(t, m.runs[uuid])
	}
	m.checkPlaces(t)
	m.checkRuns(t)
	if inStep(was) && !inStep(m.now) && len(m.now.List("queue:u")) > 0 {
		t.Fatalf("the keys of a unique queue were in step with it, and are not: %v", m.now)
	}
}

// inStep reports whether the companions of the unique queue are there, and what it says.
func inStep(s storetest.Snapshot) bool {
	list := slices.Sorted(slices.Values(s.List("queue:u")))
	return len(list) > 0 && slices.Equal(list, s.List("queue:u:uniqueue")) && len(s.List("queue:u:start_at")) == len(list)
}

func (m *longModel) checkKeys(t *rapid.T) {
	want := map[string]bool{"active": false, "ended": false, "current": len(m.current) > 0, "locks": len(m.locks) > 0}
	for uuid, r := range m.runs {
		want["run:"+uuid], want["state:"+uuid] = true, len(r.state) > 0
		if r.active() {
			want["active"] = true
		} else {
			want["ended"] = true
		}
	}
	maps.DeleteFunc(want, func(_ string, there bool) bool { return !there })
	for key, e := range m.now {
		name, ok := strings.CutPrefix(key, "resqued:longjob:")
		if uuid, slices := strings.CutPrefix(name, "slices:"); slices && m.runs[uuid] != nil {
			continue // for people; TestSlicesAreNoted
		}
		if ok && !want[name] {
			t.Fatalf("%s should not be there: %v", key, e.Values)
		} else if ok && e.TTL != -1 {
			t.Fatalf("%s ends by itself", key)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Fatalf("should be there: %v", want)
	}
	if current := m.now.Hash("resqued:longjob:current"); !maps.Equal(current, m.current) {
		t.Fatalf("the newest runs are %v, should be %v", current, m.current)
	}
	locks := map[string]string{}
	for name, h := range m.locks {
		locks[name] = h.name()
	}
	if held := m.now.Hash("resqued:longjob:locks"); !maps.Equal(held, locks) {
		t.Fatalf("locks: %v, should be %v", held, locks)
	}
}

func (m *longModel) checkRun(t *rapid.T, r *longRun) {
	hash := m.now.Hash("resqued:longjob:run:" + r.uuid)
	for field, at := range r.times {
		if n, err := strconv.ParseInt(hash[field], 10, 64); err != nil || !at.has(n) {
			t.Fatalf("%s: %s is %q, should be %v", r.uuid, field, hash[field], at)
		}
		delete(hash, field)
	}
	delete(hash, "before") // for the notes of slices
	want := maps.Clone(r.hash)
	want["owner"] = ""
	if r.owner != nil {
		want["owner"] = r.owner.name()
	}
	if r.behind != nil {
		want["behind"] = r.behind.name()
	}
	if r.moved {
		want["moved"] = "1"
	}
	if !maps.Equal(hash, want) {
		t.Fatalf("%s is\n%v\nshould be\n%v", r.uuid, hash, want)
	}
	if state := m.now.Hash("resqued:longjob:state:" + r.uuid); !maps.Equal(state, r.state) {
		t.Fatalf("%s remembers %v, should %v", r.uuid, state, r.state)
	}
	set, other := "resqued:longjob:active", "resqued:longjob:ended"
	if !r.active() {
		set, other = other, set
	}
	score, err := strconv.ParseInt(m.now.Hash(set)[r.uuid], 10, 64)
	if err != nil || !r.score.has(score) || m.now.Hash(other)[r.uuid] != "" {
		t.Fatalf("%s, which is %s, has score %q, should have %v; among the others: %q", r.uuid, r.status(), m.now.Hash(set)[r.uuid], r.score, m.now.Hash(other)[r.uuid])
	}
}

// checkPlaces: each payload is where it must be.
func (m *longModel) checkPlaces(t *rapid.T) {
	for _, queue := range []string{"q", "low", "u"} {
		if list := m.now.List("queue:" + queue); !slices.Equal(list, m.queues[queue]) {
			t.Fatalf("in queue %s wait\n%q, should\n%q", queue, list, m.queues[queue])
		}
		var apart []string
		for _, element := range m.now.List("resqued:suspects:" + queue) {
			apart = append(apart, strings.TrimPrefix(element, "- "))
		}
		if !slices.Equal(apart, m.apart[queue]) {
			t.Fatalf("set apart of %s are %q, should be %q", queue, apart, m.apart[queue])
		}
	}
	records := 0
	for key := range m.now {
		if strings.HasPrefix(key, "resqued:inflight:") {
			records += len(m.now.Hash(key))
		}
	}
	for _, h := range m.hands {
		if !h.there {
			continue
		}
		records--
		job, err := store.ParseRecord(h.token, m.now.Hash("resqued:inflight:" + h.proc.name)[h.token])
		storetest.Must(t, err)
		if string(job.Payload) != h.payload || job.Queue != h.queue {
			t.Fatalf("in flight by %s: %s of %s, should be %s of %s", h.name(), job.Payload, job.Queue, h.payload, h.queue)
		}
	}
	if failed := len(m.now.List("failed")); records != 0 || failed != m.failed {
		t.Fatalf("%d records too many, %d jobs failed, should be %d", records, failed, m.failed)
	}
	delayed := m.now.Hash("resqued:delayed")
	if len(delayed) != len(m.delayed) {
		t.Fatalf("delayed: %v, should be %v", delayed, m.delayed)
	}
	for member, score := range delayed {
		_, rest, _ := strings.Cut(member, " ")
		w := m.delayed[member[strings.Index(member, "{"):]]
		if at, _ := strconv.ParseInt(score, 10, 64); !w.due.has(at) || !strings.HasPrefix(strings.Replace(rest, "u ", " ", 1), fmt.Sprintf("%d %s{", len(w.queue), w.queue)) {
			t.Fatalf("delayed: %s until %s, should be %v", member, score, w)
		}
	}
}

// checkRuns is what must be true whatever has happened.
func (m *longModel) checkRuns(t *rapid.T) {
	newest := m.now.Hash("resqued:longjob:current")
	live, _ := m.now.Places(t)
	for _, uuid := range m.order {
		hash := m.now.Hash("resqued:longjob:run:" + uuid)
		if hash["status"] != "queued" && hash["status"] != "running" {
			continue
		}
		if newest[hash["kind"]] != uuid {
			t.Fatalf("%s is %s, and %s is the newest of its kind", uuid, hash["status"], newest[hash["kind"]])
		}
		n := 0
		for it, times := range live {
			if id, slice := numberOf(it.Payload); id == uuid && (slice == 0 || fmt.Sprint(slice) == hash["slice"]) {
				n += times
			}
		}
		if r := m.runs[uuid]; n == 0 && !r.lost && !r.parked || n > 1 && !r.copied {
			t.Fatalf("%s, slice %s of which is next, has %d payloads: %v", uuid, hash["slice"], n, m.now)
		}
	}
}

// drain works all runs to their end, and lets everything be forgotten.
func (m *longModel) drain(t *rapid.T) {
	for _, p := range slices.Clone(m.procs) {
		m.crashed(t, p, false)
	}
	for _, queue := range []string{"q", "low", "u"} {
		m.back(t, queue)
	}
	m.check(t)
	m.procs = nil
	p := m.birth(t)
	m.check(t)
	for round := 0; ; round++ {
		if round > 20 {
			t.Fatalf("they do not come to their end: %v", m.now)
		}
		for _, uuid := range m.order {
			if r := m.runs[uuid]; r.paused {
				m.resumed(t, r, r.slice)
				m.check(t)
			}
		}
		m.past(t, 2*time.Hour)
		m.beat(t, p)
		m.sweep(t)
		m.check(t)
		m.due(t)
		m.check(t)
		busy := m.busyQueues()
		for ; len(busy) > 0; busy = m.busyQueues() {
			m.finish(t, p, busy[0])
			m.check(t)
		}
		if m.now["resqued:longjob:active"].Values == nil && len(m.delayed) == 0 {
			break
		}
	}
	m.past(t, 10*24*time.Hour)
	m.sweep(t)
	m.check(t)
	for key := range m.now {
		if strings.HasPrefix(key, "resqued:longjob:") || strings.HasPrefix(key, "queue:") || strings.HasPrefix(key, "resqued:inflight:") {
			t.Fatalf("%s is left", key)
		}
	}
}

// finish works a slice that ends its run.
func (m *longModel) finish(t *rapid.T, p *longProc, queue string) {
	h := m.taken(t, p, queue)
	m.check(t)
	for range 10 { // until nothing is refused
		if m.begun(t, h) || h.verdict != 0 {
			break
		}
	}
	m.check(t)
	if h.verdict == 0 {
		save := m.saving(t, h, longstore.Completed)
		for range 10 {
			if m.saved(t, h, save); h.verdict != 0 {
				break
			}
		}
		m.check(t)
	}
	m.completed(t, h)
}

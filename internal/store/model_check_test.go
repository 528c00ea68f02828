package store_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/testkit/storetest"
)

// check compares the database with all that must be true after every step.
func (m *model) check(t *rapid.T) {
	if time.Now().Unix()-m.began > 20 { // the machine is so busy that leases end by themselves
		t.SkipNow()
	}
	m.now = m.Look(t)
	m.checkConservation(t)
	m.checkLocks(t)
	m.checkClassLocks(t)
	m.checkCounters(t)
	m.checkLines(t)
	m.checkAttempts(t)
	m.checkDeaths(t)
	for _, q := range modelQueues {
		if q.Unique {
			m.checkUnique(t, q.Name)
		}
	}
}

// I1, I9
func (m *model) checkConservation(t *rapid.T) {
	live, failed := m.now.Places(t)
	for it, n := range failed {
		live[it] += n
	}
	for it, n := range live {
		if m.count[it] != n {
			t.Fatalf("I1: %d times there, should be %d times: queue %s, %q", n, m.count[it], it.Queue, it.Payload)
		}
	}
	for it, n := range m.count {
		if n != live[it] {
			t.Fatalf("I1: %d times there, should be %d times: queue %s, %q", live[it], n, it.Queue, it.Payload)
		}
	}
}

// I2, I11: every record has its lock, every lock its record.
func (m *model) checkLocks(t *rapid.T) {
	holders := map[string]string{}
	for _, p := range m.procs {
		records, caps := m.now.Hash("resqued:inflight:"+p.name), map[string]int{}
		for token, job := range p.jobs {
			if _, there := records[token]; there == job.lost {
				t.Fatalf("I4: the record of %s of %s: there %v, lost %v", token, p.name, there, job.lost)
			}
			if job.LockKey == "" || job.loose || job.lost {
				continue
			}
			if other, twice := holders[job.LockKey]; twice {
				t.Fatalf("I2: %s and %s hold %s", other, storetest.Owner(p.name, token), job.LockKey)
			}
			holders[job.LockKey] = storetest.Owner(p.name, token)
			if ttl := m.now[strings.TrimPrefix(job.LockKey, storetest.Space)].TTL; job.timed && ttl <= 0 {
				t.Fatalf("I2: %s lives for %d ms", job.LockKey, ttl)
			}
		}
		if len(records) > len(p.jobs) {
			t.Fatalf("I4: %s has %d records, and knows of %d", p.name, len(records), len(p.jobs))
		}
		for _, q := range p.masterMates(m) {
			for _, job := range q.jobs {
				if job.Capped && !job.lost {
					caps[job.Queue]++
				}
			}
		}
		for _, q := range modelQueues {
			if n := m.now.Number("resqued:caps:"+p.master, q.Name); n != caps[q.Name] || q.Cap > 0 && n > q.Cap {
				t.Fatalf("cap of %s: counted %d of %d, at most %d", q.Name, n, caps[q.Name], q.Cap)
			}
		}
	}
	maps.Copy(holders, m.foreign)
	for lock, value := range m.orphans {
		if _, taken := holders[lock]; !taken {
			holders[lock] = value
		}
	}
	m.checkKept(t, holders)
	for lock, want := range holders {
		if strings.HasPrefix(lock, storetest.Space+"lock:") {
			continue
		}
		if value, _ := m.now.Value(lock); value != want {
			t.Fatalf("I2: %s is held by %q, should be by %q", lock, value, want)
		}
	}
	for key := range m.now {
		if _, known := holders[storetest.Space+key]; !known && strings.HasPrefix(key, "locket:job_locks:") {
			t.Fatalf("I11: nobody holds %s: %q", key, m.now[key].Values)
		}
	}
}

func (p *process) masterMates(m *model) []*process {
	return slices.DeleteFunc(slices.Clone(m.procs), func(q *process) bool { return q.master != p.master })
}

func (m *model) checkClassLocks(t *rapid.T) {
	want := map[string]string{}
	maps.Copy(want, m.orphans)
	maps.Copy(want, m.foreign)
	for _, p := range m.procs {
		for _, job := range p.jobs {
			if job.classKey != "" && !job.classLoose && !job.lost {
				want[job.classKey] = job.classValue
			}
		}
	}
	for key, e := range m.now {
		if !strings.HasPrefix(key, "lock:") {
			continue
		}
		if value, known := want[storetest.Space+key]; !known || value != e.Values[0] || e.TTL <= 0 {
			t.Fatalf("I2: class lock %s is %q, should be %q (%v); it lives for %d ms", key, e.Values[0], value, known, e.TTL)
		}
		delete(want, storetest.Space+key)
	}
	for lock, value := range want {
		if strings.HasPrefix(lock, storetest.Space+"lock:") {
			t.Fatalf("I2: class lock %s is gone, should be %q", lock, value)
		}
	}
}

// I5: of the jobs that count as locked none is free, but for locks that are known to
// be open: these are looked for. If other programs took jobs out
// of a queue, it is unknown which are meant, for the time of patience.
func (m *model) checkCounters(t *rapid.T) {
	counters := m.now.Hash("locket:queue_lock_counters")
	for _, q := range modelQueues {
		if _, counted := counters[q.Name]; !counted {
			delete(m.tainted, q.Name)
			continue
		}
		note, ok := m.now.Value(storetest.Space + "resqued:seen:" + q.Name)
		size, _, _ := strings.Cut(note, " ")
		mark, _ := strconv.Atoi(size)
		count := m.now.Number("locket:queue_lock_counters", q.Name)
		waiting := m.now.List("queue:" + q.Name)
		if m.tainted[q.Name] || !ok {
			continue
		}
		if mark > len(waiting) || count > mark {
			t.Fatalf("I5: %d of %d jobs of %s count as locked, %d wait", count, mark, q.Name, len(waiting))
		}
		open := m.now.List("resqued:open:" + q.Name)
		for _, payload := range waiting[mark-count : mark] {
			if lock := m.lockKey(q.Name, payload); !m.now.Held(lock) && !m.freed[lock] && !slices.Contains(open, lock) {
				t.Fatalf("I5: a job of %s counts as locked, and %s is free", q.Name, lock)
			}
		}
	}
}

// I10
func (m *model) checkUnique(t *rapid.T, queue string) {
	waiting := m.now.List("queue:" + queue)
	members, starts := m.now.List("queue:"+queue+":uniqueue"), m.now.List("queue:"+queue+":start_at")
	instep := slices.Equal(slices.Sorted(slices.Values(waiting)), slices.Sorted(slices.Values(members))) &&
		len(starts) == len(waiting)
	if !m.clean[queue] {
		m.clean[queue] = instep
		return // it is unknown which start belongs to which job
	}
	if !instep {
		t.Fatalf("I10: %s holds %q, its set %q, its start times are %q", queue, waiting, members, starts)
	}
	for i, payload := range waiting {
		at, _ := strconv.ParseInt(starts[i], 10, 64)
		if want, known := m.starts[storetest.Item{Queue: queue, Payload: payload}]; known && !m.fits(at, want) {
			t.Fatalf("I10: %q of %s was pushed at %d, its start time is %d", payload, queue, want, at)
		}
	}
}

// fits compares a start time with what is known of it.
func (m *model) fits(at, want int64) bool {
	return at == want || want == 0 && at >= m.began && at <= time.Now().Unix()+1
}

// soil says that strangers have written to a unique queue.
func (m *model) soil(queue string) {
	m.clean[queue] = false
	for it := range m.starts {
		if it.Queue == queue {
			delete(m.starts, it)
		}
	}
}

// reconcile accepts that payloads of unique queues were dropped as the duplicates of
// others that are still there, and returns how many.
func (m *model) reconcile(t *rapid.T, after storetest.Snapshot) (dropped int) {
	before, _ := m.now.Places(t)
	live, failed := after.Places(t)
	for it, n := range m.count {
		found := live[it] + failed[it]
		if found >= n || !theQueue(it.Queue).Unique {
			continue
		}
		if before[it] < 2 || live[it] == 0 {
			t.Fatalf("I1: dropped as a duplicate while no other was there: queue %s, %q", it.Queue, it.Payload)
		}
		m.See("duplicate dropped")
		m.count[it] = found
		dropped += n - found
	}
	return dropped
}

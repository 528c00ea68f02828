package store_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

// snapshot is the whole database, by keys without the namespace.
type snapshot map[string]entry

type entry struct {
	ttl    int64 // ms; -1 without
	values []string
}

// dump returns everything in one step.
const dump = `
local read = {string = 'GET', list = 'LRANGE', set = 'SMEMBERS', hash = 'HGETALL', zset = 'ZRANGE'}
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, v = redis.call('TYPE', key).ok, nil
  if kind == 'list' then v = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then v = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else v = redis.call(read[kind], key) end
  if kind == 'set' then table.sort(v) end
  out[#out + 1] = {key, redis.call('PTTL', key), kind, type(v) == 'table' and v or {v}}
end
return out`

func (m *model) look(t *rapid.T) snapshot {
	raw, err := m.redis.Eval(m.ctx, dump, nil).Slice()
	must(t, err)
	s := snapshot{}
	for _, r := range raw {
		fields, _ := r.([]any)
		key, _ := fields[0].(string)
		ttl, _ := fields[1].(int64)
		list, _ := fields[3].([]any)
		e := entry{ttl: ttl, values: make([]string, len(list))}
		for i := range list {
			e.values[i], _ = list[i].(string)
		}
		if fields[2] == "hash" {
			e.values = sortedPairs(e.values)
		}
		s[strings.TrimPrefix(key, modelSpace)] = e
	}
	return s
}

// sortedPairs sorts what Redis returns in any order.
func sortedPairs(values []string) []string {
	pairs := slices.Collect(slices.Chunk(values, 2))
	slices.SortFunc(pairs, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return slices.Concat(pairs...)
}

func (s snapshot) list(key string) []string { return s[key].values }

func (s snapshot) hash(key string) map[string]string {
	out, values := map[string]string{}, s[key].values
	for i := 0; i+1 < len(values); i += 2 {
		out[values[i]] = values[i+1]
	}
	return out
}

func (s snapshot) number(key, field string) int {
	n, _ := strconv.Atoi(s.hash(key)[field])
	return n
}

// value returns what a key with its namespace holds.
func (s snapshot) value(key string) (string, bool) {
	e, ok := s[strings.TrimPrefix(key, modelSpace)]
	if !ok {
		return "", false
	}
	return e.values[0], true
}

// held tells whether a lock is in the way: its value is foreign, or its record lives.
func (s snapshot) held(lock string) bool {
	value, ok := s.value(lock)
	if !ok {
		return false
	}
	rest, ours := strings.CutPrefix(value, "resqued:")
	proc, token, _ := strings.Cut(rest, "#")
	if !ours {
		return true
	}
	_, alive := s.hash("resqued:inflight:" + proc)[token]
	return alive
}

// same compares without the times to live, and what ends by itself within a second.
func (s snapshot) same(other snapshot) bool {
	s, other = maps.Clone(s), maps.Clone(other)
	for _, short := range []snapshot{s, other} {
		maps.DeleteFunc(short, func(key string, _ entry) bool { return strings.HasPrefix(key, "resqued:heal:") })
	}
	return maps.EqualFunc(s, other, func(a, b entry) bool { return slices.Equal(a.values, b.values) })
}

// places counts the payloads that wait, are in flight or delayed, and those that failed.
func (s snapshot) places(t *rapid.T) (live, failed map[item]int) {
	live, failed = map[item]int{}, map[item]int{}
	for key, e := range s {
		if queue, ok := strings.CutPrefix(key, "queue:"); ok && !strings.Contains(queue, ":") {
			for _, p := range e.values {
				live[item{queue, p}]++
			}
		}
		if strings.HasPrefix(key, "resqued:inflight:") {
			for token, record := range s.hash(key) {
				job, err := store.ParseRecord(token, record)
				must(t, err)
				live[item{job.Queue, string(job.Payload)}]++
			}
		}
	}
	for it, n := range s.delayed() {
		live[it] += n
	}
	for _, record := range s.list("failed") {
		queue, payload, _ := strings.Cut(strings.TrimPrefix(record, "F"), " ")
		failed[item{queue, payload}]++
	}
	return live, failed
}

func (s snapshot) delayed() map[item]int {
	out := map[item]int{}
	for member := range s.hash("resqued:delayed") {
		_, rest, _ := strings.Cut(member, " ") // <proc>#<token> <queue length>[u] <queue><payload>
		size, rest, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(strings.TrimSuffix(size, "u"))
		out[item{rest[:n], rest[n:]}]++
	}
	return out
}

// check compares the database with all that must be true after every step.
func (m *model) check(t *rapid.T) {
	m.now = m.look(t)
	m.checkConservation(t)
	m.checkLocks(t)
	m.checkClassLocks(t)
	m.checkCounters(t)
	for _, q := range modelQueues {
		if q.Unique {
			m.checkUnique(t, q.Name)
		}
	}
}

// I1, I9
func (m *model) checkConservation(t *rapid.T) {
	live, failed := m.now.places(t)
	for it, n := range failed {
		live[it] += n
	}
	for it, n := range live {
		if m.count[it] != n {
			t.Fatalf("I1: %d times there, should be %d times: queue %s, %q", n, m.count[it], it.queue, it.payload)
		}
	}
	for it, n := range m.count {
		if n != live[it] {
			t.Fatalf("I1: %d times there, should be %d times: queue %s, %q", live[it], n, it.queue, it.payload)
		}
	}
}

// I2, I11: every record has its lock, every lock its record.
func (m *model) checkLocks(t *rapid.T) {
	holders := map[string]string{}
	for _, p := range m.procs {
		records, caps := m.now.hash("resqued:inflight:"+p.name), map[string]int{}
		for token, job := range p.jobs {
			if _, there := records[token]; there == job.lost {
				t.Fatalf("I4: the record of %s of %s: there %v, lost %v", token, p.name, there, job.lost)
			}
			if job.LockKey == "" || job.loose || job.lost {
				continue
			}
			if other, twice := holders[job.LockKey]; twice {
				t.Fatalf("I2: %s and %s hold %s", other, owner(p.name, token), job.LockKey)
			}
			holders[job.LockKey] = owner(p.name, token)
			if ttl := m.now[strings.TrimPrefix(job.LockKey, modelSpace)].ttl; ttl <= 0 {
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
			if n := m.now.number("resqued:caps:"+p.master, q.Name); n != caps[q.Name] || q.Cap > 0 && n > q.Cap {
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
	for lock, want := range holders {
		if strings.HasPrefix(lock, modelSpace+"lock:") {
			continue
		}
		if value, _ := m.now.value(lock); value != want {
			t.Fatalf("I2: %s is held by %q, should be by %q", lock, value, want)
		}
	}
	for key := range m.now {
		if _, known := holders[modelSpace+key]; !known && strings.HasPrefix(key, "locket:job_locks:") {
			t.Fatalf("I11: nobody holds %s: %q", key, m.now[key].values)
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
		if value, known := want[modelSpace+key]; !known || value != e.values[0] || e.ttl <= 0 {
			t.Fatalf("I2: class lock %s is %q, should be %q (%v); it lives for %d ms", key, e.values[0], value, known, e.ttl)
		}
		delete(want, modelSpace+key)
	}
	for lock, value := range want {
		if strings.HasPrefix(lock, modelSpace+"lock:") {
			t.Fatalf("I2: class lock %s is gone, should be %q", lock, value)
		}
	}
}

// I5: of the jobs that count as locked none is free. Where strangers took jobs out
// of a queue nobody knows which are meant; that lasts for the time of patience.
func (m *model) checkCounters(t *rapid.T) {
	counters := m.now.hash("locket:queue_lock_counters")
	for _, q := range modelQueues {
		if _, counted := counters[q.Name]; !counted {
			delete(m.tainted, q.Name)
			continue
		}
		note, ok := m.now.value(modelSpace + "resqued:seen:" + q.Name)
		size, _, _ := strings.Cut(note, " ")
		mark, _ := strconv.Atoi(size)
		count := m.now.number("locket:queue_lock_counters", q.Name)
		waiting := m.now.list("queue:" + q.Name)
		if m.tainted[q.Name] || !ok {
			continue
		}
		if mark > len(waiting) || count > mark {
			t.Fatalf("I5: %d of %d jobs of %s count as locked, %d wait", count, mark, q.Name, len(waiting))
		}
		for _, payload := range waiting[mark-count : mark] {
			if lock := m.lockKey(q.Name, payload); !m.now.held(lock) && !m.freed[lock] {
				t.Fatalf("I5: a job of %s counts as locked, and %s is free", q.Name, lock)
			}
		}
	}
}

// I10
func (m *model) checkUnique(t *rapid.T, queue string) {
	waiting := m.now.list("queue:" + queue)
	members, starts := m.now.list("queue:"+queue+":uniqueue"), m.now.list("queue:"+queue+":start_at")
	instep := slices.Equal(slices.Sorted(slices.Values(waiting)), slices.Sorted(slices.Values(members))) &&
		len(starts) == len(waiting)
	if !m.clean[queue] {
		m.clean[queue] = instep
		return // which start is whose nobody knows
	}
	if !instep {
		t.Fatalf("I10: %s holds %q, its set %q, its start times are %q", queue, waiting, members, starts)
	}
	for i, payload := range waiting {
		at, _ := strconv.ParseInt(starts[i], 10, 64)
		if want, known := m.starts[item{queue, payload}]; known && !m.fits(at, want) {
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
		if it.queue == queue {
			delete(m.starts, it)
		}
	}
}

// reconcile accepts that payloads of unique queues were dropped as the duplicates of
// others that are still there, and returns how many.
func (m *model) reconcile(t *rapid.T, after snapshot) (dropped int) {
	before, _ := m.now.places(t)
	live, failed := after.places(t)
	for it, n := range m.count {
		found := live[it] + failed[it]
		if found >= n || !theQueue(it.queue).Unique {
			continue
		}
		if before[it] < 2 || live[it] == 0 {
			t.Fatalf("I1: dropped as a duplicate while no other was there: queue %s, %q", it.queue, it.payload)
		}
		m.see("duplicate dropped")
		m.count[it] = found
		dropped += n - found
	}
	return dropped
}

package store_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// uniquePush is what resque-uniqueue sends.
var uniquePush = redis.NewScript(`
if redis.call('SADD', KEYS[1] .. ':uniqueue', ARGV[1]) == 0 then return false end
redis.call('RPUSH', KEYS[1] .. ':start_at', ARGV[2])
return redis.call('RPUSH', KEYS[1], ARGV[1])`)

func (m *model) gemUniquePush(t *rapid.T, queue, payload string) {
	m.number++
	start := int64(1000000000 + m.number)
	err := uniquePush.Run(m.ctx, m.redis, []string{modelSpace + "queue:" + queue}, payload, start).Err()
	if errors.Is(err, redis.Nil) {
		if m.clean[queue] && !slices.Contains(m.now.list("queue:"+queue), payload) {
			t.Fatalf("I10: refused as a duplicate while no other waited: queue %s, %q", queue, payload)
		}
		return
	}
	must(t, err)
	it := item{queue, payload}
	m.count[it]++
	if m.clean[queue] {
		m.starts[it] = start
	}
}

// foreignSwap leaves a unique queue as long as it was, so that its companions seem to
// match.
func (m *model) foreignSwap(t *rapid.T) {
	queue := theQueue(rapid.SampledFrom([]string{"d", "e"}).Draw(t, "queue"))
	payload := m.payload(t, queue)
	if waiting := m.now.list("queue:" + queue.Name); len(waiting) == 0 || slices.Contains(waiting, payload) {
		return
	}
	must(t, m.redis.RPush(m.ctx, modelSpace+"queue:"+queue.Name, payload).Err())
	m.count[item{queue.Name, payload}]++
	taken, err := m.redis.LPop(m.ctx, modelSpace+"queue:"+queue.Name).Result()
	must(t, err)
	m.took(item{queue.Name, taken}, 1)
}

// foreignPush, foreignPop and foreignRemove know nothing of companions.
func (m *model) foreignPush(t *rapid.T) {
	queue := m.anyQueue(t)
	payload := m.payload(t, queue)
	must(t, m.redis.RPush(m.ctx, modelSpace+"queue:"+queue.Name, payload).Err())
	m.count[item{queue.Name, payload}]++
	m.soil(queue.Name)
}

func (m *model) foreignPop(t *rapid.T) {
	queue := m.anyQueue(t).Name
	if payload, err := m.redis.LPop(m.ctx, modelSpace+"queue:"+queue).Result(); err == nil {
		m.took(item{queue, payload}, 1)
	}
}

func (m *model) foreignRemove(t *rapid.T) {
	queue := m.anyQueue(t).Name
	waiting := m.now.list("queue:" + queue)
	if len(waiting) == 0 {
		return
	}
	payload := rapid.SampledFrom(waiting).Draw(t, "removed")
	n, err := m.redis.LRem(m.ctx, modelSpace+"queue:"+queue, 0, payload).Result()
	must(t, err)
	m.took(item{queue, payload}, int(n))
}

// took: strangers took jobs out of a queue.
func (m *model) took(it item, n int) {
	m.count[it] -= n
	m.stray[it] = true
	m.tainted[it.queue], m.taken[it.queue] = true, it.payload
	if theQueue(it.queue).Unique {
		m.soil(it.queue)
	}
}

// gemWorker is a Ruby worker with resque-locket, on the wire.
func (m *model) gemWorker(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
	key, counters := modelSpace+"queue:"+queue, modelSpace+"locket:queue_lock_counters"
	payload, err := m.redis.LPop(m.ctx, key).Result()
	if err != nil {
		return
	}
	m.tainted[queue] = true
	lock := m.lockKey(queue, payload)
	if _, held := m.now.value(lock); held {
		must(t, m.redis.RPush(m.ctx, key, payload).Err())
		must(t, m.redis.HIncrBy(m.ctx, counters, queue, 1).Err())
		return
	}
	must(t, m.redis.Set(m.ctx, lock, "", 35*time.Second).Err())
	must(t, m.redis.Del(m.ctx, counters).Err())
	m.count[item{queue, payload}]--
	m.stray[item{queue, payload}] = true
	m.foreign[lock] = ""
}

// gemDone ends a job of a Ruby worker.
func (m *model) gemDone(t *rapid.T) {
	if lock := m.anyLock(t, func(lock string) bool { value, ok := m.foreign[lock]; return ok && value == "" }); lock != "" {
		m.end(t, lock)
		must(t, m.redis.Del(m.ctx, modelSpace+"locket:queue_lock_counters").Err())
	}
}

// steal overwrites a lock, as one does who did not look.
func (m *model) steal(t *rapid.T) {
	lock := m.anyLock(t, func(string) bool { return true })
	if lock == "" {
		return
	}
	value := rapid.SampledFrom([]string{"", "somebody", "true", "1000000000"}).Draw(t, "value")
	must(t, m.redis.Set(m.ctx, lock, value, time.Minute).Err())
	m.loosen(lock)
	m.foreign[lock] = value
}

// expire ends a lock that was not extended in time.
func (m *model) expire(t *rapid.T) {
	if lock := m.anyLock(t, func(string) bool { return true }); lock != "" {
		m.end(t, lock)
	}
}

// foreignRelease removes a lock of ours as resque-locket does, which looks at no value.
func (m *model) foreignRelease(t *rapid.T) {
	if lock := m.anyLock(t, func(lock string) bool { return strings.Contains(lock, ":job_locks:") }); lock != "" {
		m.end(t, lock)
		must(t, m.redis.Del(m.ctx, modelSpace+"locket:queue_lock_counters").Err())
	}
}

// anyLock returns a lock that exists, or nothing.
func (m *model) anyLock(t *rapid.T, which func(lock string) bool) string {
	var locks []string
	for key := range m.now {
		if strings.HasPrefix(key, "lock:") || strings.HasPrefix(key, "locket:job_locks:") {
			if which(modelSpace + key) {
				locks = append(locks, modelSpace+key)
			}
		}
	}
	if len(locks) == 0 {
		return ""
	}
	slices.Sort(locks)
	return rapid.SampledFrom(locks).Draw(t, "lock")
}

func (m *model) end(t *rapid.T, lock string) {
	must(t, m.redis.Del(m.ctx, lock).Err())
	m.loosen(lock)
	delete(m.foreign, lock)
	m.freed[lock] = true
}

// loosen: whoever has a lock has lost it.
func (m *model) loosen(lock string) {
	delete(m.orphans, lock)
	if job := m.heldBy(lock); job != nil {
		job.loose = true
	}
	for _, p := range m.procs {
		for _, job := range p.jobs {
			job.classLoose = job.classLoose || job.classKey == lock && !job.lost
		}
	}
}

// loseRecord: Redis has lost its last writes, and with them a record.
func (m *model) loseRecord(t *rapid.T) {
	p := m.anyProcess(t)
	for _, token := range p.tokens() {
		job := p.jobs[token]
		if p.fenced || job.lost || job.Capped {
			continue
		}
		must(t, m.redis.HDel(m.ctx, modelSpace+"resqued:inflight:"+p.name, token).Err())
		if job.LockKey != "" && !job.loose {
			m.orphans[job.LockKey] = owner(p.name, token)
			m.freed[job.LockKey] = true
		}
		if job.classKey != "" && !job.classLoose {
			m.orphans[job.classKey] = job.classValue
		}
		job.lost = true
		m.count[item{job.Queue, string(job.Payload)}]--
		m.stray[item{job.Queue, string(job.Payload)}] = true
		return
	}
}

func (m *model) loseFence(t *rapid.T) {
	if m.ahead {
		must(t, m.redis.Set(m.ctx, modelSpace+"resqued:fence", time.Now().Add(time.Hour).UnixMicro(), 0).Err())
		return
	}
	must(t, m.redis.Del(m.ctx, modelSpace+"resqued:fence").Err())
}

func (m *model) flushScripts(t *rapid.T) { must(t, m.redis.ScriptFlush(m.ctx).Err()) }

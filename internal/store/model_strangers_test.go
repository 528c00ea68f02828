package store_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/testkit/storetest"
)

// uniquePush is what resque-uniqueue sends.
var uniquePush = redis.NewScript(`
if redis.call('SADD', KEYS[1] .. ':uniqueue', ARGV[1]) == 0 then return false end
redis.call('RPUSH', KEYS[1] .. ':start_at', ARGV[2])
return redis.call('RPUSH', KEYS[1], ARGV[1])`)

func (m *model) gemUniquePush(t *rapid.T, queue, payload string) {
	m.number++
	start := int64(1000000000 + m.number)
	err := uniquePush.Run(m.Ctx, m.Redis, []string{storetest.Space + "queue:" + queue}, payload, start).Err()
	if errors.Is(err, redis.Nil) {
		if m.clean[queue] && !slices.Contains(m.now.List("queue:"+queue), payload) {
			t.Fatalf("I10: refused as a duplicate while no other waited: queue %s, %q", queue, payload)
		}
		return
	}
	storetest.Must(t, err)
	it := storetest.Item{Queue: queue, Payload: payload}
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
	if waiting := m.now.List("queue:" + queue.Name); len(waiting) == 0 || slices.Contains(waiting, payload) {
		return
	}
	storetest.Must(t, m.Redis.RPush(m.Ctx, storetest.Space+"queue:"+queue.Name, payload).Err())
	m.count[storetest.Item{Queue: queue.Name, Payload: payload}]++
	taken, err := m.Redis.LPop(m.Ctx, storetest.Space+"queue:"+queue.Name).Result()
	storetest.Must(t, err)
	m.took(storetest.Item{Queue: queue.Name, Payload: taken}, 1)
}

// foreignPush, foreignPop and foreignRemove know nothing of companions.
func (m *model) foreignPush(t *rapid.T) {
	queue := m.anyQueue(t)
	payload := m.payload(t, queue)
	storetest.Must(t, m.Redis.RPush(m.Ctx, storetest.Space+"queue:"+queue.Name, payload).Err())
	m.count[storetest.Item{Queue: queue.Name, Payload: payload}]++
	m.soil(queue.Name)
}

func (m *model) foreignPop(t *rapid.T) {
	queue := m.anyQueue(t).Name
	if payload, err := m.Redis.LPop(m.Ctx, storetest.Space+"queue:"+queue).Result(); err == nil {
		m.took(storetest.Item{Queue: queue, Payload: payload}, 1)
	}
}

func (m *model) foreignRemove(t *rapid.T) {
	queue := m.anyQueue(t).Name
	waiting := m.now.List("queue:" + queue)
	if len(waiting) == 0 {
		return
	}
	payload := rapid.SampledFrom(waiting).Draw(t, "removed")
	n, err := m.Redis.LRem(m.Ctx, storetest.Space+"queue:"+queue, 0, payload).Result()
	storetest.Must(t, err)
	m.took(storetest.Item{Queue: queue, Payload: payload}, int(n))
}

// took: strangers took jobs out of a queue.
func (m *model) took(it storetest.Item, n int) {
	m.count[it] -= n
	m.stray[it] = true
	m.tainted[it.Queue], m.taken[it.Queue] = true, it.Payload
	if theQueue(it.Queue).Unique {
		m.soil(it.Queue)
	}
}

// gemWorker is a Ruby worker with resque-locket, on the wire.
func (m *model) gemWorker(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
	key, counters := storetest.Space+"queue:"+queue, storetest.Space+"locket:queue_lock_counters"
	payload, err := m.Redis.LPop(m.Ctx, key).Result()
	if err != nil {
		return
	}
	m.tainted[queue] = true
	lock := m.lockKey(queue, payload)
	if _, held := m.now.Value(lock); held {
		storetest.Must(t, m.Redis.RPush(m.Ctx, key, payload).Err())
		storetest.Must(t, m.Redis.HIncrBy(m.Ctx, counters, queue, 1).Err())
		return
	}
	storetest.Must(t, m.Redis.Set(m.Ctx, lock, "", 35*time.Second).Err())
	storetest.Must(t, m.Redis.Del(m.Ctx, counters).Err())
	m.count[storetest.Item{Queue: queue, Payload: payload}]--
	m.stray[storetest.Item{Queue: queue, Payload: payload}] = true
	m.foreign[lock] = ""
}

// gemDone ends a job of a Ruby worker.
func (m *model) gemDone(t *rapid.T) {
	if lock := m.anyLock(t, func(lock string) bool { value, ok := m.foreign[lock]; return ok && value == "" }); lock != "" {
		m.end(t, lock)
		storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+"locket:queue_lock_counters").Err())
	}
}

// steal overwrites a lock, as one does who did not look.
func (m *model) steal(t *rapid.T) {
	lock := m.anyLock(t, func(string) bool { return true })
	if lock == "" {
		return
	}
	value := rapid.SampledFrom([]string{"", "somebody", "true", "1000000000"}).Draw(t, "value")
	storetest.Must(t, m.Redis.Set(m.Ctx, lock, value, time.Minute).Err())
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
		storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+"locket:queue_lock_counters").Err())
	}
}

// anyLock returns a lock that exists, or nothing.
func (m *model) anyLock(t *rapid.T, which func(lock string) bool) string {
	var locks []string
	for key := range m.now {
		if strings.HasPrefix(key, "lock:") || strings.HasPrefix(key, "locket:job_locks:") {
			if which(storetest.Space + key) {
				locks = append(locks, storetest.Space+key)
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
	storetest.Must(t, m.Redis.Del(m.Ctx, lock).Err())
	m.loosen(lock)
	delete(m.foreign, lock)
	m.freed[lock] = true
}

// loosen: the holder of a lock has lost it.
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
		storetest.Must(t, m.Redis.HDel(m.Ctx, storetest.Space+"resqued:inflight:"+p.name, token).Err())
		if job.LockKey != "" && !job.loose {
			m.orphans[job.LockKey] = storetest.Owner(p.name, token)
			m.freed[job.LockKey] = true
		}
		if job.classKey != "" && !job.classLoose {
			m.orphans[job.classKey] = job.classValue
		}
		job.lost = true
		m.count[storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}]--
		m.stray[storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}] = true
		return
	}
}

func (m *model) loseFence(t *rapid.T) {
	if m.ahead {
		storetest.Must(t, m.Redis.Set(m.Ctx, storetest.Space+"resqued:fence", time.Now().Add(time.Hour).UnixMicro(), 0).Err())
		return
	}
	storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+"resqued:fence").Err())
}

func (m *model) flushScripts(t *rapid.T) { storetest.Must(t, m.Redis.ScriptFlush(m.Ctx).Err()) }

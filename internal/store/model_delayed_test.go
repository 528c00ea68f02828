package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// later enqueues jobs that are to run later, some of them as plain as those that Ruby's
// scheduler may move.
func (m *model) later(t *rapid.T) {
	var jobs []store.LaterJob
	n, refused := rapid.IntRange(1, 4).Draw(t, "jobs"), rapid.IntRange(0, 9).Draw(t, "rights") == 0
	if refused {
		n = 1 // of several some might not need the right
	}
	for range n {
		queue := m.anyQueue(t)
		payload := m.payload(t, queue)
		if rapid.Bool().Draw(t, "plain") {
			payload = m.numbered(queue, body{`{"class":"A","args":[0,%d]}`, "A", ""})
			m.bodies[payload] = body{class: "A", args: strings.TrimSuffix(strings.TrimPrefix(payload, `{"class":"A","args":`), "}")}
		}
		job := store.LaterJob{Queue: queue.Name, Payload: []byte(payload), Unique: queue.Unique}
		job.In = rapid.SampledFrom([]time.Duration{time.Hour, 3 * time.Hour, 3 * time.Hour, 0}).Draw(t, "in")
		jobs = append(jobs, job)
	}
	call := func() error {
		replies := m.Store.EnqueueLater(m.Ctx, jobs)
		for i, r := range replies {
			if r.Err != nil {
				return r.Err
			}
			it := storetest.Item{Queue: jobs[i].Queue, Payload: string(jobs[i].Payload)}
			waits := jobs[i].In > 0
			if waits != !r.Due.IsZero() || waits && r.Pushed {
				t.Fatalf("a job that is to wait for %s: %+v", jobs[i].In, r)
			}
			if waits || r.Pushed {
				m.count[it]++
			} else if !jobs[i].Unique {
				t.Fatalf("I1: %q of %s was dropped", it.Payload, it.Queue)
			}
			if r.Pushed {
				m.waits(it, store.Reserved{}, false)
			}
		}
		return nil
	}
	if refused {
		if m.without(t, call) != nil {
			m.unchanged(t, "who lacks a right")
		}
		return
	}
	storetest.Must(t, call())
}

// passes lets time pass until one that is given in ms: what waits for it is due. A list
// of a time in the past may be there.
const passes = `
local prefix, ms = ARGV[1], tonumber(ARGV[2])
local set = prefix .. 'delayed_queue_schedule'
for _, at in ipairs(redis.call('ZRANGE', set, 0, -1)) do
  local list, past = prefix .. 'delayed:' .. at, '' .. (#at % 3 + 1000)
  if at ~= past and tonumber(at) * 1000 <= ms then
    redis.call('ZREM', set, at)
    for _, item in ipairs(redis.call('LRANGE', list, 0, -1)) do
      redis.call('SREM', prefix .. 'timestamps:' .. item, 'delayed:' .. at)
      redis.call('SADD', prefix .. 'timestamps:' .. item, 'delayed:' .. past)
      redis.call('RPUSH', prefix .. 'delayed:' .. past, item)
    end
    redis.call('DEL', list)
    redis.call('ZADD', set, past, past)
  end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'resqued:delayed', '-inf', ms)) do
  redis.call('ZADD', prefix .. 'resqued:delayed', 1, member)
end
return 1`

func (m *model) timePasses(t *rapid.T, d time.Duration) {
	storetest.Must(t, m.Redis.Eval(m.Ctx, passes, nil, storetest.Space, time.Now().Add(d).UnixMilli()).Err())
	m.now = m.Look(t)
}

// early counts the payloads whose time has not come.
func early(s storetest.Snapshot) map[storetest.Item]int {
	soon := time.Now().Add(time.Minute).UnixMilli()
	rest := storetest.Snapshot{}
	for key, e := range s {
		if at, ok := strings.CutPrefix(key, "delayed:"); ok {
			if n, _ := strconv.ParseInt(at, 10, 64); n*1000 > soon {
				rest[key] = e
			}
		}
	}
	var later storetest.Entry
	for member, score := range s.Hash("resqued:delayed") {
		if at, _ := strconv.ParseFloat(score, 64); int64(at) > soon {
			later.Values = append(later.Values, member, score)
		}
	}
	rest["resqued:delayed"] = later
	return rest.Delayed()
}

// due moves what is due, for a master that may lack a right.
func (m *model) due(t *rapid.T) {
	if rapid.Bool().Draw(t, "time passes") && !m.full {
		m.timePasses(t, 2*time.Hour)
	}
	var due store.Due
	call := func() (err error) {
		due, err = m.Store.MoveDue(m.Ctx, "", func(queue string) bool { return theQueue(queue).Unique })
		return err
	}
	if rapid.IntRange(0, 9).Draw(t, "rights") == 0 {
		if m.without(t, call) != nil {
			m.unchanged(t, "who lacks a right")
			return
		}
	} else {
		storetest.Must(t, call())
	}
	m.moved(t, due)
}

func (m *model) moved(t *rapid.T, due store.Due) {
	after := m.Look(t)
	before, still, moved := m.now.Delayed(), after.Delayed(), 0
	for it, n := range before {
		moved += n - still[it]
		if still[it] < n && !slices.Contains(m.now.List("queue:"+it.Queue), it.Payload) {
			m.See("delayed")
			m.waits(it, store.Reserved{}, false)
		}
	}
	for it, n := range early(m.now) {
		if still[it] < n {
			t.Fatalf("a delayed job is early: %q of %s", it.Payload, it.Queue)
		}
	}
	if dropped := m.reconcile(t, after); dropped != due.Dropped || moved != due.Moved {
		t.Fatalf("I1: %d delayed jobs moved, %d of them were dropped; the answer is %+v", moved, dropped, due)
	}
	if len(due.Malformed)+len(due.Wrong) > 0 {
		t.Fatalf("I1: in the way of delayed jobs: %+v", due)
	}
	m.now = after
}

// arrive moves whatever waits for its time.
func (m *model) arrive(t *rapid.T) {
	m.timePasses(t, 24*time.Hour)
	due, err := m.Store.MoveDue(m.Ctx, "", func(queue string) bool { return theQueue(queue).Unique })
	storetest.Must(t, err)
	m.moved(t, due)
	if n := len(m.now.Delayed()); n > 0 || due.More {
		t.Fatalf("I1: %d delayed jobs do not come back: %v", n, fmt.Sprint(due, m.now))
	}
}

package longstore_test

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// longAgo moves all times of long jobs and leases into the past.
const longAgo = `
local ms = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', 'm:resqued:longjob:run:*')) do
  for _, field in ipairs({'created', 'seen', 'started', 'begun', 'ended', 'paused'}) do
    if redis.call('HEXISTS', key, field) == 1 then redis.call('HINCRBY', key, field, -ms) end
  end
end
for _, key in ipairs({'m:resqued:longjob:active', 'm:resqued:longjob:ended', 'm:resqued:delayed'}) do
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ms, member) end
end
for _, proc in ipairs(redis.call('ZRANGEBYSCORE', 'm:resqued:procs', '(0', '+inf')) do redis.call('ZADD', 'm:resqued:procs', 1, proc) end
return 1`

// timePasses: no sum of such times is one that the scripts or the sweeper wait for.
func (m *longModel) timePasses(t *rapid.T) {
	m.past(t, rapid.SampledFrom([]time.Duration{70 * time.Second, 370 * time.Second, 1220 * time.Second, 3710 * time.Second, 9 * 24 * time.Hour}).Draw(t, "time"))
	for _, p := range m.procs {
		if !p.fenced && rapid.IntRange(0, 3).Draw(t, "beats") > 0 {
			m.beat(t, p)
		}
	}
}

func (m *longModel) past(t *rapid.T, d time.Duration) {
	storetest.Must(t, m.Redis.Eval(m.Ctx, longAgo, nil, d.Milliseconds()).Err())
	for _, r := range m.runs {
		for field, at := range r.times {
			r.times[field] = at.plus(-d)
		}
		r.score = r.score.plus(-d)
	}
	for payload, w := range m.delayed {
		m.delayed[payload] = waiting{w.queue, w.due.plus(-d)}
	}
	for _, p := range m.procs {
		p.past = true
	}
	m.now = m.Look(t)
}

const longRunning, longQueued = 5 * time.Minute, time.Hour

// sweep looks for runs that are lost, and forgets those that ended long ago, as a master does.
func (m *longModel) sweep(t *rapid.T) {
	silent := m.silent()
	m.begins()
	sweeper := longstore.NewSweeper(m.Long, zap.NewNop(), longstore.Limits{Running: longRunning, Queued: longQueued})
	storetest.Must(t, sweeper.Sweep(m.Ctx))
	after := m.Look(t)
	for _, r := range silent {
		if after.Hash("resqued:longjob:run:" + r.uuid)["slice"] != r.hash["slice"] {
			t.Fatalf("%s goes on after one look", r.uuid)
		}
	}
	storetest.Must(t, sweeper.Sweep(m.Ctx)) // what is missed once may have been on its way
	m.forgotten(100)
	for _, r := range silent {
		since := time.Duration(m.passed().to-r.times["seen"].from) * time.Millisecond
		found := r.status() == "running" && (r.owner != nil && r.owner.there || since < longRunning) || r.status() == "queued" && since < longQueued
		payload := m.payload(r, r.slice)
		_, later := m.delayed[payload]
		found = found || later || slices.Contains(m.queues[r.hash["queue"]], payload) || slices.Contains(m.apart[r.hash["queue"]], payload)
		if found {
			r.score = m.passed()
			continue
		}
		if why := m.mayGoOn(r, r.slice, true); why != "" {
			t.Fatalf("%s was lost, and %s is in the way", r.uuid, why)
		}
		m.See("found again")
		m.goesOn(r, true)
	}
}

// silent are the runs at which the sweeper looks, in its order.
func (m *longModel) silent() []*longRun {
	var list []*longRun
	values := m.now.List("resqued:longjob:active")
	for i := 0; i < len(values); i += 2 {
		if r := m.runs[values[i]]; r.score.to <= time.Now().Add(-longRunning).UnixMilli() {
			list = append(list, r)
		}
	}
	return list
}

// forget removes a few runs that ended long ago.
func (m *longModel) forget(t *rapid.T) {
	limit := rapid.SampledFrom([]int{1, 100}).Draw(t, "at most")
	n := 0
	m.forgetting = true
	_, done := m.do(t, true, func() (err error) {
		n, err = m.Long.Forget(m.Ctx, limit)
		return err
	})
	m.forgetting = false
	if !done {
		return
	}
	if want := m.forgotten(limit); n != want {
		t.Fatalf("%d runs were forgotten, should be %d", n, want)
	}
}

func (m *longModel) forgotten(limit int) (n int) {
	values := m.now.List("resqued:longjob:ended")
	for i := 0; i < len(values) && n < limit; i += 2 {
		r := m.runs[values[i]]
		if r.score.to > m.before {
			continue
		}
		m.See("forgotten")
		delete(m.runs, r.uuid)
		m.order = slices.DeleteFunc(m.order, func(uuid string) bool { return uuid == r.uuid })
		if m.current[r.kind] == r.uuid {
			delete(m.current, r.kind)
		}
		n++
	}
	for name, h := range m.locks {
		if !h.there {
			delete(m.locks, name)
		}
	}
	return n
}

// due moves what has waited for its time.
func (m *longModel) due(t *rapid.T) {
	now := time.Now().UnixMilli()
	_, err := m.Store.MoveDue(m.Ctx, "", func(queue string) bool { return queue == "u" })
	storetest.Must(t, err)
	values := m.now.List("resqued:delayed")
	for i := 0; i < len(values); i += 2 {
		payload := values[i][strings.Index(values[i], "{"):]
		if w := m.delayed[payload]; w.due.to <= now {
			m.See("waited")
			delete(m.delayed, payload)
			m.push(w.queue, payload, false)
		}
	}
}

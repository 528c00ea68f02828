package store_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

// crash kills a process and recovers some of its jobs, or goes on where the last
// one who recovered was cut off.
func (m *model) crash(t *rapid.T) {
	p := m.anyProcess(t)
	held := m.fence(t, p)
	var verdicts []store.Verdict
	for i := range held {
		v := store.Verdict{Token: held[i].Token, Action: rapid.SampledFrom([]store.Action{store.Requeue, store.Suspect}).Draw(t, "action")}
		if rapid.Bool().Draw(t, "fail") {
			v.Action, v.Failure = store.Fail, failure(&held[i])
			v.Counts = []string{"none", m.attemptsKey(held[i].Payload)}
		}
		verdicts = append(verdicts, v)
	}
	// The newest come first.
	m.recover(t, p, verdicts[rapid.IntRange(0, len(verdicts)).Draw(t, "left"):])
	if rapid.Bool().Draw(t, "cut off") {
		if len(p.jobs) > 0 {
			m.see("cut off")
		}
		return
	}
	m.recover(t, p, verdicts)
	m.recover(t, p, verdicts)
	if rapid.Bool().Draw(t, "comes back") {
		m.register(t, p)
	}
}

func (m *model) fence(t *rapid.T, p *process) []store.Reserved {
	held, bad, err := m.store.Fence(m.ctx, p.name, true)
	must(t, err)
	if !p.fenced {
		for _, token := range p.tokens() {
			p.late = append(p.late, p.end(token, store.Done))
			if p.jobs[token].lost {
				delete(p.jobs, token)
			}
		}
		p.fenced = true
	}
	if len(bad) > 0 || len(held) != len(p.jobs) {
		t.Fatalf("I1: %s left %d jobs, its records say %d, unreadable %v", p.name, len(p.jobs), len(held), bad)
	}
	return held
}

// recover carries out verdicts, some of which may have been carried out before.
func (m *model) recover(t *rapid.T, p *process, verdicts []store.Verdict) {
	if rapid.IntRange(0, 3).Draw(t, "refused first") == 0 {
		_ = m.without(t, func() error { return m.store.Recover(m.ctx, p.name, verdicts) })
	}
	must(t, m.store.Recover(m.ctx, p.name, verdicts))
	after, back := m.look(t), map[item]bool{}
	for _, v := range slices.Backward(verdicts) {
		job := p.jobs[v.Token]
		if job == nil {
			continue
		}
		delete(p.jobs, v.Token)
		it := item{job.Queue, string(job.Payload)}
		m.blame(it, v.Action, job.Blame)
		if v.Action == store.Fail {
			delete(m.attempts, v.Counts[1])
		}
		if v.Action != store.Fail && !back[it] && !slices.Contains(m.now.list("queue:"+it.queue), it.payload) {
			back[it] = true
			m.waits(it, job.Reserved, true)
		}
	}
	m.reconcile(t, after)
	m.now = after
	if _, known := after["resqued:proc:"+p.name]; known == (len(p.jobs) == 0) {
		t.Fatalf("%s has %d jobs, and is known: %v", p.name, len(p.jobs), known)
	}
}

// beat must name what the process has lost, and extend the rest.
func (m *model) beat(t *rapid.T) {
	p := m.anyProcess(t)
	if p.fenced {
		return
	}
	req := store.BeatRequest{Proc: p.name}
	var lost, gone []string
	for _, token := range p.tokens() {
		job := p.jobs[token]
		req.Jobs = append(req.Jobs, store.Running{Token: token, LockKey: job.LockKey, Held: job.classKey != ""})
		value, _ := m.now.value(job.LockKey)
		if job.LockKey != "" && value != owner(p.name, token) || job.classKey != "" && !m.isClass(job) {
			m.see("lost lock told")
			lost = append(lost, token)
		}
		if job.lost {
			gone = append(gone, token)
		}
		if job.LockKey != "" {
			must(t, m.redis.PExpire(m.ctx, job.LockKey, 20*time.Second).Err())
		}
	}
	reply, err := m.store.Beat(m.ctx, req)
	must(t, err)
	if !slices.Equal(reply.Lost, lost) || !slices.Equal(reply.Gone, gone) {
		t.Fatalf("I2: lost %v, should be %v; gone %v, should be %v", reply.Lost, lost, reply.Gone, gone)
	}
	after := m.look(t)
	for token, job := range p.jobs {
		e, there := after[strings.TrimPrefix(job.LockKey, modelSpace)]
		if there && e.values[0] == owner(p.name, token) && e.ttl <= 20000 || there && !strings.HasPrefix(e.values[0], "resqued:"+p.name+"#") && e.ttl > 20000 {
			t.Fatalf("I2: %s is held by %q and lives for %d ms", job.LockKey, e.values[0], e.ttl)
		}
	}
}

func (m *model) isClass(job *running) bool {
	value, _ := m.now.value(job.classKey)
	return value == job.classValue
}

// poll must name each queue that holds jobs once, as blocked only if all of its
// jobs are locked.
func (m *model) poll(t *rapid.T) {
	var names []string
	for _, q := range modelQueues {
		names = append(names, q.Name)
	}
	all := rapid.Bool().Draw(t, "all queues")
	if all {
		names = nil
	}
	reply, err := m.store.Poll(m.ctx, all, "0", names)
	must(t, err)
	m.polled(t, reply)
}

func (m *model) polled(t *rapid.T, reply store.PollReply) {
	after := m.look(t)
	m.polledSuspects(t, reply.Suspects, after)
	m.waitsInPause()
	for _, q := range modelQueues {
		waiting, blocked := slices.Contains(reply.Waiting, q.Name), slices.Contains(reply.Blocked, q.Name)
		jobs := after.list("queue:" + q.Name)
		if waiting && blocked || (waiting || blocked) != (len(jobs) > 0 && !after.paused(q.Name)) {
			t.Fatalf("I5: %d jobs in %s; waiting: %v, blocked: %v", len(jobs), q.Name, waiting, blocked)
		}
		if !blocked || m.tainted[q.Name] {
			continue
		}
		m.see("blocked")
		for _, payload := range jobs {
			if lock := m.lockKey(q.Name, payload); !after.held(lock) {
				t.Fatalf("I5: %s counts as blocked, and %s is free", q.Name, lock)
			}
		}
	}
	m.now = after
}

// serve: a queue with a free job is served.
func (m *model) serve(t *rapid.T) {
	p := m.anyProcess(t)
	var ready []string
	for _, q := range modelQueues {
		full := q.Cap > 0 && m.now.number("resqued:caps:"+p.master, q.Name) >= q.Cap
		free := slices.ContainsFunc(m.now.list("queue:"+q.Name), func(payload string) bool {
			return !m.now.held(m.lockKey(q.Name, payload))
		})
		if free && !full && !m.now.paused(q.Name) && (!m.full || !m.tainted[q.Name]) {
			ready = append(ready, q.Name)
		}
	}
	if p.fenced || len(ready) == 0 {
		return
	}
	q := theQueue(rapid.SampledFrom(ready).Draw(t, "ready queue"))
	m.patience(t, q.Name)
	m.how = store.TakeSuspects
	defer func() { m.how = store.SetApart }()
	for range 3 {
		if m.request(t, p, nil, []store.Queue{q}, 1, "answered") > 0 {
			m.see("free job served")
			return
		}
		m.now = m.look(t)
		m.poll(t)
	}
	t.Fatalf("I5: a free job of %s is not served: %v", q.Name, m.now)
}

// patience lets the time pass for which a count is believed where strangers took
// jobs out of the queue.
func (m *model) patience(t *rapid.T, queue string) {
	note, ok := m.now.value(modelSpace + "resqued:seen:" + queue)
	if !ok || !m.tainted[queue] {
		return
	}
	fields := strings.Fields(note)
	since, _ := strconv.ParseInt(fields[1], 10, 64)
	fields[1] = strconv.FormatInt(since-31000, 10)
	must(t, m.redis.Set(m.ctx, modelSpace+"resqued:seen:"+queue, strings.Join(fields, " "), time.Minute).Err())
}

// repair brings a unique queue in step on request.
func (m *model) repair(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"d", "e"}).Draw(t, "queue")
	report, err := m.store.RepairUnique(m.ctx, queue)
	must(t, err)
	if m.clean[queue] && report.Changed() {
		t.Fatalf("I10: %s was in step, and was repaired: %+v", queue, report)
	}
	if dropped := m.reconcile(t, m.look(t)); dropped != int(report.Duplicates) {
		t.Fatalf("I1: a repair of %s dropped %d jobs and says %+v", queue, dropped, report)
	}
	if !m.clean[queue] {
		m.soil(queue)
		m.clean[queue] = true
	}
}

// fullServer runs a step on a server that takes no more.
func (m *model) fullServer(t *rapid.T) {
	m.whenFull(t, rapid.SampledFrom([]func(*rapid.T){m.exchange, m.exchange, m.serve, m.serve, m.crash, m.beat, m.poll, m.due}).Draw(t, "step"))
}

func (m *model) whenFull(t *rapid.T, step func(*rapid.T)) {
	must(t, m.redis.ConfigSet(m.ctx, "maxmemory", "1").Err())
	m.see("full")
	m.full = true
	step(t)
	m.full = false
	must(t, m.redis.ConfigSet(m.ctx, "maxmemory", "0").Err())
}

package store_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
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
			m.See("cut off")
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
	held, bad, err := m.Store.Fence(m.Ctx, p.name, true)
	storetest.Must(t, err)
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
		_ = m.without(t, func() error { return m.Store.Recover(m.Ctx, p.name, verdicts) })
	}
	storetest.Must(t, m.Store.Recover(m.Ctx, p.name, verdicts))
	after, back := m.Look(t), map[storetest.Item]bool{}
	for _, v := range slices.Backward(verdicts) {
		job := p.jobs[v.Token]
		if job == nil {
			continue
		}
		delete(p.jobs, v.Token)
		it := storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}
		m.blame(it, v.Action, job.Blame)
		if v.Action == store.Fail {
			delete(m.attempts, v.Counts[1])
		}
		if v.Action != store.Fail && !back[it] && !slices.Contains(m.now.List("queue:"+it.Queue), it.Payload) {
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
		value, _ := m.now.Value(job.LockKey)
		if job.LockKey != "" && value != storetest.Owner(p.name, token) || job.classKey != "" && !m.isClass(job) {
			m.See("lost lock told")
			lost = append(lost, token)
		}
		if job.lost {
			gone = append(gone, token)
		}
		if job.LockKey != "" {
			storetest.Must(t, m.Redis.PExpire(m.Ctx, job.LockKey, 20*time.Second).Err())
		}
	}
	reply, err := m.Store.Beat(m.Ctx, req)
	storetest.Must(t, err)
	if !slices.Equal(reply.Lost, lost) || !slices.Equal(reply.Gone, gone) {
		t.Fatalf("I2: lost %v, should be %v; gone %v, should be %v", reply.Lost, lost, reply.Gone, gone)
	}
	after := m.Look(t)
	for token, job := range p.jobs {
		job.timed = true
		e, there := after[strings.TrimPrefix(job.LockKey, storetest.Space)]
		if there && e.Values[0] == storetest.Owner(p.name, token) && e.TTL <= 20000 || there && !strings.HasPrefix(e.Values[0], "resqued:"+p.name+"#") && e.TTL > 20000 {
			t.Fatalf("I2: %s is held by %q and lives for %d ms", job.LockKey, e.Values[0], e.TTL)
		}
	}
}

func (m *model) isClass(job *running) bool {
	value, _ := m.now.Value(job.classKey)
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
	reply, err := m.Store.Poll(m.Ctx, store.PollRequest{All: all, Fixed: names})
	storetest.Must(t, err)
	m.polled(t, reply)
}

func (m *model) polled(t *rapid.T, reply store.PollReply) {
	after := m.Look(t)
	m.polledSuspects(t, reply.Suspects, after)
	m.waitsInPause()
	for _, q := range modelQueues {
		why, jobs := reply.Reasons[q.Name], after.Waiting(q.Name)
		if (why != 0) != (len(jobs) > 0) || (why == store.Paused) != (len(jobs) > 0 && paused(after, q.Name)) {
			t.Fatalf("I5: %d jobs in %s; reason: %q", len(jobs), q.Name, why)
		}
		if why != store.Locked && why != store.Lined || m.tainted[q.Name] {
			continue
		}
		m.See("blocked")
		for _, payload := range jobs {
			if lock := m.lockKey(q.Name, payload); !after.Held(lock) {
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
		full := q.Cap > 0 && m.now.Number("resqued:caps:"+p.master, q.Name) >= q.Cap
		free := slices.ContainsFunc(m.now.Waiting(q.Name), func(payload string) bool {
			return !m.now.Held(m.lockKey(q.Name, payload))
		})
		if free && !full && !paused(m.now, q.Name) && (!m.full || !m.tainted[q.Name]) {
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
			m.See("free job served")
			return
		}
		before := m.now
		if m.now = m.Look(t); m.keeps(before) {
			return // what was free is for a suspect
		}
		m.poll(t)
	}
	t.Fatalf("I5: a free job of %s is not served: %v", q.Name, m.now)
}

// patience lets the time pass for which a count is believed where strangers took
// jobs out of the queue.
func (m *model) patience(t *rapid.T, queue string) {
	note, ok := m.now.Value(storetest.Space + "resqued:seen:" + queue)
	if !ok || !m.tainted[queue] {
		return
	}
	fields := strings.Fields(note)
	since, _ := strconv.ParseInt(fields[1], 10, 64)
	fields[1] = strconv.FormatInt(since-31000, 10)
	storetest.Must(t, m.Redis.Set(m.Ctx, storetest.Space+"resqued:seen:"+queue, strings.Join(fields, " "), time.Minute).Err())
}

// repair brings a unique queue in step, on request or as a daemon does.
func (m *model) repair(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"d", "e"}).Draw(t, "queue")
	asked := rapid.Bool().Draw(t, "asked")
	repair := m.Store.RepairUneven
	if asked {
		repair = m.Store.RepairUnique
	}
	report, err := repair(m.Ctx, queue)
	storetest.Must(t, err)
	if m.clean[queue] && report.Changed() {
		t.Fatalf("I10: %s was in step, and was repaired: %+v", queue, report)
	}
	if dropped := m.reconcile(t, m.Look(t)); dropped != int(report.Duplicates) {
		t.Fatalf("I1: a repair of %s dropped %d jobs and says %+v", queue, dropped, report)
	}
	if !m.clean[queue] && (asked || report.Changed()) {
		m.soil(queue)
		m.clean[queue] = true
		m.See("repaired")
	}
}

// fullServer runs a step on a server that takes no more.
func (m *model) fullServer(t *rapid.T) {
	m.whenFull(t, rapid.SampledFrom([]func(*rapid.T){m.exchange, m.exchange, m.serve, m.serve, m.crash, m.beat, m.poll, m.due}).Draw(t, "step"))
}

func (m *model) whenFull(t *rapid.T, step func(*rapid.T)) {
	storetest.Must(t, m.Redis.ConfigSet(m.Ctx, "maxmemory", "1").Err())
	m.See("full")
	m.full = true
	step(t)
	m.full = false
	storetest.Must(t, m.Redis.ConfigSet(m.Ctx, "maxmemory", "0").Err())
}

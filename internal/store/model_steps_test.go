package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// exchange ends some jobs of a process and asks for others.
func (m *model) exchange(t *rapid.T) {
	p := m.anyProcess(t)
	if p.fenced {
		m.late(t, p)
		return
	}
	// Some of the queues, in any order.
	first, n := rapid.IntRange(0, len(modelQueues)-1).Draw(t, "first queue"), rapid.IntRange(1, len(modelQueues)).Draw(t, "queues")
	queues := slices.Concat(modelQueues[first:], modelQueues[:first])[:n]
	m.request(t, p, m.endings(t, p), queues, rapid.IntRange(0, 4).Draw(t, "wants"), rapid.SampledFrom(fates).Draw(t, "fate"))
}

// endings decides how some jobs of a process ended.
func (m *model) endings(t *rapid.T, p *process) []store.Completion {
	var out []store.Completion
	for _, token := range p.tokens() {
		kind := rapid.SampledFrom([]string{"runs", "runs", "d", "f", "r", "later", "t", "t later", "b"}).Draw(t, "end")
		if kind == "runs" {
			continue
		}
		c := p.end(token, store.Done)
		switch kind {
		case "f":
			c.Kind, c.Failure = store.Failed, failure(c.Job)
		case "r":
			c.Kind, c.Survived = store.Requeued, rapid.Bool().Draw(t, "after it has run")
		case "later":
			c.Kind, c.Delay = store.Requeued, time.Millisecond
		case "t":
			c.Kind, c.Survived = store.Retried, rapid.Bool().Draw(t, "after it has run")
		case "t later":
			c.Kind, c.Failure = store.Retried, failure(c.Job)
			c.Delay = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Hour}).Draw(t, "delay")
		case "b":
			c.Kind = store.Returned
		}
		m.counted(t, &c)
		out = append(out, c)
	}
	return out
}

func (p *process) end(token string, kind store.Kind) store.Completion {
	job := p.jobs[token]
	reserved := job.Reserved
	return store.Completion{Job: &reserved, Kind: kind, Held: job.classKey != ""}
}

func failure(job *store.Reserved) store.FiledFailure {
	return store.Record([]byte("F" + job.Queue + " " + string(job.Payload)))
}

// fates of a request. A twin is the first try, which reaches Redis after all when
// the process has long since asked again.
var fates = []string{"answered", "answered", "request lost", "reply lost", "late twin", "right missing", "locks lost"}

// request sends an exchange, and another one if it has to name locks first. It
// returns how many jobs came.
func (m *model) request(t *rapid.T, p *process, ends []store.Completion, queues []store.Queue, wants int, fate string) int {
	got := 0
	req := store.ExchangeRequest{Completions: ends}
	for range 4 {
		req.Proc, req.Master, req.NamedClasses, req.Suspects = p.name, p.master, m.classes, m.how
		req.Queues, req.Empty = slices.Clone(queues), m.number%(len(queues)+1) // or not
		for i := range req.Queues {
			req.Queues[i].Named = m.named[req.Queues[i].Name]
			req.Queues[i].Lined = m.lined
			if m.fair {
				req.Queues[i].Lined, req.Queues[i].Fair = true, m.turns(req.Queues[i].Name)
			}
		}
		for range wants - got {
			m.number++
			req.Wants = append(req.Wants, store.Want{Token: fmt.Sprint(m.number), Worker: p.name + ":1:q"})
		}
		reply := m.send(t, p, req, fate)
		m.settle(t, p, req, reply)
		got += len(reply.Jobs)
		if len(reply.Unnamed) == 0 || got >= wants {
			return got
		}
		req, fate = store.ExchangeRequest{}, "answered"
		m.See("named")
		for _, n := range reply.Unnamed {
			if _, known := m.plainTenant(n.Queue, string(n.Payload)); !m.goNamed(n.Queue, string(n.Payload)) && (!m.fair || known) {
				t.Fatalf("asked to name what needs no name: %s %q", n.Queue, n.Payload)
			}
			n.Name, n.Tenant = m.lockName(n.Queue, string(n.Payload)), m.tenant(n.Queue, string(n.Payload))
			req.Names = append(req.Names, n)
		}
		m.now = m.Look(t)
	}
	return got
}

func (m *model) send(t *rapid.T, p *process, req store.ExchangeRequest, fate string) store.ExchangeReply {
	m.early = nil
	req.Lane = rapid.IntRange(0, 1).Draw(t, "lane")
	req.Sending = p.sending[req.Lane] + 1
	again := req
	again.Repeat, again.Sending = true, req.Sending+1
	p.sending[req.Lane] += 2
	switch fate {
	case "request lost":
		return m.call(t, again)
	case "reply lost":
		return m.repeat(t, m.call(t, req), again, true)
	case "locks lost":
		first := m.call(t, req)
		for _, job := range first.Jobs {
			if job.LockKey == "" {
				continue
			}
			m.See("locks lost")
			if m.end(t, job.LockKey); !m.full && rapid.Bool().Draw(t, "stolen") {
				storetest.Must(t, m.Redis.Set(m.Ctx, job.LockKey, "", time.Minute).Err())
				m.foreign[job.LockKey] = ""
			}
		}
		return m.repeat(t, first, again, false)
	case "right missing":
		if first, ok := m.refused(t, req); ok {
			return m.repeat(t, first, again, true)
		}
		return m.call(t, again)
	case "late twin":
		reply := m.call(t, again)
		twin := m.call(t, req)
		if len(twin.Jobs) > 0 || slices.Contains(twin.Applied, true) {
			t.Fatalf("I4: a request that came late got %v, applied %v", twin.Jobs, twin.Applied)
		}
		return reply
	}
	return m.call(t, req)
}

// repeat sends a request again that was answered, and returns what both have done. The
// second answer must hold the jobs of the first, if those still have their locks.
func (m *model) repeat(t *rapid.T, first store.ExchangeReply, again store.ExchangeRequest, locked bool) store.ExchangeReply {
	reply := m.call(t, again)
	m.early = slices.Clone(first.Applied)
	for i, applied := range first.Applied {
		if applied && reply.Applied[i] {
			t.Fatalf("I4: a completion was applied twice: %v, %v", first.Applied, reply.Applied)
		}
		reply.Applied[i] = applied || reply.Applied[i]
	}
	for _, job := range first.Jobs {
		same := slices.ContainsFunc(reply.Jobs, func(j store.Reserved) bool { return j.Token == job.Token && j.Fence == job.Fence })
		if same != (locked || job.LockKey == "") {
			t.Fatalf("I4: %s was given back: %v, with its lock: %v; %v", job.Token, same, locked, reply.Jobs)
		}
		if !same && theQueue(job.Queue).Unique {
			m.droppedBack(t, storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}, again.Completions, slices.Concat(first.Duplicates, reply.Duplicates))
		}
	}
	reply.Duplicates = append(reply.Duplicates, first.Duplicates...)
	reply.OutOfStep = append(reply.OutOfStep, first.OutOfStep...)
	return reply
}

func (m *model) call(t *rapid.T, req store.ExchangeRequest) store.ExchangeReply {
	reply, err := m.Store.Exchange(m.Ctx, req)
	if err != nil || len(reply.Stuck) > 0 || len(reply.WrongType) > 0 {
		t.Fatalf("exchange: %v, stuck %v, wrong %v", err, reply.Stuck, reply.WrongType)
	}
	return reply
}

// droppedBack notes that a job which had lost its lock did not go back, because an equal one waits.
// Of the ends in the same call, those of done jobs and of duplicates are not counted yet.
func (m *model) droppedBack(t *rapid.T, it storetest.Item, ends []store.Completion, duplicates []int) {
	due := m.count[it]
	for i, c := range ends {
		if c.Job.Queue == it.Queue && string(c.Job.Payload) == it.Payload && (c.Kind == store.Done || slices.Contains(duplicates, i)) {
			due--
		}
	}
	live, failed := m.Look(t).Places(t)
	if live[it] > 0 && live[it]+failed[it] < due {
		m.See("duplicate dropped")
		m.count[it]--
	}
}

// settle takes over what a reply tells.
func (m *model) settle(t *rapid.T, p *process, req store.ExchangeRequest, reply store.ExchangeReply) {
	back := map[storetest.Item]bool{}
	m.notedAll(p, req.Completions)
	for i, c := range req.Completions {
		m.past = append(m.past, ending{p, c})
		job := p.jobs[c.Job.Token]
		delete(p.jobs, c.Job.Token)
		// A job that still has its lock has not been recovered, and may still count.
		if reply.Applied[i] == job.lost && (!job.lost || job.LockKey == "" || job.loose) {
			t.Fatalf("I4: a completion was applied: %v, its record was lost: %v", reply.Applied[i], job.lost)
		}
		if job.lost {
			if reply.Applied[i] {
				delete(m.orphans, job.LockKey)
			}
			continue
		}
		it := storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}
		if job.Deaths > 0 && (c.Kind == store.Done || c.Kind == store.Failed || c.Survived) {
			delete(m.blamed, it)
		}
		// A retry after a millisecond may be pushed at once: the pause may be over.
		perhaps := c.Kind == store.Retried && c.Delay == time.Millisecond
		switch returned := (c.Kind == store.Requeued || c.Kind == store.Retried) && c.Delay == 0 || c.Kind == store.Returned; {
		case slices.Contains(reply.Duplicates, i):
			if !returned && !perhaps || !slices.Contains(m.now.List("queue:"+job.Queue), it.Payload) && !back[it] {
				t.Fatalf("I1: dropped as a duplicate while no other waited: queue %s, %q", it.Queue, it.Payload)
			}
			m.See("duplicate dropped")
			m.count[it]--
		case c.Kind == store.Done:
			m.count[it]--
		case perhaps:
			back[it] = true
			delete(m.starts, it)
		case returned:
			back[it] = true
			m.waits(it, job.Reserved, c.Kind == store.Returned)
		}
	}
	if len(reply.OutOfStep) > 0 {
		t.Fatalf("skipped, though they are not strict: %v", reply.OutOfStep)
	}
	if reply.Bounced > 0 {
		m.See("bounced")
	}
	if reply.Suspects > 0 && m.how != store.OnlySuspects {
		m.setApart(t)
	}
	sort.Slice(reply.Jobs, func(i, j int) bool { return reply.Jobs[i].Fence < reply.Jobs[j].Fence })
	for _, job := range reply.Jobs {
		queue := req.Queues[slices.IndexFunc(req.Queues, func(q store.Queue) bool { return q.Name == job.Queue })]
		m.granted(t, p, job, len(req.Wants) < 2 || queue.Named || queue.Unique || queue.Cap > 0)
	}
}

// waits notes the start time of a job that went back into its queue.
func (m *model) waits(it storetest.Item, job store.Reserved, kept bool) {
	switch {
	case !m.clean[it.Queue]:
	case !kept:
		m.starts[it] = 0
	case !job.EnqueuedAt.IsZero():
		m.starts[it] = job.EnqueuedAt.Unix()
	default:
		delete(m.starts, it)
	}
}

func (m *model) granted(t *rapid.T, p *process, job store.Reserved, timed bool) {
	queue, it := theQueue(job.Queue), storetest.Item{Queue: job.Queue, Payload: string(job.Payload)}
	m.grantedInPause(t, job.Queue)
	if want := m.lockKey(it.Queue, it.Payload); job.LockKey != want {
		t.Fatalf("the lock of %q is %q, should be %q", it.Payload, job.LockKey, want)
	}
	if job.LockKey != "" {
		if job.Fence <= m.fences[job.LockKey] {
			t.Fatalf("I3: fence %d of %s after %d", job.Fence, job.LockKey, m.fences[job.LockKey])
		}
		m.fences[job.LockKey] = job.Fence
		if kept := m.kept[job.LockKey]; strings.HasPrefix(kept, "line:") && kept != "line:"+job.Queue {
			t.Fatalf("I5: %s is kept for %q, and a job of %s has it", job.LockKey, kept, job.Queue)
		}
		if _, orphan := m.orphans[job.LockKey]; orphan {
			m.See("lock taken over")
			delete(m.orphans, job.LockKey)
		}
		delete(m.freed, job.LockKey)
	}
	if job.Unique != queue.Unique || job.Capped != (queue.Cap > 0) {
		t.Fatalf("a job of %s is unique: %v, capped: %v", job.Queue, job.Unique, job.Capped)
	}
	m.suspected(t, job)
	if m.how == store.OnlySuspects {
		p.jobs[job.Token] = &running{Reserved: job, timed: timed}
		return // an equal one may wait in its queue, with another start time
	}
	if want, known := m.starts[it]; known && m.clean[it.Queue] && !m.fits(job.EnqueuedAt.Unix(), want) {
		t.Fatalf("I10: %q of %s was pushed at %d, not at %d", it.Payload, it.Queue, want, job.EnqueuedAt.Unix())
	}
	delete(m.starts, it)
	p.jobs[job.Token] = &running{Reserved: job, timed: timed}
}

// late: what a fenced process still sends changes nothing.
func (m *model) late(t *rapid.T, p *process) {
	req := store.ExchangeRequest{
		Proc: p.name, Master: p.master, Queues: modelQueues, Completions: p.late,
		Wants: []store.Want{{Token: "late", Worker: "w"}}, Repeat: rapid.Bool().Draw(t, "repeated"),
	}
	_, err := m.Store.Exchange(m.Ctx, req)
	_, beaten := m.Store.Beat(m.Ctx, store.BeatRequest{Proc: p.name})
	if !errors.Is(err, store.ErrFenced) || !errors.Is(beaten, store.ErrFenced) {
		t.Fatalf("I4: a fenced process was served: %v, %v", err, beaten)
	}
	m.unchanged(t, "a fenced process")
}

// repeatOld sends completions once more that were sent before.
func (m *model) repeatOld(t *rapid.T) {
	p := m.anyProcess(t)
	req := store.ExchangeRequest{Proc: p.name, Master: p.master}
	for _, e := range m.past {
		if e.proc == p {
			req.Completions = append(req.Completions, e.c)
		}
	}
	req.Completions = req.Completions[max(0, len(req.Completions)-5):]
	if p.fenced || len(req.Completions) == 0 {
		return
	}
	if reply := m.call(t, req); slices.Contains(reply.Applied, true) {
		t.Fatalf("I4: old completions were applied: %v", reply.Applied)
	}
	m.unchanged(t, "old completions")
}

// unasked does to a living process what may be done to a dead one only, and the other way round.
func (m *model) unasked(t *rapid.T) {
	p := m.anyProcess(t)
	var verdicts []store.Verdict
	for _, token := range p.tokens() {
		verdicts = append(verdicts, store.Verdict{Token: token, Action: store.Requeue})
	}
	if p.fenced {
		for _, v := range verdicts {
			if err := m.Store.Bury(m.Ctx, p.name, v); !errors.Is(err, store.ErrFenced) {
				t.Fatalf("I2: a fenced process has judged its own job: %v", err)
			}
		}
		m.unchanged(t, "a fenced process")
		return
	}
	_, _, err := m.Store.Fence(m.Ctx, p.name, false)
	if recovered := m.Store.Recover(m.Ctx, p.name, verdicts); !errors.Is(err, store.ErrAlive) || !errors.Is(recovered, store.ErrAlive) {
		t.Fatalf("I2: a living process was judged: %v, %v", err, recovered)
	}
	if len(m.now.Hash("resqued:inflight:"+p.name)) > 0 {
		_, err := m.Store.Unregister(m.Ctx, p.name)
		storetest.Must(t, err)
	}
	m.unchanged(t, "what needs a dead process")
}

func (m *model) unchanged(t *rapid.T, who string) {
	after := m.Look(t)
	ends := func(key string) bool { return shown(key) || strings.HasPrefix(key, "resqued:heal:") } // by itself, within milliseconds
	if after.Same(m.now, ends) {
		return
	}
	for key, e := range m.now {
		if !slices.Equal(e.Values, after[key].Values) {
			t.Fatalf("I4: %s changed %s from %q to %q", who, key, e.Values, after[key].Values)
		}
	}
	t.Fatalf("I4: %s changed\n%v\nto\n%v", who, m.now, after)
}

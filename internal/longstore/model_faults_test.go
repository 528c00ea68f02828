package longstore_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// crash ends a process and recovers its jobs, some of them at first.
func (m *longModel) crash(t *rapid.T) {
	m.crashed(t, rapid.SampledFrom(m.procs).Draw(t, "process"), rapid.Bool().Draw(t, "cut off"))
	if len(m.procs) < 3 {
		m.birth(t)
	}
}

// crashed also goes on where the last one who recovered was cut off.
func (m *longModel) crashed(t *rapid.T, p *longProc, cutOff bool) {
	held, _, err := m.Store.Fence(m.Ctx, p.name, true)
	storetest.Must(t, err)
	p.fenced = true
	m.check(t)
	var verdicts []store.Verdict
	for i := range held {
		v := store.Verdict{Token: held[i].Token, Action: rapid.SampledFrom([]store.Action{store.Requeue, store.Suspect}).Draw(t, "action")}
		if rapid.IntRange(0, 19).Draw(t, "thrown away") == 19 {
			v.Action, v.Failure = store.Fail, store.Record([]byte(`{"error":"x"}`))
		}
		verdicts = append(verdicts, v)
	}
	if len(verdicts) > 1 && rapid.Bool().Draw(t, "in parts") {
		m.See("recovered in parts")
		m.recovered(t, p, verdicts[1:]) // the newest come first
		m.check(t)
		if cutOff {
			return
		}
	}
	m.recovered(t, p, verdicts)
	m.procs = slices.DeleteFunc(m.procs, func(q *longProc) bool { return p == q })
}

func (m *longModel) recovered(t *rapid.T, p *longProc, verdicts []store.Verdict) {
	storetest.Must(t, m.Store.Recover(m.Ctx, p.name, verdicts))
	for _, v := range slices.Backward(verdicts) {
		i := slices.IndexFunc(m.hands, func(h *hand) bool { return h.proc == p && h.token == v.Token && h.there })
		if i < 0 {
			continue
		}
		h := m.hands[i]
		h.there = false
		if v.Action == store.Fail {
			m.failed++
		} else {
			m.push(h.queue, h.payload, true)
		}
	}
	m.losses()
}

// losses notes which runs have lost their payload without anyone's fault.
func (m *longModel) losses() {
	for _, r := range m.runs {
		if !r.lost && !r.parked && r.active() && m.copies(r) == 0 {
			m.See("lost")
			r.lost = true
		}
	}
}

// copies counts the payloads with which a run can go on.
func (m *longModel) copies(r *longRun) (n int) {
	count := func(payload string) {
		if uuid, slice := numberOf(payload); uuid == r.uuid && (slice == 0 || slice == r.slice) {
			n++
		}
	}
	for _, places := range []map[string][]string{m.queues, m.apart} {
		for _, list := range places {
			for _, payload := range list {
				count(payload)
			}
		}
	}
	for payload := range m.delayed {
		count(payload)
	}
	for _, h := range m.hands {
		if h.there && h.verdict != 'd' { // a process told that another one runs it drops it
			count(h.payload)
		}
	}
	return n
}

// lease: that of a process passes, or it beats again.
func (m *longModel) lease(t *rapid.T) {
	p := rapid.SampledFrom(m.procs).Draw(t, "process")
	switch {
	case p.fenced:
	case p.past:
		m.beat(t, p)
	default:
		storetest.Must(t, m.Redis.ZAdd(m.Ctx, storetest.Space+"resqued:procs", z(1, p.name)).Err())
		p.past = true
	}
}

func (m *longModel) beat(t *rapid.T, p *longProc) {
	_, err := m.Store.Beat(m.Ctx, store.BeatRequest{Proc: p.name})
	storetest.Must(t, err)
	p.past = false
}

// lock takes or releases a named lock.
func (m *longModel) lock(t *rapid.T) {
	release := rapid.IntRange(0, 2).Draw(t, "release") == 0
	living := !release && rapid.IntRange(0, 4).Draw(t, "dead") > 0
	h := m.anyHand(t, func(h *hand) bool { return h.there || !living })
	name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name")
	holder := m.locks[name]
	if release {
		if _, done := m.do(t, true, func() error { return m.Long.Unlock(m.Ctx, name, h.run()) }); done && holder == h {
			delete(m.locks, name)
		}
		return
	}
	got := false
	err, done := m.do(t, false, func() (err error) {
		got, err = m.Long.Lock(m.Ctx, name, h.run())
		return err
	})
	held := holder != nil && holder != h && holder.there
	dead := !h.there || h.proc.past || h.proc.fenced
	switch {
	case !done:
	case held || !dead:
		m.answered(t, "lock", err, "")
		if got == held {
			t.Fatalf("%s got the lock: %v; its holder is %v", h.name(), got, holder)
		}
		if got {
			m.See("lock taken")
			if holder != nil && holder != h {
				m.See("lock taken over")
			}
			m.locks[name] = h
		}
	default:
		m.answered(t, "lock", err, "LOST")
	}
}

// duplicate pushes a payload again, that of any slice, also without its number.
func (m *longModel) duplicate(t *rapid.T) {
	payload := `{"class":"L","args":["none"]}`
	if r := m.anyRun(t); r != nil {
		r.copied = true
		payload = m.payload(r, max(1, r.slice-int64(rapid.IntRange(0, 2).Draw(t, "slices ago"))))
		if rapid.IntRange(0, 3).Draw(t, "without number") == 0 {
			payload = fmt.Sprintf(`{"class":"%s","args":["%s"]}`, r.class, r.uuid)
		}
	}
	queue := rapid.SampledFrom([]string{"q", "low"}).Draw(t, "queue")
	storetest.Must(t, m.Redis.RPush(m.Ctx, storetest.Space+"queue:"+queue, payload).Err())
	m.push(queue, payload, false)
}

// lose throws something away.
func (m *longModel) lose(t *rapid.T) {
	switch rapid.SampledFrom([]string{"queue", "queue", "delayed", "record"}).Draw(t, "what") {
	case "queue":
		queue := rapid.SampledFrom([]string{"q", "low"}).Draw(t, "queue")
		storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+"queue:"+queue).Err())
		m.queues[queue] = nil
	case "delayed":
		if values := m.now.List("resqued:delayed"); len(values) > 0 {
			storetest.Must(t, m.Redis.ZRem(m.Ctx, storetest.Space+"resqued:delayed", values[0]).Err())
			delete(m.delayed, values[0][strings.Index(values[0], "{"):])
		}
	default:
		h := m.anyHand(t, func(h *hand) bool { return h.there })
		storetest.Must(t, m.Redis.HDel(m.Ctx, storetest.Space+"resqued:inflight:"+h.proc.name, h.token).Err())
		h.there = false
	}
	m.losses()
}

// setApart: suspects of having killed their process wait elsewhere, and come back.
func (m *longModel) setApart(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"q", "low"}).Draw(t, "queue")
	if len(m.apart[queue]) > 0 && rapid.Bool().Draw(t, "back") || len(m.queues[queue]) == 0 {
		m.back(t, queue)
		return
	}
	m.See("set apart")
	payload := m.queues[queue][0]
	storetest.Must(t, m.Redis.LPop(m.Ctx, storetest.Space+"queue:"+queue).Err())
	storetest.Must(t, m.Redis.RPush(m.Ctx, storetest.Space+"resqued:suspects:"+queue, "- "+payload).Err())
	m.queues[queue], m.apart[queue] = m.queues[queue][1:], append(m.apart[queue], payload)
}

func (m *longModel) back(t *rapid.T, queue string) {
	for _, payload := range m.apart[queue] {
		storetest.Must(t, m.Redis.RPush(m.Ctx, storetest.Space+"queue:"+queue, payload).Err())
		m.push(queue, payload, false)
	}
	storetest.Must(t, m.Redis.Del(m.Ctx, storetest.Space+"resqued:suspects:"+queue).Err())
	m.apart[queue] = nil
}

// clock: that of the server was ahead for a while, so that the last fence of a run is.
func (m *longModel) clock(t *rapid.T) {
	r := m.anyRun(t)
	if r == nil || r.owner != nil {
		t.Skip("nobody")
	}
	r.fence += 1e12
	r.set("fence", r.fence)
	storetest.Must(t, m.Redis.HSet(m.Ctx, storetest.Space+"resqued:longjob:run:"+r.uuid, "fence", r.fence).Err())
}

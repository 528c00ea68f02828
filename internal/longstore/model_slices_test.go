package longstore_test

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// busyQueues are those in which something waits.
func (m *longModel) busyQueues() []string {
	var list []string
	for _, queue := range []string{"q", "low", "u"} {
		if len(m.queues[queue]) > 0 {
			list = append(list, queue)
		}
	}
	return list
}

// take reserves a job.
func (m *longModel) take(t *rapid.T) {
	busy := m.busyQueues()
	var procs []*longProc
	for _, p := range m.procs {
		if !p.past && !p.fenced {
			procs = append(procs, p)
		}
	}
	if len(busy) == 0 || len(procs) == 0 {
		t.Skip("nothing waits, or nobody lives")
	}
	m.taken(t, rapid.SampledFrom(procs).Draw(t, "process"), rapid.SampledFrom(busy).Draw(t, "queue"))
}

func (m *longModel) taken(t *rapid.T, p *longProc, queue string) *hand {
	p.next++
	req := store.ExchangeRequest{
		Proc: p.name, Master: "m", Wants: []store.Want{{Token: fmt.Sprint(p.next), Worker: p.name + ":1:q"}}, Suspects: store.TakeSuspects,
		Queues: []store.Queue{{Name: queue, Unique: queue == "u"}},
	}
	reply, err := m.Store.Exchange(m.Ctx, req)
	storetest.Must(t, err)
	if len(reply.Jobs) != 1 || string(reply.Jobs[0].Payload) != m.queues[queue][0] {
		t.Fatalf("taken from %s: %v, should be %s", queue, reply.Jobs, m.queues[queue][0])
	}
	h := &hand{proc: p, token: reply.Jobs[0].Token, queue: queue, payload: m.queues[queue][0], there: true, reserved: reply.Jobs[0]}
	h.uuid, h.slice = numberOf(h.payload)
	m.queues[queue] = m.queues[queue][1:]
	m.hands = append(m.hands, h)
	m.prune()
	return h
}

// begin begins a slice, or begins it again: an answer may have been lost.
func (m *longModel) begin(t *rapid.T) {
	m.begun(t, m.anyHand(t, func(h *hand) bool { return rapid.IntRange(0, 2).Draw(t, "begun before") == 0 || len(h.fences) == 0 }))
}

func (m *longModel) begun(t *rapid.T, h *hand) (ok bool) {
	var record longstore.Record
	paused := false
	err, done := m.do(t, true, func() (err error) {
		record, err = m.Long.Begin(m.Ctx, longstore.Slice{UUID: h.uuid, Number: h.slice, Run: h.run()})
		if paused = errors.Is(err, longstore.ErrPaused); paused {
			return nil // it has parked the run
		}
		return err
	})
	if !done {
		return false
	}
	r := m.runs[h.uuid]
	want := m.mayBegin(h, r)
	if (want == "PAUSED") != paused {
		t.Fatalf("%s begins: it is paused: %v, %v, should be %q", h.uuid, paused, err, want)
	}
	if paused {
		m.parks(h, r)
		return false
	}
	if !m.answered(t, "begin", err, want) {
		switch want {
		case "GONE", "OVER", "STALE", "BUSY":
			h.verdict = 'd'
		case "LOST", "BEHIND":
			h.verdict = 'r'
		}
		return false
	}
	for _, other := range m.hands {
		if other != h && m.runs[other.uuid] != nil && other.kind == r.kind && other.running && other.there {
			t.Fatalf("%s runs slice %d of %s, and %s begins slice %d of %s", other.name(), other.begun, other.uuid, h.name(), r.slice, h.uuid)
		}
	}
	fence := record.Number("fence")
	if fence <= r.fence || fence < m.fenced {
		t.Fatalf("the fence of slice %d of %s is %d, that before was %d; %d when it all began", r.slice, r.uuid, fence, r.fence, m.fenced)
	}
	if m.died(h, r); r.owner == h {
		m.See("begun again")
	}
	now := m.passed()
	r.owner, r.fence, r.moved, r.score, r.behind = h, fence, false, now, nil
	r.set("status", "running")
	r.set("fence", fence)
	r.set("deaths", r.deaths)
	r.times["seen"], r.times["started"] = now, now
	if !r.everBegun() {
		r.times["begun"] = now
	}
	h.kind = r.kind
	h.begun, h.running, h.verdict = r.slice, true, 0
	h.fences = append(h.fences, fence)
	if !maps.Equal(record.State, r.state) || record.Number("slice") != r.slice || record.Number("deaths") != int64(r.deaths) {
		t.Fatalf("slice %d of %s begins with %v; the run remembers %v", r.slice, r.uuid, record, r.state)
	}
	return true
}

// died counts a death before a slice.
func (m *longModel) died(h *hand, r *longRun) {
	if r.owner == nil || r.owner == h {
		return
	}
	m.See("died")
	r.deaths++
	if r.moved {
		m.See("died after progress")
		r.deaths = 1
	}
}

// parks: a slice is taken whose run is paused.
func (m *longModel) parks(h *hand, r *longRun) {
	m.See("begin PAUSED")
	if m.died(h, r); r.owner != nil {
		m.See("died while it paused")
	}
	r.owner, r.moved = nil, false
	r.set("status", "queued")
	r.set("deaths", r.deaths)
	r.park()
	h.running, h.verdict = false, 'd'
}

// mayBegin returns what prevents a slice from beginning.
func (m *longModel) mayBegin(h *hand, r *longRun) string {
	switch {
	case r == nil:
		return "GONE"
	case !r.active():
		return "OVER"
	case h.slice != 0 && h.slice != r.slice:
		return "STALE"
	case !h.there:
		return "LOST"
	case h.proc.past || h.proc.fenced:
		return "LEASE"
	case r.owner != nil && r.owner != h && r.owner.there:
		return "BUSY"
	case r.paused:
		return "PAUSED"
	case r.behind != nil && r.behind != h && r.behind.there:
		return "BEHIND"
	}
	return ""
}

// save saves a slice, with whatever op and by whomever has ever begun one.
func (m *longModel) save(t *rapid.T) {
	h := m.anyHand(t, func(h *hand) bool { return len(h.fences) > 0 })
	if h.last != nil && rapid.IntRange(0, 5).Draw(t, "again") == 0 {
		m.saved(t, h, *h.last)
		return
	}
	op := rapid.SampledFrom([]longstore.Op{
		longstore.GoesOn, longstore.GoesOn, longstore.Yields, longstore.Yields, longstore.Waits, longstore.Interrupted, longstore.Completed, longstore.Failed,
	}).Draw(t, "op")
	save := m.saving(t, h, op)
	if rapid.IntRange(0, 7).Draw(t, "under an old fence") == 0 {
		save.Fence = h.fences[0]
	}
	m.saved(t, h, save)
}

// saving is what a slice has come to: whatever.
func (m *longModel) saving(t *rapid.T, h *hand, op longstore.Op) longstore.Save {
	m.number++
	save := longstore.Save{
		Slice: longstore.Slice{UUID: h.uuid, Number: h.begun, Run: h.run(), Fence: h.fence()}, Op: op, Further: fmt.Sprintf("r%d", m.number),
		Wait: rapid.SampledFrom([]time.Duration{time.Minute, 90 * time.Minute}).Draw(t, "wait"),
		Keep: rapid.SampledFrom([]time.Duration{10 * time.Minute, 8 * 24 * time.Hour}).Draw(t, "keep"), Progress: rapid.Bool().Draw(t, "progress"),
		Fields: map[string]string{"units": fmt.Sprint(m.number)}, Set: map[string]string{},
	}
	if r := m.runs[h.uuid]; r != nil {
		save.Class, save.Queue = r.class, againQueue(r.class)
	}
	field := rapid.SampledFrom([]string{"message", "error", "failures"}).Draw(t, "field")
	save.Fields[field] = field + fmt.Sprint(m.number)
	for _, key := range []string{"s:a", "s:b"} {
		switch rapid.IntRange(0, 2).Draw(t, key) {
		case 1:
			save.Set[key] = fmt.Sprint(m.number)
		case 2:
			save.Clear = append(save.Clear, key)
		}
	}
	return save
}

func (m *longModel) saved(t *rapid.T, h *hand, save longstore.Save) {
	var got longstore.Saved
	err, done := m.do(t, true, func() (err error) {
		got, err = m.Long.Save(m.Ctx, save)
		return err
	})
	if !done {
		return
	}
	r, ends := m.runs[h.uuid], save.Op != longstore.GoesOn
	if r != nil && ends && r.closed == save.Fence {
		m.See("ended twice")
		m.answered(t, "save", err, "")
		m.unchanged(t, "ended twice")
		return
	}
	want := m.maySave(h, r, save)
	h.last = &save
	if !m.answered(t, "save", err, want) {
		switch {
		case save.Fence != h.fence() || !h.running: // its end is told
		case want == "GONE" || want == "OVER":
			h.verdict, h.running = 'd', false
		case want == "SUPERSEDED":
			h.verdict, h.running = 'r', false
		}
		return
	}
	now := m.passed()
	maps.Copy(r.hash, save.Fields)
	maps.Copy(r.state, save.Set)
	for _, key := range save.Clear {
		delete(r.state, key)
	}
	r.times["seen"], r.score = now, now
	if save.Progress {
		r.moved, r.deaths = true, 0
		r.set("deaths", 0)
	}
	over := save.Op == longstore.Completed || save.Op == longstore.Failed
	if got.Paused != (r.paused && !over) {
		t.Fatalf("%s saves %c, and is told that it is paused: %v", h.uuid, save.Op, got.Paused)
	}
	if ends {
		m.closed(t, h, r, save, got.Further)
	} else if got.Further {
		t.Fatalf("a slice that goes on is followed by a run")
	}
}

// maySave returns why a slice must write nothing.
func (m *longModel) maySave(h *hand, r *longRun, save longstore.Save) string {
	switch {
	case r == nil:
		return "GONE"
	case save.Fence != r.fence:
		return "SUPERSEDED"
	case r.status() != "running":
		return "OVER"
	case save.Number != r.slice || r.owner != h || !h.there:
		return "SUPERSEDED"
	case h.proc.past || h.proc.fenced:
		return "LEASE"
	}
	return ""
}

// complete ends the record of a job, as a worker process does; for one that has lost it
// that comes too late.
func (m *longModel) complete(t *rapid.T) {
	m.completed(t, m.anyHand(t, func(h *hand) bool { return h.verdict != 0 }))
}

func (m *longModel) completed(t *rapid.T, h *hand) {
	c := store.Completion{Job: &h.reserved, Kind: store.Done}
	if h.verdict == 'r' {
		c.Kind = store.Requeued
	}
	reply, err := m.Store.Exchange(m.Ctx, store.ExchangeRequest{Proc: h.proc.name, Master: "m", Completions: []store.Completion{c}})
	if h.proc.past || h.proc.fenced {
		if !errors.Is(err, store.ErrFenced) {
			t.Fatalf("the end of %s comes too late: %v", h.name(), err)
		}
		m.See("late completion")
		return
	}
	storetest.Must(t, err)
	if reply.Applied[0] != h.there {
		t.Fatalf("the end of %s is applied: %v, should be %v", h.name(), reply.Applied[0], h.there)
	}
	if !h.there {
		m.See("late completion")
		return
	}
	h.there, h.running = false, false
	if c.Kind == store.Requeued {
		m.push(h.queue, h.payload, false)
	}
}

// start begins a slice, and perhaps saves something.
func (m *longModel) start(t *rapid.T) {
	m.take(t)
	h := m.hands[len(m.hands)-1]
	m.check(t)
	if m.begun(t, h) && rapid.Bool().Draw(t, "and saves") {
		m.check(t)
		m.saved(t, h, m.saving(t, h, longstore.GoesOn))
	}
}

// work works a slice from its beginning to its end without anybody's coming between.
func (m *longModel) work(t *rapid.T) {
	m.take(t)
	h := m.hands[len(m.hands)-1]
	m.check(t)
	if m.begun(t, h) {
		m.check(t)
		op := rapid.SampledFrom([]longstore.Op{longstore.Yields, longstore.Yields, longstore.Yields, longstore.Waits, longstore.Completed, longstore.Failed}).Draw(t, "op")
		m.saved(t, h, m.saving(t, h, op))
		m.check(t)
	}
	if h.verdict != 0 && rapid.IntRange(0, 3).Draw(t, "and completes") > 0 {
		m.completed(t, h)
	}
}

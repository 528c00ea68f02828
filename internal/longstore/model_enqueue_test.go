package longstore_test

import (
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
)

// longKinds are what can be enqueued: kind, class, queue of its further slices.
var longKinds = [][3]string{{"k1", "L", "low"}, {"k2", "L", "low"}, {"k3", "M", "u"}}

func againQueue(class string) string {
	if class == "M" {
		return "u"
	}
	return "low"
}

// add enqueues runs in each of the three ways.
func (m *longModel) add(t *rapid.T) {
	way := rapid.SampledFrom([]longstore.Way{longstore.Always, longstore.Unique, longstore.Unique, longstore.Unique, longstore.Debounce, longstore.Debounce}).Draw(t, "way")
	var list []longstore.NewRun
	for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "runs") {
		kind := rapid.SampledFrom(longKinds).Draw(t, "kind")
		m.number++
		list = append(list, longstore.NewRun{
			UUID: fmt.Sprintf("r%d", m.number), Kind: kind[0], Class: kind[1], Args: []byte(`["` + kind[0] + `"]`),
			Queue: rapid.SampledFrom([]string{"q", "u"}).Draw(t, "queue"), Again: rapid.SampledFrom([]string{"", "", "q"}).Draw(t, "queue of further slices"),
		})
	}
	var added []longstore.Added
	_, done := m.do(t, false, func() (err error) {
		added, err = m.Long.AddRuns(m.Ctx, way, list)
		return err
	})
	if !done {
		return
	}
	for i, l := range list {
		want := longstore.Added{Outcome: 'n', UUID: l.UUID}
		old := m.runs[m.current[l.Kind]]
		switch {
		case old == nil || !old.active() || way == longstore.Always:
			m.create(l.UUID, l.Kind, l.Class, string(l.Args), l.Queue, l.Again)
			m.displace(old)
		case way == longstore.Unique, !old.everBegun():
			want = longstore.Added{Outcome: 'e', UUID: old.uuid}
			if way == longstore.Debounce {
				m.See("one more asked for of a run that has not begun")
			}
		default:
			want = longstore.Added{Outcome: 'r', UUID: old.uuid}
			if old.rerun {
				m.See("one more asked for twice")
			}
			old.rerun = true
			old.set("rerun", 1)
		}
		if added[i] != want {
			t.Fatalf("enqueued %c: %c %s, should be %c %s", way, added[i].Outcome, added[i].UUID, want.Outcome, want.UUID)
		}
	}
}

func (r *longRun) everBegun() bool {
	_, begun := r.times["begun"]
	return begun
}

// cancel ends a run for good.
func (m *longModel) cancel(t *rapid.T) {
	r, uuid := m.anyRun(t), "none"
	if r != nil {
		uuid = r.uuid
	}
	keep := rapid.SampledFrom([]time.Duration{10 * time.Minute, 8 * 24 * time.Hour}).Draw(t, "keep")
	err, done := error(nil), false
	// That it is ending is not a reason against it: it is done.
	var ending bool
	err, done = m.do(t, true, func() error {
		err := m.Long.Cancel(m.Ctx, uuid, keep)
		if ending = errors.Is(err, longstore.ErrEnding); ending {
			return nil
		}
		return err
	})
	switch {
	case !done:
	case r == nil:
		m.answered(t, "cancel", err, "GONE")
	case !r.active():
		m.answered(t, "cancel", err, "OVER")
	default:
		m.answered(t, "cancel", err, "")
		if want := r.owner != nil && r.owner.there; ending != want {
			t.Fatalf("%s is cancelled, and a slice of it is running: %v, should be %v", uuid, ending, want)
		} else if want {
			m.See("cancel ENDING")
		}
		m.end(r, "cancelled", keep)
	}
}

// again has a run go on, as its caller has seen it, who may have looked a while ago.
func (m *longModel) again(t *rapid.T) {
	r := m.anyRun(t)
	if r == nil {
		t.Skip("no run")
	}
	slice, lost := r.slice, rapid.Bool().Draw(t, "lost")
	if !r.active() && rapid.IntRange(0, 3).Draw(t, "wish") > 0 {
		lost = false
	}
	if rapid.IntRange(0, 4).Draw(t, "looked a while ago") == 0 {
		slice--
	}
	record := longstore.Record{UUID: r.uuid, Fields: map[string]string{"class": r.class, "slice": fmt.Sprint(slice)}}
	paused := false
	err, done := m.do(t, true, func() error {
		err := m.Long.Again(m.Ctx, record, lost)
		if paused = errors.Is(err, longstore.ErrPaused); paused {
			return nil
		}
		return err
	})
	if !done {
		return
	}
	want := m.mayGoOn(r, slice, lost)
	if paused != (want == "" && r.paused) {
		t.Fatalf("%s goes on: it is paused: %v, %v, should be %q", r.uuid, paused, err, want)
	}
	if paused {
		m.See("again PAUSED")
	}
	if m.answered(t, "again", err, want) {
		m.goesOn(r, lost)
	}
}

// pause has a run do nothing more.
func (m *longModel) pause(t *rapid.T) {
	r, uuid := m.anyRun(t), "none"
	if r != nil {
		uuid = r.uuid
	}
	var ending bool
	err, done := m.do(t, true, func() error {
		err := m.Long.Pause(m.Ctx, uuid)
		if ending = errors.Is(err, longstore.ErrEnding); ending {
			return nil
		}
		return err
	})
	switch {
	case !done:
	case r == nil:
		m.answered(t, "pause", err, "GONE")
	case !r.active():
		m.answered(t, "pause", err, "OVER")
	default:
		m.answered(t, "pause", err, "")
		if want := r.owner != nil && r.owner.there; ending != want {
			t.Fatalf("%s is paused, and a slice of it is running: %v, should be %v", uuid, ending, want)
		} else if want {
			m.See("pause ENDING")
		}
		if !r.paused {
			r.paused, r.times["paused"] = true, m.passed()
		}
	}
}

// resume continues a run as a client has seen it, perhaps a while ago.
func (m *longModel) resume(t *rapid.T) {
	r := m.anyRun(t)
	if r == nil {
		t.Skip("no run")
	}
	slice := r.slice
	if rapid.IntRange(0, 4).Draw(t, "looked a while ago") == 0 {
		slice--
	}
	m.resumed(t, r, slice)
}

func (m *longModel) resumed(t *rapid.T, r *longRun, slice int64) {
	record := longstore.Record{UUID: r.uuid, Fields: map[string]string{"class": r.class, "slice": fmt.Sprint(slice)}}
	err, done := m.do(t, true, func() error { return m.Long.Resume(m.Ctx, record) })
	if !done {
		return
	}
	want := ""
	switch {
	case !r.active():
		want = "OVER"
	case !r.paused:
		want = "RUNS"
	case slice != r.slice:
		want = "MOVED"
	}
	if !m.answered(t, "resume", err, want) {
		return
	}
	parked := r.parked
	r.unpause()
	if !parked {
		return
	}
	m.See("goes on that was parked")
	r.slice++
	r.set("slice", r.slice)
	r.times["seen"], r.score = m.passed(), m.passed()
	m.push(r.hash["queue"], m.payload(r, r.slice), false)
}

// mayGoOn returns what prevents a run from continuing.
func (m *longModel) mayGoOn(r *longRun, slice int64, lost bool) string {
	newest := m.runs[m.current[r.kind]]
	switch {
	case lost != r.active(), r.status() == "completed", r.status() == "superseded":
		return "OVER"
	case slice != r.slice:
		return "MOVED"
	case r.owner != nil && r.owner.there:
		return "ENDING"
	case r.parked:
		return ""
	case newest != nil && newest != r && newest.active():
		return "NEWER"
	}
	return ""
}

func (m *longModel) goesOn(r *longRun, lost bool) {
	if r.parked {
		r.score = never
		return
	}
	switch {
	case !lost || r.owner == nil:
		r.deaths = 0
	case r.moved:
		r.deaths = 1
	default:
		r.deaths++
	}
	r.set("status", "queued")
	r.slice++
	r.set("slice", r.slice)
	r.set("deaths", r.deaths)
	r.owner, r.moved = nil, false
	r.times["seen"], r.score = m.passed(), m.passed()
	if !lost {
		delete(r.times, "ended")
		delete(r.hash, "error")
		delete(r.hash, "failures")
	}
	if newest := m.runs[m.current[r.kind]]; newest != r {
		if h := behind(newest); h != nil {
			r.behind = h
		}
	}
	m.current[r.kind] = r.uuid
	if r.paused {
		m.See("lost while it paused")
		r.park()
		return
	}
	m.push(r.hash["queue"], m.payload(r, r.slice), false)
	r.lost = false
}

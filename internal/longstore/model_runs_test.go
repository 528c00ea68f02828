package longstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
)

// create makes a run, the newest of its kind.
func (m *longModel) create(uuid, kind, class, args, first, again string) {
	now := m.passed()
	r := &longRun{
		uuid: uuid, kind: kind, class: class, first: first, again: again, slice: 1, state: map[string]string{}, score: now,
		hash: map[string]string{
			"kind": kind, "class": class, "args": args, "first": first, "queue": first, "again": again, "status": "queued", "slice": "1", "owner": "", "fence": "0",
		},
		times: map[string]span{"created": now, "seen": now},
	}
	r.behind = behind(m.runs[m.current[kind]])
	m.runs[uuid], m.current[kind] = r, uuid
	m.order = append(m.order, uuid)
	m.push(first, m.payload(r, 1), false)
}

// behind returns who still runs the code of a run, or of the one before it.
func behind(r *longRun) *hand {
	if r != nil {
		for _, h := range []*hand{r.owner, r.behind} {
			if h != nil && h.there {
				return h
			}
		}
	}
	return nil
}

// displace is for the run that was the newest.
func (m *longModel) displace(r *longRun) {
	if r == nil {
		return
	}
	shortly := m.passed().plus(longstore.KeepSuperseded)
	switch {
	case r.active():
		m.See("superseded")
		m.end(r, "superseded", longstore.KeepSuperseded)
		r.state = map[string]string{}
	case r.score.from > shortly.to:
		r.score = shortly
	}
}

func (m *longModel) end(r *longRun, status string, keep time.Duration) {
	r.set("status", status)
	r.times["ended"], r.score = m.passed(), m.passed().plus(keep)
	r.rerun = false
	delete(r.hash, "rerun")
	r.unpause()
}

func (m *longModel) payload(r *longRun, slice int64) string {
	return string(longstore.Payload(r.class, r.uuid, slice))
}

// push puts a payload into its queue: that may be a unique one, where it may wait already.
func (m *longModel) push(queue, payload string, head bool) {
	list := m.queues[queue]
	if queue == "u" && slices.Contains(list, payload) {
		return
	}
	if head {
		m.queues[queue] = append([]string{payload}, list...)
		return
	}
	m.queues[queue] = append(list, payload)
}

// numberOf returns the run and the slice number in a payload.
func numberOf(payload string) (uuid string, slice int64) {
	_, rest, _ := strings.Cut(payload, `"args":["`)
	uuid, rest, _ = strings.Cut(rest, `"]`)
	_, id, _ := strings.Cut(rest, `"id":"`+uuid+".")
	slice, _ = strconv.ParseInt(strings.TrimSuffix(id, `"}`), 10, 64)
	return uuid, slice
}

// closed is the end of a slice.
func (m *longModel) closed(t *rapid.T, h *hand, r *longRun, save longstore.Save, further bool) {
	n := 0
	_, _ = fmt.Sscan(r.hash["slices"], &n)
	r.set("slices", n+1)
	r.set("closed", save.Fence)
	r.closed, r.owner = save.Fence, nil
	h.running, h.verdict = false, 'd'
	more := r.rerun
	switch save.Op {
	case longstore.Interrupted:
		r.set("status", "queued")
		h.verdict = 'r'
		return
	case longstore.Yields, longstore.Waits:
		queue := save.Queue
		if r.again != "" {
			queue = r.again
		}
		r.set("status", "queued")
		r.set("queue", queue)
		r.slice++
		r.set("slice", r.slice)
		if save.Op == longstore.Yields && r.paused {
			m.See("paused at its end")
			r.park()
			return
		}
		if save.Op == longstore.Yields {
			m.push(queue, m.payload(r, r.slice), false)
			return
		}
		m.delayed[m.payload(r, r.slice)] = waiting{queue, m.passed().plus(save.Wait)}
		r.score = m.passed().plus(save.Wait)
		return
	case longstore.Completed:
		r.state = map[string]string{}
		m.end(r, "completed", save.Keep)
	default:
		m.end(r, "failed", save.Keep)
	}
	if further != more {
		t.Fatalf("%s is followed by another run: %v, should be %v", r.uuid, further, more)
	}
	if more {
		m.See("one more")
		m.create(save.Further, r.kind, r.class, r.hash["args"], r.first, r.again)
		m.displace(r)
	}
}

package store_test

import (
	"crypto/sha1" //nolint:gosec // as the scripts name long arguments
	"encoding/hex"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// common payloads are what locks collide over; the others are odd.
var common = []body{
	{`{"class":"A","args":["a/b"],"n":%d}`, "A", `["a/b"]`},
	{`{"class":"X::JobWrapper","args":[{"arguments":[ "a\/b" ],"job_class":"A"}],"n":%d}`, "A", `["a/b"]`},
	{`{"class":"B","args":[1],"n":%d}`, "B", `[1]`},
}

var odd = []body{
	{` { "n" : %d , "args":[1, "a b"] , "class" : "B" } `, "B", `[1,"a b"]`},
	{`{"class":"G","args":["é <&>` + "\u2028" + `"],"n":%d}`, "G", `["é <&>` + "\u2028" + `"]`},
	{`{"class":"G","args":[12345678901234567,1e400,-0.0,1.10],"n":%d}`, "G", `[12345678901234567,1e400,-0.0,1.10]`},
	{`{"class":"A","args":[{},[],{"a":{}}],"n":%d}`, "A", `[{},[],{"a":{}}]`},
	{`{"class":"A","args":["]","[[ {\""],"n":%d}`, "A", `["]","[[ {\""]`},
	{`{"class":"A","args":null,"n":%d}`, "A", `[]`},
	{`{"class":"B","args":["` + long + `"],"n":%d}`, "B", `["` + long + `"]`},
	{"no JSON %d \xff\x00", "", ""},
}

const long = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789" +
	"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

// payload makes a new one; in a unique queue it has no number, so that equal ones meet, and few numbers where many are to be equal.
func (m *model) payload(t *rapid.T, queue store.Queue) string {
	bodies := common
	if rapid.IntRange(0, 2).Draw(t, "odd") == 2 {
		bodies = odd
	}
	if taken := m.taken[queue.Name]; queue.Unique && taken != "" && rapid.Bool().Draw(t, "again") {
		return taken
	}
	return m.numbered(queue, rapid.SampledFrom(bodies).Draw(t, "payload"))
}

func (m *model) numbered(queue store.Queue, b body) string {
	n := 0
	if !queue.Unique {
		m.number++
		n = m.number
		if m.equal {
			n = m.number % 2
		}
	}
	text := fmt.Sprintf(b.format, n)
	m.bodies[text] = b
	return text
}

// lockKey is the lock of a payload in a queue; empty if it has none.
func (m *model) lockKey(queue, payload string) string {
	if !theQueue(queue).Locked {
		return ""
	}
	return storetest.Space + "locket:job_locks:" + m.lockName(queue, payload)
}

func (m *model) lockName(queue, payload string) string {
	b := m.bodies[payload]
	if m.goNamed(queue, payload) {
		return "go " + b.class
	}
	if b.class == "" {
		return payload
	}
	if len(b.args) > 200 {
		sum := sha1.Sum([]byte(b.args)) //nolint:gosec // as above
		return b.class + ":" + hex.EncodeToString(sum[:])
	}
	return b.class + b.args
}

func (m *model) goNamed(queue, payload string) bool {
	class := m.bodies[payload].class
	// Go may find a class where the scripts find none.
	return m.named[queue] || slices.Contains(m.classes, class) || class == "" && len(m.classes) > 0
}

// push enqueues a job, into a unique queue as we do or as Ruby does.
func (m *model) push(t *rapid.T) {
	queue := m.anyQueue(t)
	m.pushTo(t, queue, m.payload(t, queue))
}

func (m *model) pushTo(t *rapid.T, queue store.Queue, payload string) {
	it := storetest.Item{Queue: queue.Name, Payload: payload}
	switch {
	case !queue.Unique:
		_, err := m.Store.Push(m.Ctx, queue.Name, []byte(payload))
		storetest.Must(t, err)
		m.count[it]++
	case rapid.Bool().Draw(t, "by Ruby"):
		m.gemUniquePush(t, queue.Name, payload)
	default:
		// The same twice: one of them is a duplicate.
		reply, err := m.Store.PushUnique(m.Ctx, queue.Name, false, []byte(payload), []byte(payload))
		storetest.Must(t, err)
		waits := slices.Contains(m.now.List("queue:"+it.Queue), it.Payload)
		if !slices.Equal(reply.Pushed, []bool{!waits, false}) {
			t.Fatalf("I10: pushed %v, an equal one waits: %v, queue %s, %q", reply.Pushed, waits, it.Queue, it.Payload)
		}
		if !waits {
			m.count[it]++
			m.waits(it, store.Reserved{}, false)
		}
	}
}

// jam fills a queue with jobs of one lock, and lets an exchange find that out. Another
// job may follow.
func (m *model) jam(t *rapid.T) {
	queue := theQueue(rapid.SampledFrom([]string{"a", "d"}).Draw(t, "queue"))
	for _, b := range common[:2] {
		m.pushTo(t, queue, m.numbered(queue, b))
		m.now = m.Look(t)
	}
	if p := m.anyProcess(t); !p.fenced {
		m.request(t, p, nil, []store.Queue{queue}, 4, "answered")
		m.now = m.Look(t)
	}
	if rapid.Bool().Draw(t, "another") {
		m.pushTo(t, queue, m.payload(t, queue))
		if m.now = m.Look(t); rapid.Bool().Draw(t, "full") {
			m.whenFull(t, m.serve)
		}
	}
}

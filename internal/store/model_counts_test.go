package store_test

import (
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

const attemptsPrefix = "resque-retry:"

// shown reports whether a key is what pages show of a job that runs again. It ends by itself.
func shown(key string) bool { return strings.HasPrefix(key, "failure-"+attemptsPrefix) }

func (m *model) attemptsKey(payload []byte) string {
	return attemptsPrefix + m.bodies[string(payload)].class
}

// counted gives a completion the count of its job's attempts: a job that runs again
// always has one, any other if it was counted before.
func (m *model) counted(t *rapid.T, c *store.Completion) {
	key := m.attemptsKey(c.Job.Payload)
	_, there := m.attempts[key]
	switch {
	case c.Kind == store.Retried:
		c.Count = &store.Count{Key: key, Value: rapid.IntRange(0, 3).Draw(t, "attempt")}
		if rapid.Bool().Draw(t, "the count has an end") {
			c.Count.Lifetime = time.Hour
		}
	case there && (c.Kind == store.Done || c.Kind == store.Failed):
		c.Count = &store.Count{Key: key}
	}
}

// notedAll takes over what the completions of a request have done to counts, in the order
// in which they were applied: where the first of two tries lacked a right it has applied
// some, and left the others to the second one.
func (m *model) notedAll(p *process, completions []store.Completion) {
	for _, first := range []bool{true, false} {
		for i, c := range completions {
			if !p.jobs[c.Job.Token].lost && (i < len(m.early) && m.early[i]) == first {
				m.noted(c)
			}
		}
	}
}

// noted takes over what a completion that was applied has done to a count.
func (m *model) noted(c store.Completion) {
	switch {
	case c.Kind == store.Retried:
		m.See("retried")
		m.attempts[c.Count.Key] = storetest.Entry{TTL: c.Count.Lifetime.Milliseconds(), Values: []string{strconv.Itoa(c.Count.Value)}}
	case c.Count != nil:
		m.See("count ended")
		delete(m.attempts, c.Count.Key)
	}
}

func (m *model) checkAttempts(t *rapid.T) {
	for key, want := range m.attempts {
		got, there := m.now[key]
		if !there || got.Values[0] != want.Values[0] || (got.TTL > 0) != (want.TTL > 0) {
			t.Fatalf("the count %s is %v, should be %v", key, got, want)
		}
	}
	for key, e := range m.now {
		if _, known := m.attempts[key]; !known && strings.HasPrefix(key, attemptsPrefix) {
			t.Fatalf("nobody counts %s: %v", key, e)
		}
	}
}

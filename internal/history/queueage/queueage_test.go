package queueage_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/history/queueage"
)

// job is a job of the model: when it was really pushed (ms).
type job struct {
	payload string
	at      int64
}

// queue is a queue on simulated time.
type queue struct {
	jobs      []job
	now, last int64
	ended     int64
	pushed    int
	known     queueage.List
	equal     bool // all payloads are the same
	worst     float64
}

func (q *queue) push(n int) {
	for range n {
		q.pushed++
		payload := fmt.Sprintf(`{"class":"J","args":[%d]}`, q.pushed)
		if q.equal {
			payload = `{"class":"J","args":[]}`
		}
		q.jobs = append(q.jobs, job{payload, q.now})
	}
}

func (q *queue) pop(n int) {
	n = min(n, len(q.jobs))
	q.jobs, q.ended = q.jobs[n:], q.ended+int64(n)
}

// places returns where a payload stands, from the end: two places at most.
func (q *queue) places(payload []byte) (out []int64) {
	most := 1
	if q.equal {
		most = 2
	}
	for i, j := range slices.Backward(q.jobs) {
		if payload != nil && j.payload == string(payload) {
			out = append(out, int64(i))
		}
		if len(out) == most {
			break
		}
	}
	return out
}

// look looks at the queue, and passes what it knows on as text, as through Redis.
func (q *queue) look() {
	from := q.last
	q.last = q.now
	if len(q.jobs) == 0 {
		q.known = queueage.List{}
		return
	}
	l := queueage.Parse(q.known.String())
	tail, middle, front := l.Anchors()
	s := queueage.Look{Len: int64(len(q.jobs)), Tail: -1, Middle: -1, Front: -1, Head: []byte(q.jobs[0].payload), Taken: q.ended, From: from, To: q.now}
	if at := q.places(tail); len(at) > 0 {
		s.Tail, s.Twice = at[0], len(at) > 1
	} else if at := q.places(middle); len(at) > 0 {
		s.Middle = at[0]
	}
	s.Front = int64(slices.IndexFunc(q.jobs[:min(len(q.jobs), 100)], func(j job) bool { return j.payload == string(front) }))
	for _, j := range q.jobs[max(0, len(q.jobs)-3):] {
		s.Last = append(s.Last, []byte(j.payload))
	}
	if half := l.Half(); half < s.Len {
		s.Half = []byte(q.jobs[half].payload)
	}
	l.See(s)
	q.known = l
}

// wrong is by how many seconds a job is taken to be older than it is, and as a part of its age.
func (q *queue) wrong(place int) (seconds, part float64, source queueage.Source) {
	at, source := q.known.Pushed(int64(place))
	off, age := float64(q.jobs[place].at-at)/1000, float64(q.now-q.jobs[place].at)/1000
	return off, off / max(age, 0.001), source
}

// TestAgesOfAModel compares with a list whose jobs have times. If a look is taken each second an age
// is right to a second or 2 %, however fast jobs come and go. It is off by a little more if the very
// jobs by which the place is known are removed.
func TestAgesOfAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := &queue{now: 1_700_000_000_000}
		q.last = q.now
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		removes := rapid.Bool().Draw(t, "somebody removes jobs")
		push, pop, most := 0, 0, 1.0
		if removes {
			most = 10 // the numbers of the others are off by as many as were removed
		}
		for second := range rapid.IntRange(10, 400).Draw(t, "seconds") {
			if second%30 == 0 {
				push, pop = []int{0, 1, 3, 20}[random.IntN(4)], []int{0, 1, 3, 25}[random.IntN(4)]
			}
			for range 4 {
				q.now += 250
				q.push(random.IntN(push + 1))
				q.pop(random.IntN(pop + 1))
				if removes && random.IntN(50) == 0 && len(q.jobs) > 150 { // the last one, by which the end was known
					q.jobs = q.jobs[:len(q.jobs)-1]
				}
			}
			q.look()
			for _, place := range []int{0, len(q.jobs) / 2, len(q.jobs) - 1} {
				if len(q.jobs) == 0 {
					break
				}
				off, part, source := q.wrong(place)
				if off < 1-most-0.001 && len(q.jobs) > 150 || off < -0.001 && !removes || off > most && part > 0.02*most {
					t.Fatalf("second %d, job %d of %d: off by %.3f s, %.1f %% of its age (%s)", second, place, len(q.jobs), off, 100*part, source)
				}
				if !removes { // otherwise the numbers may be estimates
					require.Equal(t, queueage.Measured, source)
				}
			}
		}
	})
}

// TestErrors is the table of docs/dashboard.md: how much an age is off.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seconds    int
		push, pop  int // a second
		equal      bool
		back       int // jobs that go back to the head, each ten seconds
		most, part float64
		source     queueage.Source
	}{
		"steady":               {900, 20, 20, false, 0, 1, 0.02, queueage.Measured},
		"grows":                {900, 30, 20, false, 0, 1, 0.02, queueage.Measured},
		"stands":               {900, 1, 0, false, 0, 1, 0.02, queueage.Measured},
		"equal payloads":       {900, 20, 20, true, 0, 1, 0.02, queueage.Estimate},
		"jobs that go back":    {900, 30, 20, false, 5, 2, 0.02, queueage.Measured},
		"a backlog of an hour": {3600, 1, 0, false, 0, 1, 0.02, queueage.Measured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &queue{now: 1_700_000_000_000, equal: c.equal}
			q.last = q.now
			q.push(1000)
			if c.seconds > 900 { // the one at the head stays
				q.jobs = q.jobs[:1]
			}
			marks := 0
			for second := range c.seconds {
				q.now += 1000
				q.push(c.push)
				if second%10 == 9 && c.back > 0 {
					taken := slices.Clone(q.jobs[:c.back])
					q.pop(c.back)
					q.look()
					q.jobs = append(taken, q.jobs...)
				}
				q.pop(c.pop)
				q.look()
				off, part, source := q.wrong(0)
				if part > c.part {
					q.worst = max(q.worst, off)
				}
				require.GreaterOrEqual(t, off, -0.001)
				if second > 0 {
					require.Equal(t, c.source, source)
				}
				marks = max(marks, strings.Count(q.known.String(), ":"))
			}
			t.Logf("off by %.2f s at most where that is more than %.0f %%; %d marks", q.worst, 100*c.part, marks)
			require.LessOrEqual(t, q.worst, c.most)
		})
	}
}

// TestFirstLook: of jobs that were there before anybody looked only a lower bound is known.
func TestFirstLook(t *testing.T) {
	t.Parallel()
	q := &queue{now: 1_700_000_000_000}
	q.push(3)
	q.now += 60_000
	q.look() // the first one: q.last is 0
	at, source := q.known.Pushed(0)
	require.Equal(t, queueage.AtLeast, source)
	require.Equal(t, q.now, at)
	q.now += 1000
	q.push(1)
	q.look()
	_, source = q.known.Pushed(3)
	require.Equal(t, queueage.Measured, source)
}

// TestForeignText: what another program has written, or half of a text, is not believed.
func TestForeignText(t *testing.T) {
	t.Parallel()
	q := &queue{now: 1_700_000_000_000}
	q.last = q.now - 500
	q.push(5)
	q.look()
	text := q.known.String()
	require.Equal(t, q.known, queueage.Parse(text))
	for cut := range len(text) {
		l := queueage.Parse(text[:cut])
		_, source := l.Pushed(0)
		require.Equal(t, queueage.AtLeast, source)
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := bytes.Clone([]byte(text))
		raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		l := queueage.Parse(string(raw))
		l.Pushed(0)
		l.See(queueage.Look{Len: 3, Tail: -1, Middle: -1, Front: -1, From: 1, To: 2})
		l.Pushed(2)
	})
}

package workerproc

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

// calling are exchanges whose calls are not executed: the test acts as the loop.
type calling struct {
	*exchanges
	idlers *threads // without jobs
}

func stopped(t *testing.T, threads, lanes int) calling {
	t.Helper()
	s := setup(t)
	s.cfg.Threads = threads
	x := s.exchanges()
	x.saw([]string{"q"})
	c := calling{x, x.threads}
	c.idlers.idle = nil
	for i := range lanes {
		x.lanes = append(x.lanes, newLane(i))
	}
	return c
}

// silent counts nothing.
type silent struct{}

func (silent) Job(string, string, time.Duration, time.Duration) {}
func (silent) Count(string, int)                                {}

// ends makes threads end their jobs.
func (c calling) ends(threads ...int) {
	for _, i := range threads {
		c.idlers.free([]int{i})
		c.add(store.Completion{Job: &store.Reserved{Token: fmt.Sprint(i)}})
	}
}

// sent returns how many ended jobs the calls report that leave now, and how many jobs they ask
// for.
func (c calling) sent() (calls [][2]int) {
	c.send()
	for _, l := range c.lanes {
		select {
		case req := <-l.requests:
			calls = append(calls, [2]int{len(req.Completions), len(req.Wants)})
		default:
		}
	}
	return calls
}

func TestCallsShareWhatEndsAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 9, 2)
		p.idlers.pace.brief = true
		p.ends(0, 1, 2, 3, 4, 5, 6, 7, 8)
		require.Equal(t, [][2]int{{5, 5}, {4, 4}}, p.sent())
	})
	t.Run("the rest waits for the other lane", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 10, 2)
		p.idlers.pace.brief = true
		p.ends(0, 1, 2)
		require.Equal(t, [][2]int{{3, 3}}, p.sent())
		p.ends(3, 4, 5, 6, 7, 8, 9)
		require.Equal(t, [][2]int{{5, 5}}, p.sent())
		require.Len(t, p.ended, 2)
		p.answered(p.lanes[0])
		p.idlers.idle = p.idlers.idle[:2] // the others have got a job
		p.ends(0, 1, 2)
		require.Equal(t, [][2]int{{5, 5}}, p.sent())
	})
	t.Run("threads that have no job ask at once", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 10, 2)
		p.idlers.pace.brief = true
		p.idlers.idle = append(p.idlers.idle, 8, 9)
		p.ends(0, 1, 2, 3, 4, 5, 6)
		require.Equal(t, [][2]int{{5, 7}}, p.sent())
	})
	t.Run("jobs that take a while", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 9, 2)
		p.ends(0, 1, 2, 3, 4, 5, 6, 7, 8)
		require.Equal(t, [][2]int{{9, 9}}, p.sent())
	})
	t.Run("a second call leaves when 30 percent have ended, or 15 that took a while", func(t *testing.T) {
		t.Parallel()
		for brief, least := range map[bool]int{true: 3, false: 2} {
			p := stopped(t, 10, 2)
			p.idlers.pace.brief = brief
			p.ends(0)
			require.Equal(t, [][2]int{{1, 1}}, p.sent())
			for i := 1; i < least; i++ {
				p.ends(i)
				require.Empty(t, p.sent())
			}
			p.ends(least)
			require.Equal(t, [][2]int{{least, least}}, p.sent())
		}
	})
	t.Run("one lane", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 3, 1)
		p.idlers.pace.brief = true
		p.ends(0, 1, 2)
		require.Equal(t, [][2]int{{3, 3}}, p.sent())
	})
}

// TestNamesForTheNextCall: names that a call asked for go with the next one, even if another
// call that asked for none was answered in between.
func TestNamesForTheNextCall(t *testing.T) {
	t.Parallel()
	p := stopped(t, 10, 2)
	request := func(lane int, ended ...int) store.ExchangeRequest {
		p.ends(ended...)
		p.send()
		return <-p.lanes[lane].requests
	}
	answer := func(lane int, req store.ExchangeRequest, names ...store.LockName) {
		p.answered(p.lanes[lane])
		r := exchangeResult{lane: p.lanes[lane], req: req, names: names}
		p.take(&r)
		p.idlers.idle, p.hungry = nil, true
	}
	name := store.LockName{Queue: "q", Payload: []byte("{}"), Tenant: "t"}
	first, second := request(0, 0, 1, 2), request(1, 3, 4, 5)
	answer(0, first, name)
	answer(1, second)
	first = request(0, 0, 1, 2)
	require.Equal(t, []store.LockName{name}, first.Names)
	answer(0, first)
	require.Empty(t, request(0, 0, 1, 2).Names, "they are sent once")
}

// TestPushed: a queue that is pushed to is tried although no look has found it.
func TestPushed(t *testing.T) {
	t.Parallel()
	p := stopped(t, 1, 1)
	var err error
	p.cfg.Queues, _, err = selector.Parse([]string{"*"}, 1)
	require.NoError(t, err)
	p.idlers.idle = []int{0}
	p.polled = false
	p.hungry = false
	p.pushed("new")
	require.Empty(t, p.sent(), "before the first look")
	p.saw([]string{"a", "z"})
	require.Empty(t, p.sent())
	p.pushed("new")
	p.send()
	var names []string
	for _, q := range (<-p.lanes[0].requests).Queues {
		names = append(names, q.Name)
	}
	require.Equal(t, []string{"a", "new", "z"}, names)
}

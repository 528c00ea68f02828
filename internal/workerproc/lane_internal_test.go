package workerproc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
)

// stopped is a process whose loop does not run: the test is the loop.
func stopped(t *testing.T, threads, lanes int) *Process {
	t.Helper()
	p, err := New(Config{Threads: threads}, Deps{})
	require.NoError(t, err)
	p.life.state, p.polled, p.queues = signals.Running, true, []store.Queue{{Name: "q"}}
	for i := range threads {
		p.threads = append(p.threads, &slot{brief: fmt.Sprint(i)})
	}
	for i := range lanes {
		p.lanes = append(p.lanes, &lane{number: i, requests: make(chan store.ExchangeRequest, 1)})
	}
	return p
}

// ends has threads end their job.
func (p *Process) ends(threads ...int) {
	for _, i := range threads {
		p.idle = append(p.idle, i)
		p.ended = append(p.ended, store.Completion{Job: &store.Reserved{Token: fmt.Sprint(i)}})
	}
}

// sent are how many jobs the calls tell of that leave now, and how many they ask for.
func (p *Process) sent() (calls [][2]int) {
	p.exchange()
	for _, l := range p.lanes {
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
		p.brief = true
		p.ends(0, 1, 2, 3, 4, 5, 6, 7, 8)
		require.Equal(t, [][2]int{{5, 5}, {4, 4}}, p.sent())
	})
	t.Run("the rest waits for the other lane", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 10, 2)
		p.brief = true
		p.ends(0, 1, 2)
		require.Equal(t, [][2]int{{3, 3}}, p.sent())
		p.ends(3, 4, 5, 6, 7, 8, 9)
		require.Equal(t, [][2]int{{5, 5}}, p.sent())
		require.Len(t, p.ended, 2)
		p.answered(p.lanes[0])
		p.idle = p.idle[:2] // the others have got a job
		p.ends(0, 1, 2)
		require.Equal(t, [][2]int{{5, 5}}, p.sent())
	})
	t.Run("threads that have no job ask at once", func(t *testing.T) {
		t.Parallel()
		p := stopped(t, 10, 2)
		p.brief = true
		p.idle = append(p.idle, 8, 9)
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
			p.brief = brief
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
		p.brief = true
		p.ends(0, 1, 2)
		require.Equal(t, [][2]int{{3, 3}}, p.sent())
	})
}

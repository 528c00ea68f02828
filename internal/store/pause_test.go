package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// manyQueues is a process that works more queues than are looked at in one go.
func manyQueues(t *testing.T, server *redistest.Server, n int) (s *store.Store, take func(wants int) []string) {
	t.Helper()
	s, err := store.Open(store.Options{URL: server.URL(), Namespace: redistest.Namespace(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Register(t.Context(), store.Registration{Proc: "p", Workers: []string{"p:1:q"}}))
	req := store.ExchangeRequest{Proc: "p"}
	for i := range n {
		req.Queues = append(req.Queues, store.Queue{Name: fmt.Sprint("q", i), Locked: i%2 == 0})
	}
	token := 0
	return s, func(wants int) (queues []string) {
		req.Wants = nil
		for range wants {
			token++
			req.Wants = append(req.Wants, store.Want{Token: strconv.Itoa(token), Worker: "p:1:q"})
		}
		reply, err := s.Exchange(t.Context(), req)
		require.NoError(t, err)
		for _, job := range reply.Jobs {
			queues = append(queues, job.Queue)
		}
		return queues
	}
}

func TestPauseOfQueuesFarBehind(t *testing.T) {
	t.Parallel()
	const n = 200
	for _, paused := range []int{0, 7, 8, 9, 71, 72, 73, 135, 136, 137, n - 1} {
		s, take := manyQueues(t, redistest.Shared(t), n)
		push := func(i int) {
			_, err := s.Push(t.Context(), fmt.Sprint("q", i), fmt.Appendf(nil, `{"class":"A","args":[%d]}`, i))
			require.NoError(t, err)
		}
		name := fmt.Sprint("q", paused)
		changed, err := s.Pause(t.Context(), name, store.PauseOptions{})
		require.NoError(t, err)
		require.True(t, changed)
		push(paused)
		if paused > 0 {
			push(paused - 1)
		}
		if paused < n-1 {
			push(paused + 1)
		}
		got := take(4)
		require.NotContains(t, got, name)
		require.Len(t, got, min(2, max(paused, 1), max(n-1-paused, 1)), "queue %d is paused", paused)
		changed, err = s.Resume(t.Context(), name)
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, []string{name}, take(4))
	}
}

// A pause says by whom, until when and why it is, can be replaced, and ends by itself.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	s, take := manyQueues(t, redistest.Shared(t), 1)
	_, err := s.Push(t.Context(), "q0", []byte(`{"class":"A","args":[]}`))
	require.NoError(t, err)
	pause := func(changed bool, o store.PauseOptions) *store.Pause {
		t.Helper()
		got, err := s.Pause(t.Context(), "q0", o)
		require.NoError(t, err)
		require.Equal(t, changed, got)
		queues, err := s.QueueList(t.Context())
		require.NoError(t, err)
		require.Len(t, queues[0].Pauses, 1)
		return queues[0].Pauses[0]
	}
	p := pause(true, store.PauseOptions{By: "amy@web-1"})
	require.Equal(t, "amy@web-1", p.By)
	require.WithinDuration(t, time.Now(), p.At, time.Hour)
	require.True(t, p.Until.IsZero())
	require.Equal(t, "amy@web-1", pause(false, store.PauseOptions{By: "bob@web-2"}).By, "it is paused already")
	p = pause(true, store.PauseOptions{By: "bob@web-2", Reason: "migration 4711", For: 2 * time.Hour})
	require.Equal(t, []string{"bob@web-2", "migration 4711"}, []string{p.By, p.Reason})
	require.WithinDuration(t, time.Now().Add(2*time.Hour), p.Until, time.Hour)
	require.Empty(t, take(1))
	_, err = s.Pause(t.Context(), "q0", store.PauseOptions{For: time.Millisecond})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(take(1)) == 1 }, time.Minute, 10*time.Millisecond)
}

func TestPauseAll(t *testing.T) {
	t.Parallel()
	redistest.Both(t, testPauseAll)
}

func testPauseAll(t *testing.T, server *redistest.Server) {
	s, take := manyQueues(t, server, 2)
	for _, queue := range []string{"q0", "q1"} {
		_, err := s.Push(t.Context(), queue, []byte(`{"class":"A","args":[]}`))
		require.NoError(t, err)
	}
	state := func(wantOne map[string]bool, wantAll bool) {
		t.Helper()
		one, all, err := s.Paused(t.Context(), "q0", "q1")
		require.NoError(t, err)
		require.Equal(t, wantOne, one)
		require.Equal(t, wantAll, all)
	}
	state(map[string]bool{}, false)
	for _, want := range []bool{true, false} {
		changed, err := s.PauseAll(t.Context(), store.PauseOptions{})
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	_, err := s.Pause(t.Context(), "q1", store.PauseOptions{})
	require.NoError(t, err)
	state(map[string]bool{"q1": true}, true)
	require.Empty(t, take(2))
	for _, want := range []bool{true, false} {
		changed, err := s.ResumeAll(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	state(map[string]bool{"q1": true}, false)
	require.Equal(t, []string{"q0"}, take(2))
}

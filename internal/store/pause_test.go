package store_test

import (
	"fmt"
	"strconv"
	"strings"
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
		before, _, err := s.Pause(t.Context(), name, store.PauseOptions{})
		require.NoError(t, err)
		require.Nil(t, before)
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
		changed, err := s.Resume(t.Context(), name)
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, []string{name}, take(4))
	}
}

// A pause says by whom, until when and why it is, and ends by itself, but never sooner than anybody who has paused
// the queue relies on.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	s, take := manyQueues(t, redistest.Shared(t), 1)
	_, err := s.Push(t.Context(), "q0", []byte(`{"class":"A","args":[]}`))
	require.NoError(t, err)
	pause := func(changed bool, o store.PauseOptions) *store.Pause {
		t.Helper()
		before, now, err := s.Pause(t.Context(), "q0", o)
		require.NoError(t, err)
		require.Equal(t, changed, before != now)
		queues, err := s.QueueList(t.Context())
		require.NoError(t, err)
		require.Len(t, queues[0].Pauses, 1)
		is := queues[0].Pauses[0]
		require.Equal(t, []string{now.By, now.Reason}, []string{is.By, is.Reason})
		require.WithinDuration(t, now.Until, is.Until, time.Hour)
		return is
	}
	in := func(d time.Duration, p *store.Pause) {
		t.Helper()
		require.WithinDuration(t, time.Now().Add(d), p.Until, 5*time.Minute)
	}
	p := pause(true, store.PauseOptions{By: "amy@web-1", Reason: "index", For: time.Hour})
	in(time.Hour, p)
	require.WithinDuration(t, time.Now(), p.At, 5*time.Minute)
	p = pause(true, store.PauseOptions{By: "bob@web-2", For: time.Minute})
	in(time.Hour, p)
	require.Equal(t, "index", p.Reason, "a reason stays")
	in(3*time.Hour, pause(true, store.PauseOptions{By: "bob@web-2", For: 3 * time.Hour}))
	p = pause(true, store.PauseOptions{By: "amy@web-1"})
	require.True(t, p.Until.IsZero())
	require.Equal(t, "amy@web-1", pause(false, store.PauseOptions{By: "bob@web-2", For: time.Minute}).By, "nothing ends later")
	p = pause(true, store.PauseOptions{By: "bob@web-2", Reason: "migration", For: time.Minute})
	require.Equal(t, "migration", p.Reason)
	require.True(t, p.Until.IsZero())
	require.Empty(t, take(1))

	_, err = s.Resume(t.Context(), "q0")
	require.NoError(t, err)
	_, _, err = s.Pause(t.Context(), "q0", store.PauseOptions{For: time.Millisecond})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(take(1)) == 1 }, time.Minute, 10*time.Millisecond)
}

// Other programs may write anything into the key of a pause.
func TestPausesOfOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s, _ := manyQueues(t, server, 1)
	_, err := s.Push(t.Context(), "q0", []byte(`{"class":"A","args":[]}`))
	require.NoError(t, err)
	key := s.Redis().Prefix + "pause:queue:q0"
	for _, value := range []string{"true", "", "7", `{"at":9223372036854775807}`, `{"by":7}`, strings.Repeat("x", 1<<20)} {
		require.NoError(t, server.Client(t).Set(t.Context(), key, value, 0).Err())
		queues, err := s.QueueList(t.Context())
		require.NoError(t, err)
		require.Equal(t, []*store.Pause{{Key: "pause:queue:q0"}}, queues[0].Pauses)
	}
	require.NoError(t, server.Client(t).Del(t.Context(), key).Err())
	require.NoError(t, server.Client(t).RPush(t.Context(), key, "a").Err())
	before, now, err := s.Pause(t.Context(), "q0", store.PauseOptions{By: "amy", Reason: "index"})
	require.NoError(t, err)
	require.Same(t, before, now, "a list is left alone")
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
		before, _, err := s.PauseAll(t.Context(), store.PauseOptions{})
		require.NoError(t, err)
		require.Equal(t, want, before == nil)
	}
	_, _, err := s.Pause(t.Context(), "q1", store.PauseOptions{})
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

package retry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func book(t *testing.T, s Store, classes ...resqued.Class) *Book {
	h := resqued.New()
	for _, c := range classes {
		c.Handler = func(context.Context, *resqued.Job) error { return nil }
		h.Register(c)
	}
	b, err := NewBook(BookConfig{Store: s, Classes: h.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return h.Lookup(name) }})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestBegin(t *testing.T) {
	t.Parallel()
	var asked []string
	b := book(t, stub(func(keys []string) ([]int, error) {
		asked = append(asked, keys...)
		return []int{1}, nil
	}), resqued.Class{Name: "A", Retry: &resqued.Retry{Attempts: 7}}, resqued.Class{Name: "B"})

	job := &resqued.Job{Class: "A", Deaths: 2, Attempt: 3}
	try, err := b.Begin(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, []string{"resque-retry:A"}, asked)
	require.Equal(t, "resque-retry:A", try.Key)
	require.True(t, try.Counted)
	require.Equal(t, 5, try.Attempt)
	require.Equal(t, [2]int{5, 7}, [2]int{job.Attempt, job.MaxAttempts})
	_, again := try.Failed(Failure{})
	require.True(t, again)

	for _, class := range []string{"B", "unknown"} {
		job := &resqued.Job{Class: class, Attempt: 3}
		try, err := b.Begin(t.Context(), job)
		require.NoError(t, err)
		require.Nil(t, try)
		require.Equal(t, [2]int{3, 0}, [2]int{job.Attempt, job.MaxAttempts})
	}
	require.Len(t, asked, 1, "a class without a policy costs nothing")
	_, err = b.Begin(t.Context(), &resqued.Job{Class: "A", Args: resqued.Args{[]byte("{")}})
	require.Error(t, err)

	bad := resqued.New()
	bad.Register(resqued.Class{Name: "A", Handler: func(context.Context, *resqued.Job) error { return nil }})
	class, _ := bad.Lookup("A")
	class.Retry = &resqued.Retry{NeverOn: resqued.Errors{Messages: []string{"("}}}
	_, err = NewBook(BookConfig{Classes: bad.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return bad.Lookup(name) }})
	require.ErrorContains(t, err, `class "A"`)
}

// All calls during a read are answered by the next read.
func TestCountsAreReadTogether(t *testing.T) {
	t.Parallel()
	first, release := make(chan struct{}, 1), make(chan struct{})
	reads := make(chan int, 9)
	b := book(t, stub(func(keys []string) ([]int, error) {
		reads <- len(keys)
		first <- struct{}{}
		<-release
		counts := make([]int, len(keys))
		for i, key := range keys {
			counts[i] = int(key[0])
		}
		return counts, nil
	}))
	answers := make(chan bool, 6)
	ask := func(key string) {
		n, err := b.counts.count(t.Context(), key)
		answers <- err == nil && n == int(key[0])
	}
	go ask("a")
	<-first
	for _, key := range []string{"b", "c", "d", "e"} {
		go ask(key)
	}
	require.Eventually(t, func() bool {
		b.counts.mu.Lock()
		defer b.counts.mu.Unlock()
		return len(b.counts.asked) == 4
	}, 30*time.Second, time.Millisecond)
	close(release)
	for range 5 {
		require.True(t, <-answers)
	}
	require.Equal(t, []int{1, 4}, []int{<-reads, <-reads})
}

// A job waits for Redis; one that is told to stop does not.
func TestCountsWithoutRedis(t *testing.T) {
	t.Parallel()
	tries := make(chan struct{}, 100)
	up := make(chan struct{})
	b := book(t, stub(func(keys []string) ([]int, error) {
		tries <- struct{}{}
		select {
		case <-up:
			return make([]int, len(keys)), nil
		default:
			return nil, errors.New("no answer")
		}
	}))
	ctx, kill := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := b.counts.count(ctx, "a")
		ended <- err
	}()
	<-tries
	<-tries
	kill(resqued.ErrKilled)
	require.ErrorIs(t, <-ended, resqued.ErrKilled)
	close(up)
	n, err := b.counts.count(t.Context(), "b")
	require.NoError(t, err)
	require.Zero(t, n)
}

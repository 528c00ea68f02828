package pruner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }

// fake has some empty queues and answers walks.
type fake struct {
	mu     sync.Mutex
	steps  []store.Sweep // of each walk; nil = it is another's turn
	fail   error
	empty  []string
	users  store.QueueUsers
	asked  []time.Duration // when walks began
	since  []time.Duration // how long ago queues had to be empty
	kept   []string
	pruned []string
	began  time.Time
	once   bool // end with the first walk that removes names
}

func (f *fake) SweepQueues(_ context.Context, _ string, _ time.Duration, at string) (store.Sweep, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at == "" {
		f.asked = append(f.asked, time.Since(f.began))
	}
	if f.fail != nil {
		return store.Sweep{}, f.fail
	}
	for i, s := range f.steps {
		if at == "" {
			return s, nil
		}
		if s.At == at {
			return f.steps[i+1], nil
		}
	}
	return store.Sweep{Now: time.Now()}, nil
}

func (f *fake) IdleQueues(_ context.Context, since time.Time, _ int) ([]string, error) {
	f.since = append(f.since, time.Since(since))
	return slices.Clone(f.empty), nil
}

func (f *fake) QueueUsers(context.Context) (store.QueueUsers, error) { return f.users, nil }

func (f *fake) KeepQueues(_ context.Context, _ time.Time, names []string) error {
	f.kept = append(f.kept, names...)
	return nil
}

func (f *fake) PruneIdle(_ context.Context, queue string, _ time.Duration) (bool, error) {
	if queue == "again" { // it holds jobs by now
		return false, nil
	}
	f.pruned = append(f.pruned, queue)
	f.empty = slices.DeleteFunc(f.empty, func(q string) bool { return q == queue })
	return true, nil
}

// play runs a pruner for a while, in fake time.
func play(t *testing.T, f *fake, idle, d time.Duration, beside func(p *Pruner)) (logged []observer.LoggedEntry, told [][]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		f.began = time.Now()
		for i := range f.steps {
			f.steps[i].Now = f.began
		}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		p := New(idle, f, func(names []string) {
			if told = append(told, names); f.once {
				cancel()
			}
		}, zap.New(core))
		if beside != nil {
			go beside(p)
		}
		p.Run(ctx)
		logged = logs.All()
	})
	return logged, told
}

var walk = []store.Sweep{{At: "q1"}, {At: "p0", Back: 2}, {}}

func TestPruner(t *testing.T) {
	t.Parallel()
	t.Run("names that nothing names", func(t *testing.T) {
		t.Parallel()
		f := &fake{
			steps: walk[:], empty: []string{"old", "again", "named", "capped", "work", "percent", "tick", "stored", "older"},
			users: store.QueueUsers{
				Masters: []string{"named, capped:3,img_*", ""}, Workers: []string{"host:1:work,percent~25%", "nonsense"},
				Schedules: []string{`{"queue":"tick"}`, `{"queue":["odd"]}`, `{"cron":"* * * * *","queue":"stored"}`, `no`},
			},
		}
		f.steps, f.once = slices.Clone(walk), true
		logged, told := play(t, f, time.Hour, time.Hour, nil)
		require.Equal(t, []string{"old", "older"}, f.pruned)
		require.ElementsMatch(t, []string{"named", "capped", "work", "percent", "tick", "stored"}, f.kept)
		require.Equal(t, [][]string{{"old", "older"}}, told)
		require.GreaterOrEqual(t, f.since[0], time.Hour)
		require.Len(t, logged, 2)
		require.EqualValues(t, 2, logged[0].ContextMap()["queues"], "what came back")
		require.EqualValues(t, 2, logged[1].ContextMap()["queues"])
	})
	t.Run("each minute, one of all", func(t *testing.T) {
		t.Parallel()
		f := &fake{empty: []string{"old"}}
		play(t, f, 168*time.Hour, 10*time.Minute, nil)
		require.GreaterOrEqual(t, len(f.asked), 10)
		require.LessOrEqual(t, len(f.asked), 20)
		require.Empty(t, f.pruned, "it was another's turn each time")
		require.Empty(t, f.since)
	})
	t.Run("never, and again after a reload", func(t *testing.T) {
		t.Parallel()
		f := &fake{steps: slices.Clone(walk), empty: []string{"old"}}
		play(t, f, 0, 2*time.Hour, func(p *Pruner) {
			time.Sleep(time.Hour) //nolint:forbidigo // of a bubble
			p.Use(2 * time.Second)
			time.Sleep(time.Minute) //nolint:forbidigo // of a bubble
			p.Use(0)
		})
		require.Equal(t, []string{"old"}, f.pruned)
		require.Greater(t, f.asked[0], time.Hour)
		require.Less(t, f.asked[len(f.asked)-1], time.Hour+time.Minute+2*time.Second)
	})
	t.Run("an error is told once", func(t *testing.T) {
		t.Parallel()
		f := &fake{fail: errors.New("away")}
		logged, _ := play(t, f, time.Hour, 10*time.Minute, nil)
		require.Len(t, logged, 1)
		require.Greater(t, len(f.asked), 5)
	})
}

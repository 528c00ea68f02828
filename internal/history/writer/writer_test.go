package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/history/writer"
	"github.com/resqued/resqued/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Redis that counts.
type fake struct {
	began    time.Time
	masters  int64
	names    []store.NamedSeries
	added    map[history.Name]uint64
	flushes  []time.Duration
	forgot   []history.Name
	levels   []time.Duration
	looks    []time.Duration // how long jobs wait
	down     error
	downFrom time.Duration
	downFor  time.Duration
	refused  bool // while it is down, nothing is written
	slow     bool
}

func (f *fake) err() error {
	if since := time.Since(f.began); f.down != nil && since >= f.downFrom && since < f.downFrom+f.downFor {
		return f.down
	}
	return nil
}

func (f *fake) HistoryNames(context.Context) ([]store.NamedSeries, error) { return f.names, f.err() }

func (f *fake) AddHistory(ctx context.Context, series []history.Series) ([]history.Series, error) {
	if f.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := f.err(); err != nil {
		if f.refused {
			return series, err
		}
		return nil, err
	}
	f.flushes = append(f.flushes, time.Since(f.began))
	for _, s := range series {
		for name, sum := range s.Sums {
			if f.added[name] == 0 {
				f.names = append(f.names, store.NamedSeries{Name: name, Last: time.Unix(60*s.Minute, 0)})
			}
			f.added[name] += sum.Runs
		}
	}
	return nil, nil
}

func (f *fake) ForgetHistory(_ context.Context, names []history.Name) error {
	f.forgot = append(f.forgot, names...)
	f.names = slices.DeleteFunc(f.names, func(n store.NamedSeries) bool { return slices.Contains(names, n.Name) })
	return nil
}

func (f *fake) NoteLevels(context.Context, time.Time) (bool, error) {
	f.levels = append(f.levels, time.Since(f.began))
	return true, nil
}

func (f *fake) LookAtAges(context.Context) (bool, error) {
	f.looks = append(f.looks, time.Since(f.began))
	return true, f.err()
}

func (f *fake) MasterCount(context.Context) (int64, error) { return f.masters, nil }

// play runs a writer for a while, in a time of its own; work has jobs end meanwhile.
func play(t *testing.T, f *fake, d time.Duration, work func(*history.Collector)) (logged []observer.LoggedEntry, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		f.began, f.added = time.Now(), map[history.Name]uint64{}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		host := history.NewCollector("vm")
		go work(host)
		writer.New(host, f, zap.New(core)).Run(ctx)
		logged, took = logs.All(), time.Since(f.began)
	})
	return logged, took
}

// each has a job end each second.
func each(classes int, seconds int) func(*history.Collector) {
	return func(host *history.Collector) {
		for i := range seconds {
			<-time.After(time.Second)
			host.Count(time.Now(), fmt.Sprintf("Class%d", i%classes), "out", history.Processed)
		}
	}
}

func all() history.Name { return history.AllJobs() }

func TestWriter(t *testing.T) {
	t.Parallel()

	t.Run("it writes every ten seconds, and what is left at the end", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		logged, _ := play(t, f, 65*time.Second, each(3, 64))
		require.Empty(t, logged)
		require.EqualValues(t, 64, f.added[all()])
		require.InDelta(t, 7, len(f.flushes), 1)
		require.Equal(t, 65*time.Second, f.flushes[len(f.flushes)-1])
		require.InDelta(t, 1, len(f.levels), 1)
		require.InDelta(t, 65, len(f.looks), 8, "how long jobs wait, each second")
	})

	t.Run("of nothing it writes nothing", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		play(t, f, time.Hour, each(1, 0))
		require.Empty(t, f.flushes)
		require.InDelta(t, 60, len(f.levels), 1)
	})

	t.Run("many masters write seldomer", func(t *testing.T) {
		t.Parallel()
		f := &fake{masters: 600}
		play(t, f, 10*time.Minute, each(3, 599))
		require.InDelta(t, 105, len(f.looks), 10, "and ask seldomer whose turn it is to look")
		require.EqualValues(t, 599, f.added[all()])
		require.InDelta(t, 11, len(f.flushes), 2)
	})

	t.Run("what stands nowhere is written later, what may stand there is not", func(t *testing.T) {
		t.Parallel()
		for _, refused := range []bool{true, false} {
			f := &fake{down: errors.New("away"), downFrom: 30 * time.Second, downFor: 50 * time.Second, refused: refused}
			logged, _ := play(t, f, 2*time.Minute, func(host *history.Collector) {
				each(1, 60)(host)
				<-time.After(20 * time.Second)
				host.Count(time.Now(), "Class0", "out", history.Processed)
			})
			require.Len(t, logged, 1, "the same error is told once")
			if refused {
				require.EqualValues(t, 61, f.added[all()])
			} else {
				require.InDelta(t, 30, f.added[all()], 11)
			}
		}
	})

	t.Run("a redis that hangs does not keep the daemon", func(t *testing.T) {
		t.Parallel()
		_, took := play(t, &fake{slow: true}, 5*time.Second, each(1, 3))
		require.Equal(t, 7*time.Second, took)
	})

	t.Run("there is room for so many names, and old ones make room", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		for i := range history.MaxNames - 10 {
			age := time.Hour
			if i < 20 {
				age = history.NameTTL + time.Hour
			}
			f.names = append(f.names, store.NamedSeries{Name: history.Name{Kind: history.Class, Name: fmt.Sprintf("Old%d", i)}, Last: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age)})
		}
		play(t, f, 200*time.Second, each(100, 199))
		require.Len(t, f.forgot, 20)
		require.EqualValues(t, 199, f.added[all()])
		classes := 0
		for name := range f.added {
			if name.Kind == history.Class && name.Name != history.Other {
				classes++
			}
		}
		require.InDelta(t, 24, classes, 2)
		require.Greater(t, f.added[history.Name{Kind: history.Class, Name: history.Other}], uint64(100))
	})
}

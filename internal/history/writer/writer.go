// Package writer writes the history of a master's jobs to Redis, outside the master's loop, and
// notes how long queues are and how long their jobs have waited.
package writer

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/store"
)

const (
	// flushEvery is how often a master writes. flushShare is added for each master, so that all
	// together write at most ten times a second.
	flushEvery = 10 * time.Second
	flushShare = 100 * time.Millisecond

	// agesShare is how many times more often a master asks for its turn to look at the ages of
	// jobs than it writes, if there are many masters.
	agesShare = 10

	// patience bounds the calls of one turn, lastPatience the calls of the last one.
	patience     = 5 * time.Second
	lastPatience = 2 * time.Second

	// maxHosts is how many names may be hosts.
	maxHosts = history.MaxNames / 4
	// levelsWithin is the part of a minute in which masters ask for their turn to note the
	// lengths of queues.
	levelsWithin = 5 * time.Second
)

// Store is the part of *store.Store that a Writer uses.
type Store interface {
	HistoryNames(ctx context.Context) ([]store.NamedSeries, error)
	AddHistory(ctx context.Context, series []history.Series) (left []history.Series, err error)
	ForgetHistory(ctx context.Context, names []history.Name) error
	NoteLevels(ctx context.Context, now time.Time) (mine bool, err error)
	LookAtAges(ctx context.Context) (mine bool, err error)
	MasterCount(ctx context.Context) (int64, error)
}

// Writer writes what a Collector has added up.
type Writer struct {
	counted *history.Collector
	store   Store
	log     *zap.Logger

	known map[history.Name]bool // the names at the last look
	every time.Duration
	said  map[string]string // the last error logged, by its message
}

// New returns a writer that has not written yet.
func New(counted *history.Collector, s Store, log *zap.Logger) *Writer {
	return &Writer{counted: counted, store: s, log: log.Named("history"), every: flushEvery, said: map[string]string{}}
}

// Run writes until ctx ends, and then once more.
func (w *Writer) Run(ctx context.Context) {
	flush, levels, ages := time.NewTimer(spread(w.every)), time.NewTimer(untilLevels(time.Now())), time.NewTimer(0)
	defer flush.Stop()
	defer levels.Stop()
	defer ages.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
			defer cancel()
			w.flush(last)
			return
		case <-flush.C:
			turn, cancel := context.WithTimeout(ctx, patience)
			w.flush(turn)
			cancel()
			flush.Reset(spread(w.every))
		case <-levels.C:
			turn, cancel := context.WithTimeout(ctx, patience)
			_, err := w.store.NoteLevels(turn, time.Now())
			cancel()
			w.complain(ctx, "the lengths of the queues could not be noted; they are missing in the history", err)
			levels.Reset(untilLevels(time.Now()))
		case <-ages.C:
			turn, cancel := context.WithTimeout(ctx, patience)
			mine, err := w.store.LookAtAges(turn)
			cancel()
			if mine && err == nil || store.HistoryBroken(err) { // without Redis, other parts log it
				w.complain(ctx, "it is not known how long jobs wait", err)
			}
			ages.Reset(spread(max(store.AgesEvery, w.every/agesShare)))
		}
	}
}

// spread keeps masters from writing at the same time.
func spread(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }

// untilLevels returns the time until a random moment at the beginning of the next minute.
func untilLevels(now time.Time) time.Duration {
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now) + rand.N(levelsWithin)
}

// flush writes the counts. Sums that were certainly not written are kept for next time.
func (w *Writer) flush(ctx context.Context) {
	series := w.counted.Take()
	if len(series) == 0 {
		return
	}
	err := w.admit(ctx, series)
	if err == nil {
		series, err = w.store.AddHistory(ctx, series)
	}
	for _, s := range series {
		w.counted.PutBack(s)
	}
	w.complain(ctx, "the history of jobs is not complete", err)
	if n, err := w.store.MasterCount(ctx); err == nil {
		w.every = max(flushEvery, time.Duration(min(n, 36_000))*flushShare)
	}
}

// admit counts names without room under Other.
func (w *Writer) admit(ctx context.Context, series []history.Series) error {
	looked := false
	for _, s := range series {
		for name := range s.Sums {
			if w.known[name] || free(name) {
				continue
			}
			if !looked {
				if err := w.look(ctx); err != nil {
					return err
				}
				looked = true
			}
			if !w.known[name] && !w.full(name.Kind) {
				w.known[name] = true
			}
		}
	}
	for _, s := range series {
		for name, sum := range s.Sums {
			if w.known[name] || free(name) {
				continue
			}
			delete(s.Sums, name)
			name.Name = history.Other
			if s.Sums[name] == nil {
				s.Sums[name] = &history.Sum{}
			}
			s.Sums[name].Merge(sum)
		}
	}
	return nil
}

// free reports whether a name needs no room.
func free(name history.Name) bool { return name.Kind == history.All || name.Name == history.Other }

// full reports whether no further name of a kind has room.
func (w *Writer) full(kind history.Kind) bool {
	n, hosts := 0, 0
	for name := range w.known {
		if !free(name) {
			n++
		}
		if name.Kind == history.Host {
			hosts++
		}
	}
	return n >= history.MaxNames-4 || kind == history.Host && hosts >= maxHosts
}

// look reads the names and removes expired ones.
func (w *Writer) look(ctx context.Context) error {
	names, err := w.store.HistoryNames(ctx)
	if err != nil {
		return err
	}
	var over []history.Name
	known := map[history.Name]bool{}
	for _, n := range names {
		if time.Since(n.Last) > history.NameTTL {
			over = append(over, n.Name)
		} else {
			known[n.Name] = true
		}
	}
	w.known = known
	return w.store.ForgetHistory(ctx, over)
}

// complain logs an error unless it equals the last one.
func (w *Writer) complain(ctx context.Context, what string, err error) {
	if err == nil {
		delete(w.said, what)
		return
	}
	if text := err.Error(); text != w.said[what] {
		w.said[what] = text
		level := zap.WarnLevel
		if ctx.Err() != nil {
			level = zap.DebugLevel // the daemon ends
		}
		w.log.Log(level, what, zap.Error(err))
	}
}

package master

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

// A worker process that has lived for longLived and was replaced is worth a line of the log.
// With few jobs for each process there may be hundreds a second: those are told of once in
// recycledEvery, with their number.
const (
	longLived     = 10 * time.Second
	recycledEvery = time.Minute
)

// recycling is what the log has not been told of yet.
type recycling struct {
	told  time.Time // when it was told of those that lived for a short time
	short int       // how many there were since, by any reason
}

// recycled counts and logs that w has left because another has its place.
func (m *Master) recycled(w *worker, lived time.Duration, fields []zap.Field) {
	why := m.recycleReason(w)
	m.ends.CountRecycled(why)
	fields = append(fields, zap.String("reason", why), zap.Duration("lived", lived.Round(time.Millisecond)))
	if why == "memory" || why == "age" { // by its jobs there may be one a second
		m.note(store.EventRecycled, w.proc, fmt.Sprintf("for its %s, after %s and %d jobs, with %d MB", why, lived.Round(time.Second), w.health.beat.Done, w.health.beat.RSS>>20), 0)
	}
	if lived >= longLived {
		m.log.Info("worker process recycled", fields...)
		return
	}
	r := &m.recycling
	r.short++
	if !r.told.IsZero() && m.now.Sub(r.told) < recycledEvery {
		m.log.Debug("worker process recycled", fields...)
		return
	}
	if r.short > 1 {
		fields = append(fields, zap.Int("as_many_since", r.short), zap.Duration("since", m.now.Sub(r.told).Round(time.Second)))
	}
	m.log.Info("worker process recycled", fields...)
	r.told, r.short = m.now, 0
}

// recycleReason says why w was replaced: quota, age, memory, reload, or what it, or its master,
// has called it otherwise.
func (m *Master) recycleReason(w *worker) string {
	switch {
	case w.leaves.surplus:
		return "fewer worker processes"
	case w.leaves.why != "":
		return w.leaves.why
	case m.outdated(w):
		return "reload"
	case w.leaves.wanted != "":
		return w.leaves.wanted
	}
	return "replaced"
}

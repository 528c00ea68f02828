package master

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

// The replacement of a worker process that has lived for longLived is worth a log line. With few
// jobs per process there may be hundreds a second: those are logged once per recycledEvery, with
// their number.
const (
	longLived     = 10 * time.Second
	recycledEvery = time.Minute
)

type recycling struct {
	told  time.Time // when the short-lived were last logged
	short int       // how many of them since
}

func (m *Master) recycled(w *worker, lived time.Duration, fields []zap.Field) {
	why := m.recycleReason(w)
	m.ends.CountRecycled(why)
	fields = append(fields, zap.String("reason", why), zap.Duration("lived", lived.Round(time.Millisecond)))
	if why == "memory" || why == "age" { // jobs may use up one process a second
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

// recycleReason says why w was replaced: quota, age, memory, reload, or another reason given by
// w or its master.
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

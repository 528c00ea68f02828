package master

import (
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/proc"
)

// A process above max_rss is replaced by one as large as this one was when ready. If that is
// hardly less than the limit, replacing it is useless: then it continues, and its replacement is
// delayed longer each time. Replacing a process that has grown is worthwhile, but not more often
// than every two seconds.
const (
	grownAfter = 2 * time.Second
	// worthwhile is the fraction of the limit (1/worthwhile) by which a process must have grown.
	worthwhile = 4
	// The first and the longest age that a process reaches if it has not grown.
	swollenAfter, swollenLongest = 10 * time.Second, 10 * time.Minute
	// swollenAgain is how often the log says that the limit is too low.
	swollenAgain = time.Minute
)

func (m *Master) tooLarge(w *worker, asks proc.Message) {
	w.health.maxRSS = asks.MaxRSS
	fields := []zap.Field{
		zap.String("proc", w.proc), zap.Int64("rss", asks.RSS), zap.Int64("max_rss", asks.MaxRSS), zap.Int64("rss_when_ready", w.health.readyRSS),
		zap.Int("jobs_done", w.health.beat.Done),
	}
	now := time.Now()
	s := w.slot
	if w.grown(asks.RSS) {
		s.swollen, w.leaves.wantedFrom = 0, w.readyAt.Add(grownAfter)
		m.log.Info("replacing a worker process early: its memory is above max_rss", fields...)
		return
	}
	if now.Sub(w.readyAt) > swollenLongest {
		s.swollen = 0
	}
	w.leaves.wantedFrom = w.readyAt.Add(min(swollenAfter<<min(s.swollen, 16), swollenLongest))
	s.swollen++
	if now.Sub(m.swollenAt) < swollenAgain {
		return
	}
	m.swollenAt = now
	m.log.Warn("max_rss is hardly more than a worker process takes before it has done anything, or less: replacing it gives nothing back and is put off; "+
		"raise max_rss well above rss_when_ready, or let the program take less memory at its start",
		append(fields, zap.Duration("replaced_in", max(0, w.leaves.wantedFrom.Sub(now))))...)
}

// grown reports whether replacing w would free much memory.
func (w *worker) grown(rss int64) bool {
	return w.health.readyRSS == 0 || rss-w.health.readyRSS >= w.health.maxRSS/worthwhile
}

// reweigh lets a process be replaced at once if it has grown during the delay.
func (m *Master) reweigh(w *worker, rss int64) {
	if w.leaves.wanted == "memory" && rss > 0 && w.grown(rss) {
		w.leaves.wantedFrom = w.readyAt.Add(grownAfter)
	}
}

func (m *Master) wantsNow(w *worker) bool {
	return w.leaves.wanted != "" && (w.leaves.wantedFrom.IsZero() || m.due(w.leaves.wantedFrom))
}

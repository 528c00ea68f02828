package master

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// sweepPatience bounds one try of a sweep; then an error is logged.
const sweepPatience = 5 * time.Second

// A worker process's descendants are killed twice, outside the loop and the recoverer, which may
// be waiting for Redis. First when it was sent SIGKILL: without time or memory to spare, a
// machine may need longer than its locks last to end it. Again when it was reaped, because only
// then no descendant can be moving in the process tree. Only after that may others have its
// jobs.

// sweepKilled kills the descendants of w, which was killed, until w is reaped.
func (m *Master) sweepKilled(w *worker) {
	ctx, over := context.WithCancel(m.work)
	w.kill.endSweep = over
	m.children.Go(func() {
		defer over()
		m.sweep(ctx, w)
	})
}

// queue kills the remaining descendants of w, which was reaped, and passes w to the recoverer.
func (m *Master) queue(w *worker, g deadProcess) {
	m.children.Go(func() {
		if !m.sweep(m.work, w) {
			return
		}
		select {
		case m.recoverer.dead <- g:
		case <-m.work.Done():
		}
	})
}

// sweep tries until no descendant of w is left, or ctx ends. It uses nothing of w but its child
// and name.
func (m *Master) sweep(ctx context.Context, w *worker) (clean bool) {
	for delay := firstRetry; ; delay = min(2*delay, longestRetry) {
		try, cancel := context.WithTimeout(ctx, sweepPatience)
		killed, err := w.child.Sweep(try)
		cancel()
		if killed > 0 {
			m.log.Warn("killed processes that a worker process had started and not ended", zap.String("proc", w.proc), zap.Int("processes", killed))
		}
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		m.log.Error("processes of a worker process do not end; its jobs stay open, and their locks", zap.String("proc", w.proc), zap.Error(err))
		again := time.NewTimer(delay/2 + rand.N(delay/2))
		select {
		case <-ctx.Done():
			again.Stop()
			return false
		case <-again.C:
		}
	}
}

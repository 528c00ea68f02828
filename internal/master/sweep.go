package master

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// sweepPatience is how long one sweep may take before it is said that it does.
const sweepPatience = 5 * time.Second

// What a worker process has started is ended twice, each time beside the loop and beside
// the recoverer, who may be waiting for Redis: as soon as the process was sent SIGKILL,
// because on a machine that has no time or no memory to spare it can be as good as dead
// for longer than its locks last; and when it was reaped, because only then nothing that
// it has started can be on its way to another place in the tree of processes. Only after
// that its jobs are anybody's.

// sweepKilled ends what w, which was killed, has started. It ends when w is reaped.
func (m *Master) sweepKilled(w *worker) {
	ctx, over := context.WithCancel(m.work)
	w.kill.endSweep = over
	m.children.Go(func() {
		defer over()
		m.sweep(ctx, w)
	})
}

// queue ends what w, which was reaped, has left, and hands it to the recoverer.
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

// sweep tries until nothing is left that w has started, or ctx ends. It touches nothing
// of w but its child.
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

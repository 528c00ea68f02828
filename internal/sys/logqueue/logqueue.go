// Package logqueue keeps a log that blocks from blocking the program. Standard error can
// be a pipe whose reader has stalled (the journal, a logging driver, a terminal after ^S);
// a write to it then waits for as long as the reader does.
package logqueue

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// DefaultLimit is how many bytes wait for a reader before lines are dropped.
	DefaultLimit = 4 << 20
	// syncPatience bounds Sync. Whoever calls it is about to end, and must not be kept from
	// that by the reader of its log.
	syncPatience = 250 * time.Millisecond
)

// ErrStalled is returned by Sync if lines still wait for the reader of the log.
var ErrStalled = errors.New("the log is not being read")

// Writer is a zapcore.WriteSyncer whose Write never waits. A goroutine writes what was
// given to it, a line at a time and in order; it ends when nothing is left. Lines that do
// not fit are dropped and counted.
type Writer struct {
	out   io.Writer
	limit int
	// dropped is called by that goroutine, without a lock, when the reader reads again.
	dropped func(lines int)

	mu      sync.Mutex
	lines   [][]byte
	size    int
	lost    int
	written chan struct{} // closed when nothing waits any more; nil if nothing does
}

// New returns a Writer to out which holds limit bytes at most; 0 = DefaultLimit. After
// lines were dropped and out takes others again, it calls dropped with their number.
func New(out io.Writer, limit int, dropped func(lines int)) *Writer {
	if limit == 0 {
		limit = DefaultLimit
	}
	return &Writer{out: out, limit: limit, dropped: dropped}
}

// Write queues a copy of line. It never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A line that is larger than the limit passes where nothing else waits.
	if w.size > 0 && w.size+len(line) > w.limit {
		w.lost++
		return len(line), nil
	}
	w.lines = append(w.lines, append([]byte(nil), line...))
	w.size += len(line)
	if w.written == nil {
		w.written = make(chan struct{})
		go w.write()
	}
	return len(line), nil
}

// Sync waits a moment until all lines are written, those in front of a stalled reader
// excepted.
func (w *Writer) Sync() error {
	w.mu.Lock()
	written := w.written
	w.mu.Unlock()
	if written == nil {
		return nil
	}
	patience := time.NewTimer(syncPatience)
	defer patience.Stop()
	select {
	case <-written:
		return nil
	case <-patience.C:
		return ErrStalled
	}
}

// write writes until nothing is left.
func (w *Writer) write() {
	for {
		w.mu.Lock()
		if len(w.lines) == 0 && w.lost == 0 {
			close(w.written)
			w.written = nil
			w.mu.Unlock()
			return
		}
		lines, lost := w.lines, 0
		w.lines = nil
		if len(lines) == 0 {
			lost, w.lost = w.lost, 0
		}
		w.mu.Unlock()
		if lost > 0 {
			w.dropped(lost)
			continue
		}
		for _, line := range lines {
			// There is nowhere to report an error to.
			_, _ = w.out.Write(line)
			w.mu.Lock()
			w.size -= len(line)
			w.mu.Unlock()
		}
	}
}

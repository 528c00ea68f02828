// Package logqueue prevents a blocked log from blocking the program. Standard error can be a
// pipe with a stalled reader (the journal, a logging driver, a terminal after ^S), and a write
// to it waits as long as the reader does.
package logqueue

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// DefaultLimit is how many bytes are queued before lines are dropped.
	DefaultLimit = 4 << 20
	// syncPatience bounds Sync. Its callers are about to end, and a stalled reader must not
	// prevent that.
	syncPatience = 250 * time.Millisecond
)

// ErrStalled is returned by Sync if lines are still queued.
var ErrStalled = errors.New("the log is not being read")

// Writer is a zapcore.WriteSyncer whose Write never waits. A goroutine writes the lines in order
// and ends when none is left. Lines that do not fit are dropped and counted.
type Writer struct {
	out   io.Writer
	limit int
	// dropped is called by that goroutine, without the lock, once out accepts lines again.
	dropped func(lines int)

	mu      sync.Mutex
	lines   [][]byte
	size    int
	lost    int
	written chan struct{} // closed when the queue is empty; nil while it is
}

// New returns a Writer to out that queues at most limit bytes; 0 = DefaultLimit. After lines
// were dropped, and once out accepts others, it calls dropped with their number.
func New(out io.Writer, limit int, dropped func(lines int)) *Writer {
	if limit == 0 {
		limit = DefaultLimit
	}
	return &Writer{out: out, limit: limit, dropped: dropped}
}

func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A line larger than the limit is accepted into an empty queue.
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

// Sync waits until all lines are written, at most syncPatience.
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
			// An error could be reported nowhere.
			_, _ = w.out.Write(line)
			w.mu.Lock()
			w.size -= len(line)
			w.mu.Unlock()
		}
	}
}

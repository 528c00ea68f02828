package runner

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/program"
)

// lastWords keeps what a process has written to stderr since its last job ended: output of an
// earlier job does not explain a later death.
type lastWords struct {
	mu   sync.Mutex // held while reading, so that no bytes are in transit
	raw  syscall.RawConn
	tail program.Tail
	skip int // unread bytes from earlier jobs
}

func (w *lastWords) of(r *program.Lasting) *program.Lasting {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raw, _ = r.File.SyscallConn() // fails only for a nil file
	r.Sys = w.read
	return r
}

func (w *lastWords) read(fd int, p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, err = unix.Read(fd, p); n > 0 {
		old := min(w.skip, n)
		w.skip -= old
		_, _ = w.tail.Write(p[old:n])
	}
	return n, err
}

// forget drops earlier output, including what is still in the pipe.
func (w *lastWords) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = program.Tail{}
	if w.raw != nil {
		_ = w.raw.Control(func(fd uintptr) { w.skip = unread(int(fd)) })
	}
}

func (w *lastWords) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tail.Text()
}

package runner

import (
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/program"
)

// lastWords reads stderr and keeps what a process has written there since its last job ended: what
// an earlier job has said does not explain a later death.
type lastWords struct {
	mu   sync.Mutex // held while something is read, so that no bytes are on their way
	raw  syscall.RawConn
	tail program.Tail
	skip int // bytes to come that are of earlier jobs
}

// of returns the reader of a pipe.
func (w *lastWords) of(r *os.File) io.Reader {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raw, _ = r.SyscallConn() // it fails for a nil file only
	return w
}

// Read implements io.Reader.
func (w *lastWords) Read(p []byte) (n int, err error) {
	refused := w.raw.Read(func(fd uintptr) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for n, err = unix.Read(int(fd), p); err == unix.EINTR; {
			n, err = unix.Read(int(fd), p)
		}
		if n > 0 {
			old := min(w.skip, n)
			w.skip -= old
			_, _ = w.tail.Write(p[old:n])
		}
		return err != unix.EAGAIN
	})
	switch {
	case refused != nil:
		return 0, refused
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// forget forgets what was written before, also what is still in the pipe.
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

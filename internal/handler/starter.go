package handler

import (
	"errors"
	"math"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

var errClosed = errors.New("commands are no longer started: the worker process is leaving")

// starter starts every command from one thread, which lives as long as the
// starter: the kernel kills a command with the thread that started it, not with
// the process, and Go ends threads when it likes.
//
// The goroutine is started by the first start and ended by close.
type starter struct {
	mu       sync.Mutex
	requests chan startRequest
	stopped  chan struct{}
	closed   bool
}

type startRequest struct {
	cmd   *exec.Cmd
	claim func(pid int)
	reply chan error
}

// start starts cmd and returns what cmd.Start returned. claim is called as soon as it runs.
func (s *starter) start(cmd *exec.Cmd, claim func(pid int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.requests == nil {
		s.requests, s.stopped = make(chan startRequest), make(chan struct{})
		go s.serve()
	}
	r := startRequest{cmd: cmd, claim: claim, reply: make(chan error, 1)}
	s.requests <- r
	return <-r.reply
}

func (s *starter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.requests != nil {
		close(s.requests)
		<-s.stopped
		s.requests = nil
	}
}

func (s *starter) serve() {
	defer close(s.stopped)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Orphans of commands come to this process, so that the sweep finds them. It
	// cannot fail on a kernel that Go runs on.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// Nor does a command inherit what the daemon was started with. Kernels before
	// 5.11 cannot do this.
	_ = unix.CloseRange(outputFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	for r := range s.requests {
		err := r.cmd.Start()
		if err == nil {
			r.claim(r.cmd.Process.Pid)
		}
		r.reply <- err
	}
}

package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxLatencies is how many latencies one measurement can hold.
const maxLatencies = 4096

// shared is memory that the handlers of every process of a peer write and the
// harness reads: counting a job costs one atomic addition, the same for each peer.
type shared struct {
	first  atomic.Int64 // when the first job began
	last   atomic.Int64 // when the target-th job was done
	target atomic.Int64
	ready  atomic.Int64 // 1: a child that begins by itself is prepared
	gate   atomic.Int64 // 1: it may begin; see pass
	_      [3]int64     // the counter has a cache line of its own
	done   atomic.Int64
	_      [7]int64

	latencies atomic.Int64 // how many are below
	latency   [maxLatencies]atomic.Int64
}

// openShared maps the file, which is made if it is not there.
func openShared(path string) (*shared, func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	size := int(unsafe.Sizeof(shared{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return (*shared)(unsafe.Pointer(&b[0])), func() { _ = syscall.Munmap(b) }, nil
}

// begin notes that a job begins.
func (s *shared) begin() {
	if s.first.Load() == 0 {
		s.first.CompareAndSwap(0, int64(monotonic()))
	}
}

// pass waits until the harness has noted everything of the beginning. Only those use
// it that do not wait for jobs.
func (s *shared) pass() {
	s.ready.Store(1)
	for s.gate.Load() == 0 {
		pause(time.Millisecond)
	}
	s.begin()
}

// end notes that a job is done.
func (s *shared) end() {
	if s.done.Add(1) == s.target.Load() {
		s.last.Store(int64(monotonic()))
	}
}

// late notes how long after its sending a job began.
func (s *shared) late(sent int64) {
	now := int64(monotonic())
	if i := s.latencies.Load(); i < maxLatencies {
		s.latency[i].Store(now - sent)
		s.latencies.Add(1) // one job at a time: nobody else writes here
	}
}

// monotonic is the time since boot, the same in every process.
func monotonic() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

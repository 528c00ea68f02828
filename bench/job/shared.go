package job

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxLatencies is the maximum number of latencies of one measurement.
const maxLatencies = 4096

// Shared is memory that the handlers of all processes of a peer write and the harness reads.
// Counting a job costs one atomic addition, the same for each peer.
type Shared struct {
	First  atomic.Int64 // when the first job began
	Last   atomic.Int64 // when the target-th job was done
	Target atomic.Int64
	Ready  atomic.Int64 // 1: a child that starts by itself is prepared
	Gate   atomic.Int64 // 1: that child may start; see Pass
	_      [3]int64     // the counter has a cache line of its own
	Done   atomic.Int64
	_      [7]int64

	Latencies atomic.Int64 // number of entries in Latency
	Latency   [maxLatencies]atomic.Int64
}

// Open maps the file, which is created if it does not exist.
func Open(path string) (s *Shared, unmap func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	size := int(unsafe.Sizeof(Shared{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return (*Shared)(unsafe.Pointer(&b[0])), func() { _ = syscall.Munmap(b) }, nil
}

// Begin notes that a job begins.
func (s *Shared) Begin() {
	if s.First.Load() == 0 {
		s.First.CompareAndSwap(0, int64(Monotonic()))
	}
}

// Pass waits until the harness has read the initial figures. Only workers that do not wait for
// jobs use it.
func (s *Shared) Pass() {
	s.Ready.Store(1)
	for s.Gate.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	s.Begin()
}

// End notes that a job is done.
func (s *Shared) End() {
	if s.Done.Add(1) == s.Target.Load() {
		s.Last.Store(int64(Monotonic()))
	}
}

// Late records the time from the sending of a job to its beginning.
func (s *Shared) Late(sent int64) {
	now := int64(Monotonic())
	if i := s.Latencies.Load(); i < maxLatencies {
		s.Latency[i].Store(now - sent)
		s.Latencies.Add(1) // one job at a time, so one writer
	}
}

// Monotonic returns the time since boot, which is the same in every process.
func Monotonic() time.Duration { return Clock(unix.CLOCK_MONOTONIC) }

// Clock reads one of the system's clocks. It returns 0 if there is no such clock.
func Clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

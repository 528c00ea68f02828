// Package program is what all programs that run jobs share, whether they run one job (package
// handler) or many (package runner): their environment, how their output becomes log lines, and
// the error when one cannot be started.
package program

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler/cmdslice"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// FirstFree is the first descriptor after the standard ones.
const FirstFree = 3

// AppendAttempt appends the members of a job's line about its attempts and times.
func AppendAttempt(b []byte, job *resqued.Job) []byte {
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(job.Attempt), 10)
	b = append(b, `,"max_attempts":`...)
	if job.MaxAttempts > 0 {
		b = strconv.AppendInt(b, int64(job.MaxAttempts), 10)
	} else {
		b = append(b, "null"...)
	}
	b = appendTime(append(b, `,"enqueued_at":`...), job.EnqueuedAt)
	return appendTime(append(b, `,"deadline":`...), job.Deadline)
}

// AppendSlice appends the members that only the line of a slice has, except its state.
func AppendSlice(b []byte, s *cmdslice.Slice) []byte {
	b = wire.AppendString(append(b, `,"run":`...), s.Run)
	b = strconv.AppendInt(append(b, `,"slice":`...), s.Number, 10)
	b = strconv.AppendInt(append(b, `,"fence":`...), s.Fence, 10)
	b = strconv.AppendInt(append(b, `,"units":`...), s.Units, 10)
	return wire.AppendString(append(b, `,"message":`...), s.Message)
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return wire.AppendString(b, Stamp(t))
}

// Stamp writes a time for a program: RFC 3339, UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// EndedBy says which signal has ended a program.
func EndedBy(sig syscall.Signal, coreDump bool) string {
	name := unix.SignalName(sig)
	if name == "" {
		name = fmt.Sprintf("signal %d", int(sig))
	}
	if coreDump {
		name += " (core dumped)"
	}
	return "ended by " + name
}

// SetUp prepares this process to adopt orphans of its programs, and to start programs without
// the descriptors that the daemon was started with.
func SetUp() {
	// A sweep must find orphans of programs. Subreaper cannot fail on a kernel that Go runs on.
	_ = procfs.Subreaper()
	closeOthers()
}

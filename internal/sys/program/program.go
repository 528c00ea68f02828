// Package program is what all programs that run jobs share, whether they run one job (package
// handler) or many (package runner): their environment, how their output becomes log lines, and
// the error when one cannot be started.
package program

import (
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// FirstFree is the first descriptor after the standard ones.
const FirstFree = 3

// AppendTime appends a time, as programs get it, as a JSON string; null if it is zero.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return wire.AppendString(b, Stamp(t))
}

// Stamp writes a time for a program: RFC 3339, UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// SetUp prepares this process to adopt orphans of its programs, and to start programs without
// the descriptors that the daemon was started with.
func SetUp() {
	// A sweep must find orphans of programs. Subreaper cannot fail on a kernel that Go runs on.
	_ = procfs.Subreaper()
	closeOthers()
}

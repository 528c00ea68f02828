// Package program holds what all programs have in common that jobs run in, one for each job
// (package handler) or one for many (package runner): the environment that they get, how their
// output becomes lines of the log, and what is said when one cannot be started.
package program

import (
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// FirstFree is the first descriptor after those that every program has.
const FirstFree = 3

// AppendTime appends a time as programs get it, as a JSON string; null if it is zero.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return wire.AppendString(b, Stamp(t))
}

// Stamp writes a time for a program: RFC 3339, UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// SetUp prepares this process for what its programs leave behind, and for starting them
// without what the daemon was started with.
func SetUp() {
	// Orphans of programs come to this process, so that a sweep finds them. It
	// cannot fail on a kernel that Go runs on.
	_ = procfs.Subreaper()
	closeOthers()
}

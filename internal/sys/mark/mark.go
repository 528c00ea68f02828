// Package mark gives processes a number that all processes they start have, too, whatever
// these do with their environment, group, session and parent.
//
// It is the soft limit of RLIMIT_LOCKS, which Linux has not enforced since 2.4.25 but still
// hands on from each process to what it starts and what it executes. A process may read
// that limit of another one of the same user also where /proc shows it nothing else: of one
// that is not dumpable (PR_SET_DUMPABLE), and of one that hidepid hides.
//
// Other systems have nothing like it: there no process has a mark.
package mark

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Mark is the number of a worker process, or of a run in it. Zero is none.
type Mark uint64

// runBits are the low bits of a mark, which number the runs of a worker process. In the
// others is what names that process. The highest one is never set: great numbers mean that
// there is no limit.
const (
	runBits = 16
	runMask = 1<<runBits - 1
)

// Worker returns the mark of the worker process with that name.
func Worker(proc string) Mark {
	sum := sha256.Sum256([]byte("resqued mark " + proc))
	return max(1<<runBits, Mark(binary.BigEndian.Uint64(sum[:]))&^runMask&math.MaxInt64)
}

// Run returns the mark of the nth run in the worker process of m. Only runs that are many
// thousands apart have the same one.
func (m Mark) Run(n int64) Mark { return m.Worker() | Mark(n%runMask+1) }

// Worker returns the mark of the worker process to which m belongs.
func (m Mark) Worker() Mark { return m &^ runMask }

// IsRun reports whether m is the mark of a run.
func (m Mark) IsRun() bool { return m&runMask != 0 }

// Kill sends SIGKILL to the process with that number if its mark is m, or, if m is that of
// a worker process, of that one; else it fails with os.ErrProcessDone, or with the error of
// Of.
func Kill(pid int, m Mark) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	// The handle is open: from here on the number cannot become another process's.
	has, err := Of(pid)
	switch {
	case m.Covers(has):
		return p.Kill()
	case err == nil, errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return os.ErrProcessDone
	}
	return err
}

// Covers reports whether other is m or, if m is that of a worker process, the mark of a run in it.
func (m Mark) Covers(other Mark) bool {
	return m != 0 && (other == m || m.Worker() == m && other.Worker() == m)
}

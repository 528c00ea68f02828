// Package mark gives processes a number that all their descendants inherit, whatever they do
// with their environment, group, session and parent.
//
// It is the soft limit of RLIMIT_LOCKS, which Linux has not enforced since 2.4.25 but still
// passes on through fork and exec. A process can read that limit of another one of its user even
// where /proc shows nothing else: if that one is not dumpable (PR_SET_DUMPABLE) or hidden by
// hidepid.
//
// Other systems have nothing like it: no process has a mark there.
package mark

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Mark is the number of a worker process, or of a run in it; 0 = none.
type Mark uint64

// runBits are the low bits of a mark, which number the runs of a worker process. The others name
// the process. The highest bit is never set, because such numbers mean "unlimited".
const (
	runBits = 16
	runMask = 1<<runBits - 1
)

// Worker returns the mark of the worker process with this name.
func Worker(proc string) Mark {
	sum := sha256.Sum256([]byte("resqued mark " + proc))
	return max(1<<runBits, Mark(binary.BigEndian.Uint64(sum[:]))&^runMask&math.MaxInt64)
}

// Run returns the mark of the nth run in m's worker process. Runs that are runMask apart share a
// mark.
func (m Mark) Run(n int64) Mark { return m.Worker() | Mark(n%runMask+1) }

// Worker returns the mark of the worker process to which m belongs.
func (m Mark) Worker() Mark { return m &^ runMask }

// IsRun reports whether m is the mark of a run.
func (m Mark) IsRun() bool { return m&runMask != 0 }

// Kill sends SIGKILL to a process that m covers. Otherwise it fails with os.ErrProcessDone, or
// with the error of Of.
func Kill(pid int, m Mark) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	// The handle is open: from here on the pid cannot become another process's.
	has, err := Of(pid)
	switch {
	case m.Covers(has):
		return p.Kill()
	case err == nil, errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return os.ErrProcessDone
	}
	return err
}

// Covers reports whether other is m, or a run's mark in m's worker process if m is a worker's.
func (m Mark) Covers(other Mark) bool {
	return m != 0 && (other == m || m.Worker() == m && other.Worker() == m)
}

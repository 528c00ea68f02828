// Package mark gives processes a number that all processes they start have, too, whatever
// these do with their environment, group, session and parent.
//
// It is the soft limit of RLIMIT_LOCKS, which Linux has not enforced since 2.4.25 but still
// hands on from each process to what it starts and what it executes. A process may read
// that limit of another one of the same user also where /proc shows it nothing else: of one
// that is not dumpable (PR_SET_DUMPABLE), and of one that hidepid hides.
package mark

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"

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

// Of returns the mark of a process; zero if it has none. A zombie has its mark until it is
// reaped. Of fails if the mark cannot be read: there is no such process, /proc hides it, or
// this process may open no more files.
func Of(pid int) (Mark, error) {
	var limit unix.Rlimit
	if pid <= 0 || unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) != nil {
		// The kernel does not answer about a process of another user, but /proc shows the limit.
		return shown(pid)
	}
	return number(limit.Cur), nil
}

// Set gives a process the mark m.
func Set(pid int, m Mark) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit); err != nil {
		return err
	}
	limit.Cur = uint64(m)
	return unix.Prlimit(pid, unix.RLIMIT_LOCKS, &limit, nil)
}

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
	case m.covers(has):
		return p.Kill()
	case err == nil, errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return os.ErrProcessDone
	}
	return err
}

func (m Mark) covers(other Mark) bool {
	return m != 0 && (other == m || m.Worker() == m && other.Worker() == m)
}

// Hidden reports whether the process with that number exists, and is a zombie, by other
// means than /proc, from which it is hidden. That it is a zombie is only known of a child
// of this process.
func Hidden(pid int) (exists, zombie bool) {
	if pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false, false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return true, err == nil && info.Signo != 0
}

// number makes a mark of a limit; zero if it is none.
func number(limit uint64) Mark {
	if limit > math.MaxInt64 || limit <= runMask {
		return 0
	}
	return Mark(limit)
}

// shown reads a mark from /proc.
func shown(pid int) (Mark, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if values, ok := strings.CutPrefix(line, "Max file locks"); ok {
			fields := strings.Fields(values)
			if len(fields) == 0 {
				return 0, nil
			}
			limit, _ := strconv.ParseUint(fields[0], 10, 64) // "unlimited" is none
			return number(limit), nil
		}
	}
	return 0, nil
}

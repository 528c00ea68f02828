package mark

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Of returns the mark of a process; 0 = none. A zombie keeps its mark until it is reaped. Of
// fails if the process does not exist, /proc hides it, or no descriptor is free.
func Of(pid int) (Mark, error) {
	var limit unix.Rlimit
	if pid <= 0 || unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) != nil {
		// The kernel refuses for a process of another user, but /proc shows the limit.
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

// Hidden reports whether a process that /proc hides exists and is a zombie. It detects zombies
// only among children of this process.
func Hidden(pid int) (exists, zombie bool) {
	if pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false, false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return true, err == nil && info.Signo != 0
}

func number(limit uint64) Mark {
	if limit > math.MaxInt64 || limit <= runMask {
		return 0
	}
	return Mark(limit)
}

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
			limit, _ := strconv.ParseUint(fields[0], 10, 64) // "unlimited" gives none
			return number(limit), nil
		}
	}
	return 0, nil
}

package procfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// macOS has no /proc. sysctl suffices for development: it shows processes, their parents and
// mostly their environment. But macOS has no inherited marks, gives orphans to launchd, and
// hides the environment of system programs. So descendants of a dead worker process that such
// programs have started may be left, and no other daemon considers it gone before its lease
// ends.

// zombie is the state of a process that waits to be reaped (SZOMB).
const zombie = 5

func readStat(pid string) (Stat, error) {
	number, err := number(pid)
	if err != nil {
		return Stat{}, err
	}
	info, err := unix.SysctlKinfoProc("kern.proc.pid", number)
	if err != nil {
		if errors.Is(unix.Kill(number, 0), unix.ESRCH) || errors.Is(err, unix.EIO) { // EIO: an empty answer
			return Stat{}, fmt.Errorf("process %d: %w", number, os.ErrNotExist)
		}
		return Stat{}, fmt.Errorf("process %d: %w", number, err)
	}
	s := Stat{State: 'R', Parent: int(info.Eproc.Ppid), Group: int(info.Eproc.Pgid), Threads: 1}
	if info.Proc.P_stat == zombie {
		s.State = 'Z'
	}
	s.Start = uint64(info.Proc.P_starttime.Nano() / 1000)
	// The address of the environment is unknown; 0 would mean that there is none yet.
	s.EnvEnd, s.CodeStart = 1, 1
	return s, nil
}

// Catches reports whether a process has a handler for a signal.
func Catches(pid int, s syscall.Signal) (bool, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return false, fmt.Errorf("process %d: %w", pid, err)
	}
	return info.Proc.P_sigcatch>>(s-1)&1 != 0, nil
}

// whole reports whether env can be the whole environment, which is read at once here.
func (s Stat) whole(env []byte) bool { return len(env) > 0 }

func number(pid string) (int, error) {
	if pid == "self" {
		return os.Getpid(), nil
	}
	return strconv.Atoi(pid)
}

// ListsChildren reports false: only a look at all processes finds children.
func ListsChildren() bool { return false }

// ThreadChildren fails: macOS does not list them.
func ThreadChildren(int) ([]int, error) { return nil, errors.ErrUnsupported }

// Children returns the children of a process, dead ones included.
func Children(pid int) ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	var pids []int
	for _, info := range all {
		if int(info.Eproc.Ppid) == pid {
			pids = append(pids, int(info.Proc.P_pid))
		}
	}
	return pids, err
}

// Everyone returns the numbers of all processes.
func Everyone() ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	pids := make([]int, 0, len(all))
	for _, info := range all {
		pids = append(pids, int(info.Proc.P_pid))
	}
	return pids, err
}

func environ(pid string) ([]byte, error) {
	data, err := procargs2(pid)
	if err != nil {
		return nil, Blind(err)
	}
	env, err := procargsEnviron(data)
	if err != nil {
		return nil, nil // it is executing another program, or ending
	}
	return env, nil
}

func openEnviron(pid string) error {
	_, err := procargs2(pid)
	if errors.Is(err, unix.EINVAL) {
		return unix.EPERM // of another user
	}
	return err
}

func procargs2(pid string) ([]byte, error) {
	number, err := number(pid)
	if err != nil {
		return nil, err
	}
	return unix.SysctlRaw("kern.procargs2", number)
}

func memoryGone(string) (bool, error) { return false, nil }

// Subreaper fails: launchd adopts orphans.
func Subreaper() error { return fmt.Errorf("become subreaper: %w", errors.ErrUnsupported) }

func isSubreaper() bool { return false }

// view is empty: any process may hide its environment.
func view() string { return "" }

// cgroup is empty: macOS has no control groups.
func cgroup() string { return "" }

func emptied(string) bool { return false }

// Reap does nothing: no orphan comes to this process.
func (s *Strays) Reap() (reaped int) { return 0 }

// ReapOrphans does nothing.
func (s *Strays) ReapOrphans() (reaped int) { return 0 }

// OOMKills returns nothing: the count is unknown.
func OOMKills() OOM { return OOM{} }

// TaskLimits returns the limits on this process and its descendants.
func TaskLimits() []TaskLimit {
	var limit unix.Rlimit
	if os.Getuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil || limit.Cur > 1<<62 {
		return nil
	}
	return []TaskLimit{{
		Name: "RLIMIT_NPROC, which counts all processes of the user,", Max: int64(limit.Cur), Raise: "ulimit -u",
	}}
}

// MemoryLimit returns 0: macOS has no control groups.
func MemoryLimit() int64 { return 0 }

// Memory returns the machine's memory in bytes; 0 = unknown.
func Memory() int64 {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil || size > 1<<62 {
		return 0
	}
	return int64(size)
}

// Resident returns 0: the memory of another process is unknown here.
func Resident(int) int64 { return 0 }

// Proportional returns rss.
func Proportional(_ int, rss int64) int64 { return rss }

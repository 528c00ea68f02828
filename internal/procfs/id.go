package procfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ID is a process that cannot be mistaken for a later one with its pid.
type ID struct {
	PID   int
	Start uint64
}

// That a process is not in /proc proves nothing: hidepid, which systemd calls ProtectProc=,
// hides those of other users, and with PrivateUsers= those of other services, too. Taken
// for dead is only one of which the kernel says so by other means.

// Dead reports whether the process is proven to be dead. It may only be asked where it was
// counted: in other namespaces, and after another boot, its pid means nothing. False means
// that it lives, or that this cannot be found out.
func (id ID) Dead() bool {
	if id.PID <= 0 {
		return false // not the number of a process; signals to it go elsewhere
	}
	// Whom this process may not signal is there (EPERM); only of what does not exist the
	// kernel says ESRCH, and nothing hides from it in one PID namespace.
	if errors.Is(unix.Kill(id.PID, 0), unix.ESRCH) {
		return true
	}
	// Somebody has the number. If that is hidden, it may be the process itself.
	s, err := ReadStat(id.PID)
	return err == nil && (s.Start != id.Start || s.Dead())
}

// Kill sends SIGKILL to the process if that is still there, and reports whether it has.
func (id ID) Kill() bool {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	// The handle is open: from here on the number cannot become another process's.
	st, err := ReadStat(id.PID)
	return err == nil && st.Start == id.Start && p.Kill() == nil
}

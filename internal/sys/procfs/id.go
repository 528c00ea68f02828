package procfs

import (
	"errors"
	"os"
	"syscall"

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
	// The number is in use. If /proc hides who has it, it may be the process itself.
	s, err := ReadStat(id.PID)
	return err == nil && (s.Start != id.Start || s.Dead())
}

// Kill sends SIGKILL to the process if that is still there, and reports whether it has.
func (id ID) Kill() bool { return id.Signal(unix.SIGKILL) }

// Signal sends sig to the process if that is still there, and reports whether it has.
func (id ID) Signal(sig syscall.Signal) bool {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return false
	}
	// The handle is open: from here on the number cannot become another process's.
	st, err := ReadStat(id.PID)
	sent := err == nil && st.Start == id.Start && p.Signal(sig) == nil
	_ = p.Release()
	if Blind(err) != nil {
		// The handle may have been the last file that could be opened. Without one the number
		// could only become another's in the next instant.
		st, err = ReadStat(id.PID)
		sent = err == nil && st.Start == id.Start && unix.Kill(id.PID, sig) == nil
	}
	return sent
}

package procfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ID names a process; a later one with the same pid has another ID.
type ID struct {
	PID   int
	Start uint64
}

// A process missing from /proc is not proven dead: hidepid (systemd's ProtectProc=) hides other
// users' processes, and PrivateUsers= those of other services. Only the kernel's other answers
// count.

// Dead reports whether the process is proven to be dead. Ask only in the same namespaces and the
// same boot: elsewhere its pid means nothing. False means that it lives or that this is unknown.
func (id ID) Dead() bool {
	if id.PID <= 0 {
		return false // not a pid; kill(2) gives it another meaning
	}
	// EPERM means that the process exists. ESRCH means that it does not: nothing hides from
	// kill(2) in one PID namespace.
	if errors.Is(unix.Kill(id.PID, 0), unix.ESRCH) {
		return true
	}
	// The pid is in use. If /proc hides its process, that may be the one asked about.
	s, err := ReadStat(id.PID)
	return err == nil && (s.Start != id.Start || s.Dead())
}

// Kill is Signal with SIGKILL.
func (id ID) Kill() bool { return id.Signal(unix.SIGKILL) }

// Signal sends sig to the process, if it still exists, and reports whether it has.
func (id ID) Signal(sig syscall.Signal) bool {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return false
	}
	// The handle is open: from here on the pid cannot become another process's.
	st, err := ReadStat(id.PID)
	sent := err == nil && st.Start == id.Start && p.Signal(sig) == nil
	_ = p.Release()
	if Blind(err) != nil {
		// The handle may have used the last free descriptor. Without it, the pid could become
		// another process's only between the next two calls.
		st, err = ReadStat(id.PID)
		sent = err == nil && st.Start == id.Start && unix.Kill(id.PID, sig) == nil
	}
	return sent
}

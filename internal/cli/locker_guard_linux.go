package cli

import "syscall"

// commandAttributes are the attributes of a command that dies with its guard.
func commandAttributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

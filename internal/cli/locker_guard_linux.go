package cli

import "syscall"

// commandAttributes are those of the command of locker run, which dies with its guard.
func commandAttributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

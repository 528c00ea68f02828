package cli

import "syscall"

// commandAttributes are the command's attributes. If its guard is killed, the command continues
// without the lock: nothing here would end it.
func commandAttributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

package cli

import "syscall"

// commandAttributes are those of the command of locker run. Should its guard be killed, it
// runs on without the lock: nothing here would end it.
func commandAttributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

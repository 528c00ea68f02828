package deadhost

import "syscall"

// attributes makes a hook lead a group of its own and end with its master.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

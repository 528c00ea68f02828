package deadhost

import "syscall"

// attributes makes a hook lead a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

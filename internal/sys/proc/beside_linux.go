package proc

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func isSelf(path string) (bool, error) {
	there, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false, err
	}
	return os.SameFile(there, running), nil
}

// sibling makes a process a child of this process's parent.
func sibling() (*syscall.SysProcAttr, error) {
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT}, nil
}

func creator(fd int) (pid int, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(c.Pid), nil
}

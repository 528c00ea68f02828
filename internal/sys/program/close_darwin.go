package program

import "golang.org/x/sys/unix"

// closeOthers sees to it that no command inherits what the daemon was started with: the
// descriptors that a process usually has by then.
func closeOthers() {
	for fd := FirstFree; fd < 256; fd++ {
		unix.CloseOnExec(fd)
	}
}

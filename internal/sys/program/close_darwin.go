package program

import "golang.org/x/sys/unix"

// closeOthers prevents commands from inheriting the descriptors that the daemon was started
// with, as far as they are below 256.
func closeOthers() {
	for fd := FirstFree; fd < 256; fd++ {
		unix.CloseOnExec(fd)
	}
}

package procfs

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Subreaper makes this process adopt all orphans among its descendants, instead of init.
func Subreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

func isSubreaper() bool {
	var is int32
	// Not unix.Prctl: the stack, and the variable on it, may move before its system call.
	_, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0, 0)
	return errno == 0 && is != 0
}

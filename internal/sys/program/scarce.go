package program

import (
	"errors"
	"syscall"
)

// Scarce reports whether a command could not start for lack of descriptors, processes or memory.
// That is not the job's fault, and all jobs of a queue would fail one after the other.
func Scarce(err error) bool {
	if _, ok := errors.AsType[*StartError](err); !ok {
		return false
	}
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

package program

import (
	"errors"
	"syscall"
)

// Scarce reports whether a command was not started because there were too few
// descriptors or processes, or too little memory. Jobs are not to blame for that, and
// all of a queue would fail one after the other.
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

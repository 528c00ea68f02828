package proc

import (
	"errors"
	"syscall"
)

var errNoSibling = errors.New("a daemon cannot be upgraded while it runs on this system")

// isSelf fails: the file that a process runs is unknown once it has been replaced.
func isSelf(string) (bool, error) { return false, errNoSibling }

func sibling() (*syscall.SysProcAttr, error) { return nil, errNoSibling }

func creator(int) (pid int, err error) { return 0, errNoSibling }

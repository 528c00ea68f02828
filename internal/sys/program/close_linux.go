package program

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeOthers prevents commands, however started, from inheriting the descriptors that the
// daemon was started with. It has no effect before Linux 5.11.
func closeOthers() { _ = unix.CloseRange(FirstFree, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }

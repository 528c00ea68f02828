package program

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeOthers sees to it that no command inherits what the daemon was started with, however
// it is started. Kernels before 5.11 cannot do this.
func closeOthers() { _ = unix.CloseRange(FirstFree, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }

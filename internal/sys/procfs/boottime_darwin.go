package procfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime returns the time since the machine's boot on a clock that, unlike
// Go's monotonic one, goes on while the machine is suspended.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // macOS has had this clock since 10.12
	}
	return time.Duration(ts.Nano())
}

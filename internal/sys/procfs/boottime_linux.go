package procfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime returns the time since the machine's boot on a clock that, unlike
// Go's monotonic one, goes on while the machine is suspended.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // the kernel has had this clock since 2.6.39
	}
	return time.Duration(ts.Nano())
}

package locker

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the machine's boot. Unlike Go's monotonic clock it advances while
// the machine is suspended, as the database's does.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // the kernel has had this clock since 2.6.39
	}
	return time.Duration(ts.Nano())
}

//go:build !linux

package locker

import "time"

var start = time.Now()

// bootTime is the time since some instant. It may stop while the machine is suspended, so a
// block that wakes up then notices late that its lock is gone.
func bootTime() time.Duration { return time.Since(start) }

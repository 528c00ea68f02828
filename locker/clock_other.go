//go:build !linux

package locker

import "time"

var start = time.Now()

// bootTime is the time since some instant. Here it may stand still while the machine
// is suspended: a block that wakes up then learns late that its lock is gone.
func bootTime() time.Duration { return time.Since(start) }

package procfs

import "time"

// Strays reaps orphans that this process, a subreaper, has adopted and that no code waits for. A
// child started by Go code is never one: that code holds a handle until it has waited. Use it
// from one goroutine.
type Strays struct {
	// Owned reports whether some code waits for a child process; may be nil.
	Owned func(pid int) bool

	seen map[ID]time.Duration
}

package procfs

import "time"

// Strays reaps orphans that came to this process, a subreaper, and that no code waits
// for. A child that Go code here has started is none, however late it is waited for: that
// code holds a handle of it. Use it from one goroutine.
type Strays struct {
	// Owned reports whether some code waits for a child process; nil = none does.
	Owned func(pid int) bool
	// Patience is how long a zombie is left to code that may wait for it, because a
	// child can die before its parent could tell Owned about it; 0 = not at all where a
	// process that Go code has started has a handle from its first moment on, else 2 s.
	Patience time.Duration

	seen map[ID]time.Duration
}

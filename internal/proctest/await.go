package proctest

import (
	"fmt"
	"testing"
	"time"
)

// Await waits until cond holds and fails the test when it does not within
// timeout. What says in words what was waited for; it may end in verbs of
// fmt.Sprintf for args, which are evaluated by the caller.
func Await(tb testing.TB, timeout time.Duration, cond func() bool, what string, args ...any) {
	tb.Helper()
	if !Within(timeout, cond) {
		tb.Fatalf("%s: not within %s", fmt.Sprintf(what, args...), timeout)
	}
}

// Within waits until cond holds and says whether it did within timeout. It asks
// often at first and ever more rarely, at last 20 times a second.
func Within(timeout time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if cond() {
			return true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		<-time.After(min(pause, left))
	}
}

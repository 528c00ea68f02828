package proctest

import (
	"fmt"
	"testing"
	"time"
)

// Await waits until cond returns true, and fails the test if that takes longer than timeout. The
// format what and args describe the condition.
func Await(tb testing.TB, timeout time.Duration, cond func() bool, what string, args ...any) {
	tb.Helper()
	if !Within(timeout, cond) {
		tb.Fatalf("%s: not within %s", fmt.Sprintf(what, args...), timeout)
	}
}

// Within waits until cond returns true and reports whether it did within timeout. It polls often
// at first, later 20 times a second.
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

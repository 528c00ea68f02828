// Package system_test runs the built binary: real processes, real signals, a
// real Redis.
package system_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// short lists the tests that run with -short: one of each kind, a few seconds each.
var short = []string{
	"TestShortTestsExist",
	"TestBadConfiguration",            // what is refused, and how
	"TestClassLockOfACommand",         // locks
	"TestIdleWorkersOfADeadMaster",    // a master is killed
	"TestInvalidPayloadThatComesBack", // payloads stay as they are
	"TestKillFromElsewhere",           // kill
	"TestMultiQueueFailures",          // what Ruby reads
	"TestPausedUntilEmpty",            // pause
	"TestRedisIsAwayAtTheStart",       // outages
	"TestTitlesAndNotifications",      // systemd
	"TestUntilEmptyAndDelayedJobs",    // delayed jobs
}

func TestMain(m *testing.M) {
	os.Exit(harness.Main(short, nightly, func() int {
		code := m.Run()
		if nodeInstalled != "" {
			_ = os.RemoveAll(nodeInstalled)
		}
		if err := goleak.Find(redistest.Probing()); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

// Package system_test runs the built binary: real processes, real signals, a
// real Redis.
package system_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/resqued/resqued/test/system/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(func() int {
		code := m.Run()
		if nodeInstalled != "" {
			_ = os.RemoveAll(nodeInstalled)
		}
		if err := goleak.Find(); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

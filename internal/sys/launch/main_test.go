//go:build linux

package launch

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(actEnv) != "" {
		act()
		return
	}
	goleak.VerifyTestMain(m)
}

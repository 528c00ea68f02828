package tuning

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/proctest"
)

// partEnv names the part that the test binary plays as a process of its own.
const partEnv = "TUNING_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(partEnv) {
	case "processors":
		os.Exit(processorsPart())
	case "ballast":
		os.Exit(ballastPart())
	}
	goleak.VerifyTestMain(m)
}

// start plays one of the parts above as a process of its own.
func start(t *testing.T, part string, env ...string) *proctest.Part {
	t.Helper()
	return proctest.StartPart(t, append(env, partEnv+"="+part)...)
}

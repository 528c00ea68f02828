package house_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Budgets on two cores, in seconds.
const (
	testBudget = 10 * 60 // make test
	gateBudget = 20 * 60 // .ci/run
)

// TestGateTimes: the recorded run of .ci/run took at most half more than its budget. Machines
// differ by that much.
func TestGateTimes(t *testing.T) {
	t.Parallel()
	total := 0
	for line := range strings.Lines(read(t, filepath.Join(root, ".ci/times"))) {
		step, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.Atoi(text)
		require.NoError(t, err, line)
		total += seconds
		if step == "make test" {
			assert.LessOrEqual(t, seconds, testBudget*3/2, "%s took %d s; the slowest packages are at the end of its output", step, seconds)
		}
	}
	require.Positive(t, total)
	assert.LessOrEqual(t, total, gateBudget*3/2, ".ci/run took %d s; .ci/times has its steps", total)
}

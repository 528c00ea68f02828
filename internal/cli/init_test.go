package cli

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// TestInitialisation limits the work before main, which every replaced worker process repeats.
// Packages make what they rarely need, such as regular expressions, at first use.
func TestInitialisation(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	const limit = 64 << 10 // bytes that the packages of this module allocate
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	c.Stderr = &trace
	require.NoError(t, c.Run())
	total := 0
	for _, m := range regexp.MustCompile(`(?m)^init (github.com/resqued/resqued\S*) @.* (\d+) bytes`).FindAllSubmatch(trace.Bytes(), -1) {
		n, err := strconv.Atoi(string(m[2]))
		require.NoError(t, err)
		t.Logf("%7d %s", n, m[1])
		total += n
	}
	require.Positive(t, total)
	require.LessOrEqual(t, total, limit)
}

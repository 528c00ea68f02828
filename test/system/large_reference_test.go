package system_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/system/harness"
)

// TestLargeReferenceToNothing checks that a reference to a missing payload, itself too large to
// be sent back, becomes an ordinary failure and does not block the queue.
func TestLargeReferenceToNothing(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2})
	d.PushRaw("mail", fmt.Sprintf(`{"class":"Resqued::LargePayload","args":["nope#1",5,"ab",%q]}`, strings.Repeat("x", 200_000)))
	d.Push("mail", "Count", 1)
	require.Equal(t, "Resqued::PayloadGone", d.AwaitFailures(1)[0].Exception)
	d.AwaitNoted("ran", 1)
	d.AwaitProcessed(2, patience)
}

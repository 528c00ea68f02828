package system_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/system/harness"
)

// A reference to a payload that is not kept, itself too large to be sent back, is a failure
// like any other and holds up nothing.
func TestLargeReferenceToNothing(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2})
	d.PushRaw("mail", fmt.Sprintf(`{"class":"Resqued::LargePayload","args":["nope#1",5,"ab",%q]}`, strings.Repeat("x", 200_000)))
	d.Push("mail", "Count", 1)
	require.Equal(t, "Resqued::PayloadGone", d.AwaitFailures(1)[0].Exception)
	d.AwaitNoted("ran", 1)
	d.AwaitProcessed(2, patience)
}

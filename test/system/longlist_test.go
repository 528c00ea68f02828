package system_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

// TestALongJobOfWhatIsLeft runs a long job that works a list and removes what is done, through
// many slices and a deploy. Each item is done once.
func TestALongJobOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	const items = 150
	d := harness.Start(t, harness.Options{App: true, Workers: 2})
	c := longClient(t, d)
	for i := range items {
		require.NoError(t, d.Client.RPush(t.Context(), d.Key("test:todo"), fmt.Sprint("item ", i)).Err())
	}
	res, err := c.Enqueue(t.Context(), "Todo", nil, longjob.Queue("long"))
	require.NoError(t, err)
	d.AwaitNoted("todone", 20)
	d.Signal(syscall.SIGHUP)
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	run, err := c.Wait(limit, res.UUID)
	require.NoError(t, err)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	done := d.Noted("todone")
	require.Len(t, done, items, "the run is completed")
	for item, n := range done {
		require.Equal(t, "1", n, item)
	}
	require.Greater(t, run.Slices, 2)
	require.Empty(t, run.Warning)
}

// TestALongJobOfAnotherProgram checks that a payload of a program that keeps its long jobs
// elsewhere fails with a reason.
func TestALongJobOfAnotherProgram(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true})
	const payload = `{"class":"Long","args":["5c2ff4b4-9a3f-4d8c-8a55-0c5f5a3f9d11"],"id":"6f1c0f6be0be4c1d8f1ab1f6b9a0c7d2","generation":1}`
	d.PushRaw("long", payload)
	d.AwaitFailures(1)
	record := d.Client.LIndex(t.Context(), d.Key("failed"), 0).Val()
	require.Contains(t, record, "the only argument is the UUID 5c2ff4b4-9a3f-4d8c-8a55-0c5f5a3f9d11")
	require.Contains(t, record, `"payload":`+payload, "as it was")
	out, _, code := d.Run("longjobs", "-o", "name")
	require.Zero(t, code)
	require.Empty(t, out)
}

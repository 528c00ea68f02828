package system_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

// TestALongJobWaitsForTheOneBeforeIt replaces a run whose code ignores that: the new run begins
// when the old one is over.
func TestALongJobWaitsForTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"superseded", "cancelled", "twice"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2})
			c := longClient(t, d)
			enqueue := func() string {
				res, err := c.Enqueue(t.Context(), "DeafRun", 5000, longjob.Queue("long"))
				require.NoError(t, err)
				return res.UUID
			}
			noted := func() []string { return d.Client.LRange(t.Context(), d.Key("test:deaf"), 0, -1).Val() }
			old := enqueue()
			proctest.Await(t, patience, func() bool { return len(noted()) == 1 }, "the first unit")
			switch how {
			case "cancelled":
				require.ErrorIs(t, c.Cancel(t.Context(), old), longjob.ErrEnding)
			case "twice":
				enqueue()
			}
			fresh := enqueue()
			limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			run, err := c.Wait(limit, fresh)
			require.NoError(t, err)
			require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
			require.Equal(t, []string{"begin " + old, "end " + old, "begin " + fresh, "end " + fresh}, noted())
			require.Zero(t, run.Deaths)
			require.Empty(t, d.Failures())
		})
	}
}

package system_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestJobsWaitForDescriptors checks that a worker process that cannot start commands does not
// fail the jobs of its queue one after the other.
func TestJobsWaitForDescriptors(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Threads: 4, Config: "handlers: {Run: {command: ['true']}}\n"})
	d.PushRaw("mail", `{"class":"Run","args":[0]}`)
	d.AwaitProcessed(1, patience)
	var had unix.Rlimit
	pid := d.WorkerPIDs()[0]
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}, nil))
	const jobs = 60
	for id := 1; id <= jobs; id++ {
		d.PushRaw("mail", fmt.Sprintf(`{"class":"Run","args":[%d]}`, id))
	}
	d.AwaitLog("their jobs wait")
	proctest.Await(t, patience, func() bool { return d.Client.LLen(t.Context(), d.Key("queue:mail")).Val() <= jobs-4 }, "a job for each thread")
	require.NotZero(t, d.Client.LLen(t.Context(), d.Key("queue:mail")).Val(), "the others wait where they are")
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &had, nil))
	d.AwaitProcessed(jobs+1, patience)
	require.Empty(t, d.Failures())
	require.Equal(t, 1, strings.Count(d.Log(), "their jobs wait"))
}

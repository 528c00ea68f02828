package system_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestTwoFormats runs two versions in one namespace; the newer one writes a format that the
// older one does not read. The older one continues with its own jobs and leaves those of a dead
// newer one to newer ones; it cannot be started again. No job is lost.
func TestTwoFormats(t *testing.T) {
	t.Parallel()
	space := redistest.Namespace(t)
	newer := strconv.Itoa(rdb.Known().Newest + 1)
	const config = "job_lock_duration: 3\nheartbeat_frequency: 1\nresque_term_timeout: 1\n"
	old := harness.Options{App: true, Namespace: space, Queues: "mail", Config: config}
	next := harness.Options{Binary: harness.NewerApp(t), Namespace: space, Queues: "news", Config: config}
	o := harness.Start(t, old)
	n := harness.Start(t, next)
	o.ForgetMasters()
	n.ForgetMasters()
	require.Equal(t, newer, o.Client.HGet(t.Context(), o.Key("resqued:meta"), "format").Val())
	o.AwaitLog("another daemon of this fleet writes in a format that this version does not read")

	// Jobs of a dead newer daemon wait, although its lease is past.
	n.Push("news", "Gate", 1)
	n.AwaitNoted("started", 1)
	records := func() map[string]string {
		all := map[string]string{}
		for _, key := range o.Keys("resqued:inflight:*") {
			for token, record := range o.Client.HGetAll(t.Context(), o.Key(key)).Val() {
				all[key+token] = record
			}
		}
		return all
	}
	left := records()
	require.Len(t, left, 1)
	n.KillTree()
	o.AwaitLog("a worker process whose lease is past has written in a format that this version does not read")
	require.Contains(t, o.Log(), `"other_format":"`+newer+`"`)
	// The older one works, also with new worker processes.
	o.Signal(hup)
	o.Push("mail", "Count", 2)
	o.AwaitNoted("ran", 1)
	require.Equal(t, left, records())

	// A newer one recovers them, and those of a dead older one.
	after := harness.Start(t, next)
	after.ForgetMasters()
	proctest.Await(t, patience, func() bool { return after.Noted("started")["1"] == "2" }, "the job of the dead newer daemon to run again")
	o.Push("mail", "Gate", 3)
	o.AwaitNoted("started", 2)
	o.KillTree()
	proctest.Await(t, patience, func() bool {
		return after.Client.LLen(t.Context(), after.Key("queue:mail")).Val() == 1
	}, "the job of the dead older daemon to be back in its queue")

	// The older one no longer starts here, and its command line changes nothing.
	old.Unready = true
	refused := harness.Start(t, old)
	require.Equal(t, 1, refused.Exit())
	require.Contains(t, refused.Log(), `has format "`+newer+`", written by resqued `)
	_, text, code := refused.Run("queues", "rm", "mail", "--yes")
	require.Equal(t, 1, code)
	require.Contains(t, text, "nothing was changed")

	next.Queues = "*"
	last := harness.Start(t, next)
	last.ForgetMasters()
	last.Open()
	proctest.Await(t, patience, func() bool { return len(records()) == 0 && len(last.Keys("queue:*")) == 0 }, "all jobs to be done")
	require.Empty(t, last.Failures())
	require.Equal(t, map[string]string{"1": "2", "3": "2"}, last.Noted("started"))
	for _, d := range []*harness.Daemon{after, last} {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
}

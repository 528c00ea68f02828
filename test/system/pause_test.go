package system_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// calls returns how often a server has executed a command.
func calls(t *testing.T, d *harness.Daemon, command string) int {
	t.Helper()
	found := regexp.MustCompile("cmdstat_" + command + `:calls=(\d+)`).FindStringSubmatch(d.Client.Info(t.Context(), "commandstats").Val())
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// someLooks waits until the server has been asked for jobs several times, whatever the answer.
func someLooks(t *testing.T, d *harness.Daemon, n int) {
	t.Helper()
	looks := calls(t, d, "evalsha")
	proctest.Await(t, patience, func() bool { return calls(t, d, "evalsha") > looks+n }, "looks")
}

// TestPauseQueues checks that jobs of paused queues wait, that running ones go on, and that all
// other jobs are worked. No process polls paused queues in vain.
func TestPauseQueues(t *testing.T) {
	t.Parallel()
	for name, queues := range map[string]string{"queues of a pattern": "*", "queues by name": "mail,sms", "queues with caps": "mail:3,sms:3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2, Queues: queues, Redis: redistest.Start(t, redistest.Options{})})
			waiting := func(queue string) int64 { return d.Client.LLen(t.Context(), d.Key("queue:"+queue)).Val() }
			run := func(args ...string) {
				t.Helper()
				_, errs, code := d.Run(append([]string{"queues"}, args...)...)
				require.Zero(t, code, errs)
			}
			d.Push("mail", "Gate", 1000)
			d.AwaitNoted("started", 1)
			run("pause", "mail")
			d.Push("mail", "Count", harness.Range(1, 20)...)
			d.Push("sms", "Count", harness.Range(21, 40)...)
			d.AwaitNoted("ran", 20)
			d.Open() // who runs goes on to its end
			d.AwaitNoted("ran", 21)
			d.Push("sms", "Count", 41)
			d.AwaitNoted("ran", 22)
			require.EqualValues(t, 20, waiting("mail"), "not a job was taken")

			// With no other work, polls find nothing, and no process asks for jobs.
			d.AwaitProcessed(22, patience)
			asked := func() int { return calls(t, d, "lpop") + calls(t, d, "lrange") }
			proctest.Await(t, patience, func() bool { // exchanges may be under way
				before := asked()
				someLooks(t, d, 4) // between two looks at the ages of queues, which are a second apart
				return asked() == before
			}, "looks that are followed by no request")

			run("resume", "mail")
			d.AwaitNoted("ran", 42)
			require.Zero(t, waiting("mail"))

			for _, pause := range []func(){
				func() { run("pause", "--all") },
				func() {
					require.NoError(t, d.Client.Set(t.Context(), d.Key("pause-all-workers"), "true", 0).Err())
				},
			} {
				pause()
				first := len(d.Noted("ran")) + 100
				d.Push("mail", "Count", harness.Range(first, first+4)...)
				d.Push("sms", "Count", harness.Range(first+5, first+9)...)
				someLooks(t, d, 20)
				require.EqualValues(t, 10, waiting("mail")+waiting("sms"))
				ran := len(d.Noted("ran"))
				run("resume", "--all")
				d.AwaitNoted("ran", ran+10)
			}
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Failures())
			require.Empty(t, d.Residue())
		})
	}
}

// TestPausedUntilEmpty checks that a daemon that works until everything is empty does not wait
// for a paused queue.
func TestPausedUntilEmpty(t *testing.T) {
	t.Parallel()
	idle := harness.Start(t, harness.Options{App: true})
	_, errs, code := idle.Run("queues", "pause", "--unknown", "mail")
	require.Zero(t, code, errs)
	idle.Push("mail", "Count", 1)
	idle.Push("sms", "Count", 2)
	idle.AwaitNoted("ran", 1)
	idle.Signal(quit)
	require.Zero(t, idle.Exit())
	d := harness.Start(t, harness.Options{App: true, Namespace: idle.Space, Args: []string{"--until-empty"}, Unready: true})
	require.Zero(t, d.Exit())
	require.EqualValues(t, 1, d.Client.LLen(t.Context(), d.Key("queue:mail")).Val())
}

package system_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// roomy is a class whose first run would never end. It makes room when told, and continues
// elsewhere.
const roomy = `
class Roomy
  def self.perform(id)
    note("begin", id, Process.pid)
    return note("done", id) if File.exist?("second-#{id}")
    sleep(0.01) until Resqued.leaving?
    File.write("second-#{id}", "")
    Resqued.requeue
  end
end

class Interrupted
  def self.perform(_id)
    Resqued.interrupted!
  end
end
`

// TestRunnerLeaving checks that a deploy and a drain do not wait for a job that makes room.
func TestRunnerLeaving(t *testing.T) {
	t.Parallel()
	a := newRubyApp(t, "leaving", roomy)
	d := harness.Start(t, harness.Options{Config: a.config("    dir: " + t.TempDir() + "\n"), Env: []string{"RESQUED_LOG_JOBS=true"}})
	begun := func(n int) {
		t.Helper()
		proctest.Await(t, patience, func() bool { return len(a.notes("begin")) == n }, "run %d", n)
	}
	d.Push("mail", "Roomy", 1)
	begun(1)
	d.Signal(syscall.SIGHUP)
	d.AwaitProcessed(1, patience)
	runs := a.notes("begin")
	require.Len(t, runs, 2)
	require.NotEqual(t, runs[0][2], runs[1][2], "in another process")

	d.Push("mail", "Interrupted", 1)
	d.AwaitProcessed(2, patience)
	d.AwaitLog(`"msg":"job interrupted"`)

	d.Push("mail", "Roomy", 2)
	begun(3)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.EqualValues(t, 1, d.Client.LLen(t.Context(), d.Key("queue:mail")).Val(), "it waits for another daemon")
	require.Empty(t, d.Failures())
}

// TestCommandLeaving checks that a drain does not wait for a command that makes room.
func TestCommandLeaving(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Config: `
queues: [mail]
handlers:
  Roomy: {command: [sh, -c, "trap 'exit 75' USR1; echo it has begun; while :; do sleep 0.01; done"], on_leaving: USR1}
`})
	d.Push("mail", "Roomy", 1)
	d.AwaitLog("it has begun")
	d.Signal(quit)
	require.Zero(t, d.Exit())
	// It runs again after a second, which may be over.
	later, due := d.Client.ZCard(t.Context(), d.Key("resqued:delayed")).Val(), d.Client.LLen(t.Context(), d.Key("queue:mail")).Val()
	require.EqualValues(t, 1, later+due)
	require.Empty(t, d.Failures())
}

package system_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestEventsTellWhatHappened causes all kinds of events and checks what the daemon reports.
func TestEventsTellWhatHappened(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 1, Threads: 2, Env: []string{"RESQUED_MAX_DEATHS=1"}})
	s, err := store.Open(store.Options{URL: d.URL, Namespace: d.Space})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	await := func(kind store.EventKind, part string) (found store.Event) {
		t.Helper()
		proctest.Await(t, patience, func() bool {
			events, err := s.Events(t.Context(), "", 100)
			require.NoError(t, err)
			for _, e := range events {
				if e.Kind == kind && strings.Contains(e.Subject+" "+e.Text, part) {
					found = e
					return true
				}
			}
			return false
		}, "the event %s", kind)
		return found
	}
	started := await(store.EventStarted, "1 worker processes with 2 threads each")
	require.Equal(t, "daemon", started.Via)
	require.NotEmpty(t, started.By)

	d.Push("mail", "Crash", 1)
	d.AwaitProcessed(1, patience)
	await(store.EventDied, "exit code 9")
	proctest.Await(t, patience, func() bool { return len(d.WorkerPIDs()) > 0 }, "the next worker process")
	require.NoError(t, syscall.Kill(d.WorkerPIDs()[0], syscall.SIGKILL))
	await(store.EventDied, "signal SIGKILL")

	d.Signal(syscall.SIGUSR2)
	await(store.EventPaused, "pause")
	d.Signal(syscall.SIGCONT)
	await(store.EventResumed, "resume")
	d.Signal(usr1)
	await(store.EventKilled, "continues")
	d.Configure("interval: nonsense\n")
	d.Signal(syscall.SIGHUP)
	await(store.EventRefused, "nonsense")
	d.Configure("handlers:\n  New: {command: ['true']}\n")
	d.Signal(syscall.SIGHUP)
	await(store.EventReloaded, "in force")

	d.Signal(quit)
	require.Zero(t, d.Exit())
	await(store.EventStopped, "drain") // before the process had ended
}

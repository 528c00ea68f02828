package system_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// bootStores is boot with the stores a, whose jobs the service watches, and b; the jobs of both note
// what they do in the namespace of a.
func bootStores(t *testing.T, dropIn string) (s *service, b *harness.Daemon) {
	t.Helper()
	s = boot(t, "", dropIn, map[string]string{"/etc/resqued/resqued.yaml": storesOf("a", "b")})
	return s, harness.Watch(t, s.jobs.Client, "systemd-b")
}

// storesOf is a configuration of the stores a and b, with these queues.
func storesOf(a, b string) string {
	return fmt.Sprintf("thread_count: 2\nstores:\n  a: {namespace: systemd, queues: [%s], worker_count: 1}\n  b: {namespace: systemd-b, queues: [%s], worker_count: 1}\n", a, b)
}

// masterOf returns the master of a store, by its number outside of the container; 0 for none.
func (s *service) masterOf(t *testing.T, store string) int {
	t.Helper()
	for _, p := range proctest.Children(s.hostPID(t)) {
		if strings.Contains(p.Title, "store "+store+" master:") {
			return p.PID
		}
	}
	return 0
}

// The shipped unit with a configuration of two stores.
func TestSystemdStores(t *testing.T) {
	t.Parallel()

	t.Run("start, reload and stop concern all stores", func(t *testing.T) {
		t.Parallel()
		s, b := bootStores(t, "")
		s.Systemctl("start", s.unit)
		require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
		proctest.Await(t, patience, func() bool {
			text := s.Property(s.unit, "StatusText")
			return strings.Contains(text, "a: running") && strings.Contains(text, "b: running")
		}, "the status")
		top, masters := s.MainPID(s.unit), []int{s.masterOf(t, "a"), s.masterOf(t, "b")}
		require.NotContains(t, masters, 0)
		s.jobs.Push("a", "Count", 1)
		b.Push("b", "Gate", 2)
		s.jobs.AwaitNoted("ran", 1)
		s.jobs.AwaitNoted("started", 1)

		config := s.Path("/etc/resqued/resqued.yaml")
		require.NoError(t, os.WriteFile(config, []byte(storesOf("a, more", "b, other")), 0o644))
		s.Systemctl("reload", s.unit)
		s.jobs.Push("more", "Count", 3)
		b.Push("other", "Count", 4)
		s.jobs.AwaitNoted("ran", 3)
		require.NoError(t, os.WriteFile(config, []byte(storesOf("a", "'!'")), 0o644))
		_, err := s.TryExec("systemctl", "reload", s.unit)
		require.Error(t, err, "people are told")
		require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
		require.Equal(t, top, s.MainPID(s.unit))
		require.Equal(t, masters, []int{s.masterOf(t, "a"), s.masterOf(t, "b")})

		s.Systemctl("stop", "--no-block", s.unit)
		proctest.Await(t, patience, func() bool { return strings.Contains(s.Property(s.unit, "StatusText"), "b: draining") }, "the status")
		require.Equal(t, "deactivating", s.Property(s.unit, "ActiveState"), "the job in hand of b is waited for")
		s.jobs.Open()
		s.leftNothing(t)
		require.Empty(t, b.Residue())
		require.Equal(t, "1", s.jobs.Noted("ran")["2"])
	})

	t.Run("the watchdog ends the master of one store that hangs, and the service goes on", func(t *testing.T) {
		t.Parallel()
		s, b := bootStores(t, "WatchdogSec=6s\nTimeoutAbortSec=6s\n")
		s.Systemctl("start", s.unit)
		top, before := s.MainPID(s.unit), s.masterOf(t, "b")
		require.NoError(t, syscall.Kill(before, syscall.SIGSTOP))
		s.jobs.Push("a", "Count", 1)
		s.jobs.AwaitNoted("ran", 1)
		proctest.Await(t, patience, func() bool { pid := s.masterOf(t, "b"); return pid != 0 && pid != before }, "another master of store b")
		b.Push("b", "Count", 2)
		s.jobs.AwaitNoted("ran", 2)
		require.Contains(t, s.Journal(s.unit), "the master of a store gives no sign of life: ending it")
		require.Equal(t, top, s.MainPID(s.unit))
		require.Equal(t, "0", s.Property(s.unit, "NRestarts"))
		s.Systemctl("stop", s.unit)
		b.ForgetMasters()
		s.leftNothing(t)
		require.Empty(t, b.Residue())
	})

	t.Run("the watchdog replaces all when the process above the masters hangs, and their jobs run again", func(t *testing.T) {
		t.Parallel()
		s, b := bootStores(t, "WatchdogSec=6s\nTimeoutAbortSec=6s\n")
		s.Systemctl("start", s.unit)
		b.Push("b", "Gate", 2)
		s.jobs.AwaitNoted("started", 1)
		top := s.hostPID(t)
		require.NoError(t, syscall.Kill(top, syscall.SIGSTOP))
		proctest.Await(t, patience, func() bool {
			return s.jobs.Noted("started")["2"] == "2" && s.Property(s.unit, "ActiveState") == "active"
		}, "the second run of the job")
		require.Equal(t, "1", s.Property(s.unit, "NRestarts"))
		s.jobs.Open()
		s.jobs.AwaitNoted("ran", 1)
		require.Empty(t, b.Failures())
		s.Systemctl("stop", s.unit)
		s.jobs.ForgetMasters()
		b.ForgetMasters()
		s.leftNothing(t)
	})
}

package system_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// service is the shipped unit in a real systemd, working Go handlers.
type service struct {
	*proctest.SystemdContainer
	unit string
	jobs *harness.Daemon
}

const containerSettings = `REDIS_URL=redis://127.0.0.1:6379/0
RESQUE_NAMESPACE=systemd
RESQUED_TEST_REDIS=redis://127.0.0.1:6379/0
RESQUED_TEST_SPACE=systemd
`

// boot starts a systemd with the shipped units and a Redis. It writes settings to the
// environment file and dropIn to the unit's drop-in.
func boot(t *testing.T, settings, dropIn string, files map[string]string) *service {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "resqued")
	program, err := os.ReadFile(harness.App(t))
	require.NoError(t, err)
	proctest.WriteProgram(t, binary, program)
	all := map[string]string{
		"/etc/resqued/resqued.yaml":                         "worker_count: 2\nthread_count: 2\nqueues: ['*']\n",
		"/etc/resqued/resqued.env":                          containerSettings + settings,
		"/etc/systemd/system/resqued.service.d/a-test.conf": "[Service]\nRestartSec=100ms\n" + dropIn,
	}
	maps.Copy(all, files)
	container := proctest.Boot(t, proctest.SystemdContainerOptions{
		Binary: binary,
		Units:  []string{"../../deploy/systemd/resqued.service", "../../deploy/systemd/resqued@.service", "../../deploy/systemd/resqued-web.service", "../../deploy/systemd/resqued-web.socket"},
		Files:  all,
		Redis:  true,
	})
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: container.RedisSocket(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return &service{SystemdContainer: container, unit: "resqued.service", jobs: harness.Watch(t, client, "systemd")}
}

func (s *service) await(t *testing.T, property, value string) {
	t.Helper()
	last := ""
	ok := proctest.Within(patience, func() bool {
		last = s.Property(s.unit, property)
		return last == value
	})
	require.True(t, ok, "%s is %q instead of %q\n%s", property, last, value, s.Journal(s.unit))
}

// leftNothing requires that the service has stopped normally.
func (s *service) leftNothing(t *testing.T) {
	t.Helper()
	s.await(t, "ActiveState", "inactive")
	require.Equal(t, "success", s.Property(s.unit, "Result"), s.Journal(s.unit))
	require.Empty(t, s.jobs.Residue())
}

func TestSystemd(t *testing.T) {
	t.Parallel()

	t.Run("start waits until jobs are worked, stop leaves nothing", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "RESQUED_LOG_JOBS=true\n", "", nil)
		s.Systemctl("start", s.unit)
		require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
		require.NotEmpty(t, s.Property(s.unit, "StatusText"))
		master := s.hostPID(t)
		proctest.Await(t, patience, func() bool { return len(proctest.Children(master)) == 2 }, "two worker processes")
		s.jobs.Push("mail", "Count", 1)
		s.jobs.AwaitNoted("ran", 1)
		proctest.Await(t, patience, func() bool {
			// Without -u: journald does not know the unit of a process that ended before its
			// entry was read.
			found, _ := s.TryExec("journalctl", "--no-pager", "-o", "cat", "RESQUED_CLASS=Count", "RESQUED_QUEUE=mail")
			return strings.Contains(found, "job started ") && strings.Contains(found, "job done ")
		}, "what the journal has of the class: %s", s.Journal(s.unit))
		s.Systemctl("stop", s.unit)
		s.leftNothing(t)
	})

	t.Run("stop waits for the job in hand, beyond TimeoutStopSec", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "TimeoutStopSec=5s\n", nil)
		s.Systemctl("start", s.unit)
		s.jobs.Push("mail", "Gate", 1)
		s.jobs.AwaitNoted("started", 1)
		s.Systemctl("stop", "--no-block", s.unit)
		proctest.Await(t, patience, func() bool { return strings.Contains(s.Property(s.unit, "StatusText"), "draining") }, "the status")
		require.False(t, proctest.Within(8*time.Second, func() bool { return s.Property(s.unit, "ActiveState") != "deactivating" }))
		s.jobs.Open()
		s.leftNothing(t)
		require.Equal(t, map[string]string{"1": "1"}, s.jobs.Noted("ran"))
	})

	t.Run("a changed password is waited for, and the status says so", func(t *testing.T) {
		t.Parallel()
		redistest.NeedsMajor(t, 6)
		s := boot(t, "", "", nil)
		s.Systemctl("start", s.unit)
		admin := s.jobs.Client
		require.NoError(t, admin.Do(t.Context(), "CONFIG", "SET", "requirepass", "other").Err())
		killer := redis.NewClient(&redis.Options{Network: "unix", Addr: s.RedisSocket(), Password: "other", MaxRetries: -1})
		require.NoError(t, killer.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
		require.NoError(t, killer.Close())
		proctest.Await(t, patience, func() bool {
			text := s.Property(s.unit, "StatusText")
			return strings.HasPrefix(text, "Redis refusing for ") && strings.Contains(text, ": NOAUTH ") && strings.Contains(text, "; running, ")
		}, "the status")
		require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
		require.Equal(t, "0", s.Property(s.unit, "NRestarts"))
		// A daemon started now ends, and is started again until it can work.
		_, err := s.TryExec("systemctl", "restart", s.unit)
		require.Error(t, err, "people are told")
		proctest.Await(t, patience, func() bool {
			n, _ := strconv.Atoi(s.Property(s.unit, "NRestarts"))
			return n > 15
		}, "more starts than systemd allows by default")
		mended := redis.NewClient(&redis.Options{Network: "unix", Addr: s.RedisSocket(), Password: "other", MaxRetries: -1})
		defer mended.Close() //nolint:errcheck // of a test
		require.NoError(t, mended.Do(t.Context(), "CONFIG", "SET", "requirepass", "").Err())
		s.await(t, "ActiveState", "active")
		s.jobs.Push("mail", "Count", 1)
		s.jobs.AwaitNoted("ran", 1)
		s.Systemctl("stop", s.unit)
		s.jobs.ForgetMasters()
		s.leftNothing(t)
	})

	t.Run("a stop in the middle of a start is not a failure", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "StartLimitBurst=1000\n", nil)
		for range 20 {
			s.Systemctl("start", "--no-block", s.unit)
			<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
			s.Systemctl("stop", s.unit)
			s.leftNothing(t)
		}
	})

	t.Run("a reload keeps the master and rolls the workers", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "", nil)
		s.Systemctl("start", s.unit)
		master := s.MainPID(s.unit)
		var old []int
		first := s.hostPID(t)
		proctest.Await(t, patience, func() bool { return len(proctest.Children(first)) == 2 }, "two worker processes")
		for _, p := range proctest.Children(first) {
			old = append(old, p.PID)
		}
		s.jobs.Push("mail", "Gate", 1)
		s.jobs.AwaitNoted("started", 1)
		s.Systemctl("reload", s.unit)
		s.jobs.Open()
		for _, pid := range old {
			proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of worker process %d", pid)
		}
		require.Equal(t, master, s.MainPID(s.unit))
		require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
		s.jobs.AwaitNoted("ran", 1)
		require.Empty(t, s.jobs.Failures())
		s.Systemctl("stop", s.unit)
		s.leftNothing(t)
	})

	t.Run("the watchdog replaces a master that hangs, and its job runs again", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "WatchdogSec=6s\nTimeoutAbortSec=6s\n", nil)
		s.Systemctl("start", s.unit)
		s.interruptJob(t, func() { s.Exec("kill", "-STOP", strconv.Itoa(s.MainPID(s.unit))) })
		require.Contains(t, s.Journal(s.unit), "goroutine") // what it was doing
	})

	t.Run("a master that is killed is started again, and its job runs again", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "", nil)
		s.Systemctl("start", s.unit)
		s.interruptJob(t, func() { s.Exec("kill", "-KILL", strconv.Itoa(s.MainPID(s.unit))) })
	})

	t.Run("a wrong configuration is not tried again", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "", map[string]string{"/etc/resqued/resqued.yaml": "worker_cuont: 2\n"})
		_, err := s.TryExec("systemctl", "start", s.unit)
		require.Error(t, err)
		require.Equal(t, "failed", s.Property(s.unit, "ActiveState"))
		require.Equal(t, "0", s.Property(s.unit, "NRestarts"))
		require.Contains(t, s.Journal(s.unit), "worker_count")
	})

	t.Run("the password of Redis may be a credential", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "", map[string]string{"/etc/credstore/resqued.redis-password": "s3cret\n"})
		// The handlers connect without a password, so this test runs no jobs.
		require.NoError(t, s.jobs.Client.ConfigSet(context.Background(), "requirepass", "s3cret").Err())
		s.Systemctl("start", s.unit)
		require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
		require.NotContains(t, s.Journal(s.unit), "s3cret")
		s.Systemctl("stop", s.unit)
		require.Equal(t, "success", s.Property(s.unit, "Result"), s.Journal(s.unit))
	})

	t.Run("each store has its service", func(t *testing.T) {
		t.Parallel()
		s := boot(t, "", "", map[string]string{
			"/etc/resqued/resqued.yaml": "stores:\n  mail: {namespace: systemd, queues: [mail]}\n  img: {namespace: systemd-img, queues: [img]}\n",
		})
		const mail, img = "resqued@mail.service", "resqued@img.service"
		s.Systemctl("start", mail, img)
		other := harness.Watch(t, s.jobs.Client, "systemd-img")
		s.jobs.Push("mail", "Count", 1)
		other.Push("img", "Count", 2)
		s.jobs.AwaitNoted("ran", 2)
		s.Systemctl("reload", img) // its own
		require.Contains(t, s.Journal(img), "rolling the worker processes")
		require.NotContains(t, s.Journal(mail), "rolling the worker processes")
		_, err := s.TryExec("systemctl", "start", s.unit)
		require.Error(t, err)
		require.Contains(t, s.Journal(s.unit), "/etc/resqued/resqued.yaml has several stores, and a daemon works one: name it with --store, one of mail, img")
		s.await(t, "ActiveState", "failed")
		s.Systemctl("stop", mail, img)
		require.Equal(t, "success", s.Property(img, "Result"), s.Journal(img))
		require.Empty(t, s.jobs.Residue())
		require.Empty(t, other.Residue())
	})
}

// hostPID returns the master's pid outside of the container.
func (s *service) hostPID(t *testing.T) int {
	t.Helper()
	inside := strconv.Itoa(s.MainPID(s.unit))
	found := proctest.Find(func(p proctest.Process) bool { return p.InnerPID() == inside && p.Descends(s.PID) })
	require.Len(t, found, 1)
	return found[0].PID
}

// interruptJob calls harm, which disturbs the master, while a job is in hand. systemd must
// start another master, which finishes the job.
func (s *service) interruptJob(t *testing.T, harm func()) {
	t.Helper()
	master := s.MainPID(s.unit)
	s.jobs.Push("mail", "Gate", 1)
	s.jobs.AwaitNoted("started", 1)
	began := time.Now()
	harm()
	proctest.Await(t, patience, func() bool {
		pid := s.MainPID(s.unit)
		return pid != 0 && pid != master && s.Property(s.unit, "ActiveState") == "active"
	}, "another master")
	require.Equal(t, "1", s.Property(s.unit, "NRestarts"))
	proctest.Await(t, patience, func() bool { return s.jobs.Noted("started")["1"] == "2" }, "the second run of the job")
	t.Logf("the job runs again after %s", time.Since(began).Round(time.Millisecond))
	s.jobs.Open()
	s.jobs.AwaitNoted("ran", 1)
	require.Empty(t, s.jobs.Failures())
	s.Systemctl("stop", s.unit)
	s.jobs.ForgetMasters()
	s.leftNothing(t)
}

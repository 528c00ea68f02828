package system_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// install replaces the service's program like installers do: by a rename.
func (s *service) install(t *testing.T, program string) {
	t.Helper()
	proctest.WriteProgram(t, s.Path("/usr/local/bin/resqued.new"), []byte(program))
	s.Exec("mv", "/usr/local/bin/resqued.new", "/usr/local/bin/resqued")
}

func (s *service) installNext(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(harness.NextApp(t))
	require.NoError(t, err)
	s.install(t, string(program))
}

// refuses requires that a reload fails and that the service continues unchanged.
func (s *service) refuses(t *testing.T, inJournal string) {
	t.Helper()
	main := s.MainPID(s.unit)
	out, err := s.TryExec("systemctl", "reload", s.unit)
	require.Error(t, err, out)
	require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
	require.Equal(t, main, s.MainPID(s.unit))
	require.Contains(t, s.Journal(s.unit), inJournal)
}

func TestSystemdUpgrade(t *testing.T) {
	t.Parallel()
	s := boot(t, "", "WatchdogSec=6s\n", nil)
	s.Systemctl("start", s.unit)
	first := s.MainPID(s.unit)
	s.jobs.Push("mail", "Gate", 1)
	s.jobs.AwaitNoted("started", 1)

	// A program that cannot work is refused, whatever is wrong with it.
	config := s.Path("/etc/resqued/resqued.yaml")
	good, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, []byte("worker_cuont: 2\n"), 0o644))
	s.refuses(t, "resqued: reload refused: worker_cuont")
	require.Contains(t, s.Property(s.unit, "StatusText"), "reload refused: ")
	s.installNext(t)
	s.refuses(t, "the new version is refused; this one continues")
	require.NoError(t, os.WriteFile(config, good, 0o644))
	s.install(t, "#!/bin/sh\necho a library is missing >&2\nexit 1\n")
	s.refuses(t, "a library is missing")
	s.install(t, "no program")
	s.refuses(t, "Failed at step EXEC")
	require.False(t, proctest.Within(0, func() bool { return s.jobs.Noted("ran")["1"] != "" }))

	// The next version takes over while the job runs.
	s.installNext(t)
	s.Systemctl("reload", s.unit)
	second := s.MainPID(s.unit)
	require.NotEqual(t, first, second)
	require.Equal(t, "active", s.Property(s.unit, "ActiveState"))
	s.jobs.Push("mail", "Count", harness.Range(2, 30)...)
	s.jobs.AwaitNoted("ran", 29)
	require.Empty(t, s.jobs.Noted("ran")["1"])
	require.True(t, s.isThere(first), "the old version has the job in hand")
	require.NotZero(t, s.worked(second), "the new version has worked nothing")
	s.jobs.Open()
	s.jobs.AwaitNoted("ran", 30)
	proctest.Await(t, patience, func() bool { return !s.isThere(first) }, "the end of the old version")

	// The service manager only gets messages from the new one, and keeps getting them.
	ping := s.Property(s.unit, "WatchdogTimestampMonotonic")
	proctest.Await(t, patience, func() bool { return s.Property(s.unit, "WatchdogTimestampMonotonic") != ping }, "a sign of life")
	require.Equal(t, second, s.MainPID(s.unit))
	require.Equal(t, "0", s.Property(s.unit, "NRestarts"))
	s.await(t, "SubState", "running")
	proctest.Await(t, patience, func() bool {
		return strings.HasPrefix(s.Property(s.unit, "StatusText"), "running, 2 workers, 0/4 busy")
	}, "the status")
	require.NotContains(t, s.Journal(s.unit), "reception only permitted")

	// By hand, from outside the sandbox.
	require.Contains(t, s.Exec("resqued", "reload"), "the new configuration is in force")
	require.Contains(t, s.Exec("resqued", "upgrade", strconv.Itoa(second)), "is in charge")
	proctest.Await(t, patience, func() bool { return !s.isThere(second) }, "the end of the second version")

	// A stop also waits for jobs of the old version.
	s.jobs.Shut()
	s.jobs.Push("mail", "Gate", 31)
	s.jobs.AwaitNoted("started", 2)
	third := s.MainPID(s.unit)
	s.Exec("resqued", "upgrade")
	s.Systemctl("stop", "--no-block", s.unit)
	proctest.Await(t, patience, func() bool { return strings.Contains(s.Property(s.unit, "StatusText"), "draining") }, "the status")
	require.True(t, s.isThere(third))
	s.jobs.Open()
	s.jobs.AwaitNoted("ran", 31)
	for id, times := range s.jobs.Noted("ran") {
		require.Equal(t, "1", times, "job %s", id)
	}
	require.Empty(t, s.jobs.Failures())
	s.leftNothing(t)
	require.Equal(t, "0", s.Property(s.unit, "NRestarts"))
}

// worked counts the jobs that worker processes of a master have ended.
func (s *service) worked(pid int) int {
	n := 0
	for name, jobs := range s.jobs.Noted("ran-by") {
		if strings.Contains(name, ":"+strconv.Itoa(pid)+"-") {
			count, _ := strconv.Atoi(jobs)
			n += count
		}
	}
	return n
}

// isThere reports whether a process of the container lives, by its pid there.
func (s *service) isThere(pid int) bool {
	_, err := os.Stat(filepath.Join(s.Path("/proc"), strconv.Itoa(pid)))
	return err == nil
}

// pace measures how fast jobs end.
type pace struct {
	stop, done chan struct{}
	longest    time.Duration
	jobs       int64
}

// watchPace reads the number of ended jobs about every millisecond.
func watchPace(s *service) *pace {
	p := &pace{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		last, before := time.Now(), int64(-1)
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(time.Millisecond):
			}
			n := s.jobs.Client.HLen(context.Background(), s.jobs.Key("test:ran")).Val()
			if n > before {
				if before >= 0 {
					p.longest = max(p.longest, time.Since(last))
					p.jobs += n - before
				}
				last, before = time.Now(), n
			}
		}
	}()
	return p
}

func (p *pace) end() (longest time.Duration, jobs int64) {
	close(p.stop)
	<-p.done
	return p.longest, p.jobs
}

// TestSystemdUpgradeFigures prints what docs/systemd.md says about deploys under load.
func TestSystemdUpgradeFigures(t *testing.T) {
	t.Parallel()
	if !harness.Full() {
		t.Skip("figures take a minute: set RESQUED_TEST_FULL=1")
	}
	const deploys, each, long = 3, 8 * time.Second, 20_000
	s := boot(t, "", "", map[string]string{
		"/etc/resqued/resqued.yaml": "worker_count: 2\nthread_count: 4\njobs_per_fork: 0\nqueues: [long, mail]\n",
	})
	s.Systemctl("start", s.unit)

	// Some hundred jobs a second, to leave processor time.
	feeding, fed, pushed := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(fed)
		for {
			select {
			case <-feeding:
				return
			case <-time.After(10 * time.Millisecond):
			}
			s.jobs.Push("mail", "Count", harness.Range(pushed+1, pushed+5)...)
			pushed += 5
		}
	}()
	s.jobs.AwaitNoted("ran", 1000)

	calm := watchPace(s)
	<-time.After(deploys * each)
	gap, jobs := calm.end()
	t.Logf("without a deploy: %d jobs in %s, longest time without a finished one %s", jobs, deploys*each, gap.Round(time.Millisecond))

	busy := watchPace(s)
	for n := range deploys {
		id := 1_000_000 + n
		s.jobs.PushRaw("long", fmt.Sprintf(`{"class":"Sleep","args":[%d,%d]}`, id, long))
		s.jobs.AwaitNoted("started", n+1)
		s.installNext(t)
		began := time.Now()
		s.Systemctl("reload", s.unit)
		verdict := time.Since(began)
		main := s.MainPID(s.unit)
		proctest.Await(t, patience, func() bool { return s.worked(main) > 0 }, "a job of the new version")
		first := time.Since(began)
		proctest.Await(t, patience, func() bool {
			return strings.Contains(s.Property(s.unit, "StatusText"), "finishes its jobs")
		}, "all slots")
		t.Logf("deploy %d: reload returned after %s, a job of the new version was seen after %s, all slots taken over after %s",
			n+1, verdict.Round(time.Millisecond), first.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		<-time.After(max(0, each-time.Since(began)))
	}
	gap, jobs = busy.end()
	t.Logf("with %d deploys, a job of 20 s in hand at each: %d jobs in %s, longest time without a finished one %s", deploys, jobs, deploys*each, gap.Round(time.Millisecond))

	close(feeding)
	<-fed
	s.jobs.AwaitNoted("ran", pushed+deploys)
	repeated := 0
	for _, times := range s.jobs.Noted("ran") {
		if times != "1" {
			repeated++
		}
	}
	t.Logf("%d jobs, lost 0, repeated %d, failed %d", pushed+deploys, repeated, len(s.jobs.Failures()))
	require.Zero(t, repeated)
	require.Empty(t, s.jobs.Failures())
	s.Systemctl("stop", s.unit)
	s.leftNothing(t)
}

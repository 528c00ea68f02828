package system_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// The log messages about jobs that are taken from a process known to be dead, from a process
// that was silent for a whole lease, and about jobs that are left until the lease expires.
const (
	recoveredAtOnce  = "its process and its master are gone"
	recoveredLate    = "its lease was past"
	leftToTheirLease = "run again when its lease has ended"
)

// rounds waits until each of the masters has looked at least n times for jobs that others have
// left. Masters renew their entries at the beginning of each look.
func rounds(t *testing.T, d *harness.Daemon, masters, n int) {
	t.Helper()
	type entry struct {
		ttl   time.Duration
		looks int
	}
	seen := map[string]entry{}
	proctest.Await(t, 2*patience, func() bool {
		done := 0
		for _, id := range d.Client.SMembers(t.Context(), d.Key("resqued:masters")).Val() {
			e, known := seen[id]
			ttl := d.Client.PTTL(t.Context(), d.Key("resqued:master:"+id)).Val()
			if known && ttl > e.ttl {
				e.looks++
			}
			e.ttl = ttl
			seen[id] = e
			if e.looks > n { // the last one may be under way
				done++
			}
		}
		return done >= masters
	}, "%d rounds of %d masters", n, masters)
}

// undisturbed requires that each job was started once and that none was recovered.
func undisturbed(t *testing.T, d *harness.Daemon, log string, jobs int) {
	t.Helper()
	want := map[string]string{}
	for id := 1; id <= jobs; id++ {
		want[strconv.Itoa(id)] = "1"
	}
	require.Equal(t, want, d.Noted("started"), log)
	require.NotContains(t, log, "recovered the jobs")
	require.NotContains(t, log, "fenced")
}

// ownFiles has each instance of the template read a file of its own, as docs/systemd.md says.
const ownFiles = "[Service]\nExecStart=\nExecStart=/usr/local/bin/resqued work --config /etc/resqued/%i.yaml\n"

func TestNeighboursUnderSystemd(t *testing.T) {
	t.Parallel()
	// A container with instances of 2 processes of 3 threads each.
	host := func(t *testing.T, queues map[string]string) *service {
		t.Helper()
		files := map[string]string{
			"/etc/systemd/system/resqued@.service.d/a-test.conf": ownFiles + "RestartSec=100ms\n",
		}
		for name, queue := range queues {
			files["/etc/resqued/"+name+".yaml"] = "worker_count: 2\nthread_count: 3\njobs_per_fork: 0\nqueues: [" + queue + "]\n"
		}
		return boot(t, "", "", files)
	}
	// both starts one instance, gives it jobs, then starts the other and gives it jobs.
	both := func(t *testing.T, s *service, one, other string, otherQueue string) {
		t.Helper()
		s.Systemctl("start", one)
		s.jobs.Push("mail", "Gate", harness.Range(1, 6)...)
		s.jobs.AwaitNoted("started", 6)
		s.Systemctl("start", other)
		s.jobs.Push(otherQueue, "Gate", harness.Range(7, 12)...)
		s.jobs.AwaitNoted("started", 12)
	}
	journals := func(s *service, units ...string) string {
		var b strings.Builder
		for _, unit := range units {
			b.WriteString(s.Journal(unit))
		}
		return b.String()
	}
	finish := func(t *testing.T, s *service, jobs int, units ...string) {
		t.Helper()
		s.jobs.Open()
		s.jobs.AwaitNoted("ran", jobs)
		s.Systemctl(append([]string{"stop"}, units...)...)
		for _, unit := range units {
			require.Equal(t, "success", s.Property(unit, "Result"), s.Journal(unit))
		}
		require.Empty(t, s.jobs.Failures())
		require.Empty(t, s.jobs.Residue())
	}

	for _, c := range []struct{ name, one, other string }{
		{"two instances", "resqued@mail.service", "resqued@img.service"},
		{"an instance beside resqued.service", "resqued@mail.service", "resqued.service"},
	} {
		t.Run(c.name+" leave each other's jobs alone", func(t *testing.T) {
			t.Parallel()
			s := host(t, map[string]string{"mail": "mail", "img": "img", "resqued": "img"})
			both(t, s, c.one, c.other, "img")
			rounds(t, s.jobs, 2, 2)
			undisturbed(t, s.jobs, journals(s, c.one, c.other), 12)
			finish(t, s, 12, c.one, c.other)
			undisturbed(t, s.jobs, journals(s, c.one, c.other), 12)
		})
	}

	t.Run("a lock keeps jobs apart that two instances have on one queue", func(t *testing.T) {
		t.Parallel()
		s := host(t, map[string]string{"mail": "mail", "img": "mail"})
		units := []string{"resqued@mail.service", "resqued@img.service"}
		s.Systemctl(append([]string{"start"}, units...)...)
		const jobs = 3
		for id := 1; id <= jobs; id++ {
			s.jobs.PushRaw("mail", fmt.Sprintf(`{"class":"Gate","args":[%d]}`, id))
		}
		s.jobs.AwaitNoted("started", jobs)
		twins := fmt.Sprintf(`{"class":"Gate","args":[%d]}`, 1)
		s.jobs.PushRaw("mail", twins, twins) // with one lock, and with the first job's
		rounds(t, s.jobs, 2, 2)
		undisturbed(t, s.jobs, journals(s, units...), jobs)
		s.jobs.Open()
		proctest.Await(t, patience, func() bool { return s.jobs.Noted("ran")["1"] == "3" }, "the jobs that had to wait")
		finish(t, s, jobs, units...)
		require.Equal(t, map[string]string{"1": "3", "2": "1", "3": "1"}, s.jobs.Noted("started"))
	})

	t.Run("one that is killed as a whole recovers its jobs at once, and none of the other", func(t *testing.T) {
		t.Parallel()
		s := host(t, map[string]string{"mail": "mail", "img": "img"})
		const one, other = "resqued@mail.service", "resqued@img.service"
		both(t, s, one, other, "img")
		s.Systemctl("kill", "--kill-whom=all", "-s", "KILL", one)
		again := func() int {
			n := 0
			for id := 1; id <= 6; id++ {
				if s.jobs.Noted("started")[strconv.Itoa(id)] == "2" {
					n++
				}
			}
			return n
		}
		proctest.Await(t, patience, func() bool { return again() == 6 }, "the second runs")
		rounds(t, s.jobs, 2, 2)
		log := journals(s, one, other)
		require.Contains(t, log, recoveredAtOnce)
		require.NotContains(t, log, recoveredLate)
		for id := 1; id <= 12; id++ {
			want := "2"
			if id > 6 {
				want = "1"
			}
			require.Equal(t, want, s.jobs.Noted("started")[strconv.Itoa(id)], log)
		}
		s.jobs.ForgetMasters()
		finish(t, s, 12, one, other)
	})

	t.Run("what a command has left in the control group holds its job back", func(t *testing.T) {
		t.Parallel()
		const unit = "resqued@mail.service"
		s := boot(t, "", "", map[string]string{
			"/etc/systemd/system/resqued@.service.d/a-test.conf": ownFiles + "RestartSec=100ms\nKillMode=process\n",
			"/etc/resqued/mail.yaml":                             "queues: [mail]\nworker_count: 1\nhandlers:\n  Leaving:\n    command: [sh, -c, 'setsid sleep 1001 & exec sleep 1002']\n",
		})
		s.Systemctl("start", unit)
		inContainer := func(title string) []proctest.Process {
			return proctest.Find(func(p proctest.Process) bool { return strings.HasPrefix(p.Title, title) && p.Descends(s.PID) })
		}
		kill := func(processes []proctest.Process) {
			for _, p := range processes { // a worker process may have followed its master
				if err := syscall.Kill(p.PID, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
					require.NoError(t, err)
				}
			}
		}
		s.jobs.PushRaw("mail", `{"class":"Leaving","args":[1]}`)
		proctest.Await(t, patience, func() bool { return len(inContainer("sleep 1001")) == 1 && len(inContainer("sleep 1002")) == 1 }, "the command")
		left, first := inContainer("sleep 1001"), inContainer("sleep 1002")[0].PID
		kill(slices.Concat(inContainer("resqued (resque-3): master"), inContainer("resqued (resque-3): worker"))) // the worker process would wait for the command
		proctest.Await(t, patience, func() bool { return strings.Contains(s.Journal(unit), leftToTheirLease) }, "a master that leaves the job")
		require.NotContains(t, s.Journal(unit), "recovered the jobs")
		require.True(t, proctest.Alive(left[0].PID))
		kill(left)
		proctest.Await(t, patience, func() bool {
			again := inContainer("sleep 1002")
			return len(again) == 1 && again[0].PID != first
		}, "the second run")
		require.Contains(t, s.Journal(unit), "recovered the jobs")
		s.jobs.ForgetMasters()
		s.Systemctl("kill", "--kill-whom=main", "-s", "TERM", unit)
		proctest.Await(t, patience, func() bool { return len(s.jobs.Failures()) == 1 }, "the end of the job")
	})

	t.Run("jobs of one that has gone for good are recovered at once by the other", func(t *testing.T) {
		t.Parallel()
		s := host(t, map[string]string{"mail": "mail", "img": "'*'"})
		const one, other = "resqued@mail.service", "resqued@img.service"
		s.Systemctl("start", one)
		s.jobs.Push("mail", "Gate", harness.Range(1, 6)...)
		s.jobs.AwaitNoted("started", 6)
		s.Systemctl("start", other)
		require.NoError(t, os.WriteFile(s.Path("/etc/systemd/system/resqued@.service.d/b-test.conf"), []byte("[Service]\nRestart=no\n"), 0o644))
		s.Systemctl("daemon-reload")
		s.Systemctl("kill", "--kill-whom=all", "-s", "KILL", one)
		proctest.Await(t, patience, func() bool { return ranTwice(s.jobs) == 6 }, "the second runs")
		require.Contains(t, s.Journal(other), recoveredAtOnce)
		require.NotContains(t, s.Journal(other), recoveredLate)
		s.jobs.Open()
		s.jobs.AwaitNoted("ran", 6)
		s.jobs.ForgetMasters()
		s.Systemctl("stop", other)
		require.Empty(t, s.jobs.Failures())
		require.Empty(t, s.jobs.Residue())
	})
}

// hidden returns a command prefix for a daemon of a user of its own, from which /proc hides all
// other users' processes.
func hidden(uid int) []string {
	script := fmt.Sprintf(`mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=%d --regid=%d --clear-groups "$@"`, uid, uid)
	return []string{"unshare", "--mount", "sh", "-ec", script, "sh"}
}

// needsNamespaces skips the test where namespaces cannot be created.
func needsNamespaces(t *testing.T, flags ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("daemons of several users, and namespaces, need root")
	}
	argv := append(flags, "sh", "-ec", "mount -t proc -o hidepid=2 proc /proc; setpriv --reuid=1 --regid=1 --clear-groups true")
	if out, err := exec.Command("unshare", argv...).CombinedOutput(); err != nil {
		t.Skipf("unshare %s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

func TestNeighboursOfOtherUsers(t *testing.T) {
	t.Parallel()
	needsNamespaces(t, "--mount")
	of := func(uid int, queue string) harness.Options {
		return harness.Options{App: true, Workers: 2, Threads: 2, Queues: queue, Under: hidden(uid), User: uid}
	}
	const anna, bert = 54321, 54322

	t.Run("leave each other's jobs alone", func(t *testing.T) {
		t.Parallel()
		one := harness.Start(t, of(anna, "mail"))
		one.Push("mail", "Gate", 1, 2, 3, 4)
		one.AwaitNoted("started", 4)
		o := of(bert, "img")
		o.Namespace = one.Space
		two := harness.Start(t, o)
		two.Push("img", "Gate", 5, 6, 7, 8)
		two.AwaitNoted("started", 8)
		rounds(t, one, 2, 2)
		undisturbed(t, one, one.Log()+two.Log(), 8)
		one.Open()
		one.AwaitNoted("ran", 8)
		for _, d := range []*harness.Daemon{one, two} {
			d.Signal(quit)
			require.Zero(t, d.Exit())
		}
		undisturbed(t, one, one.Log()+two.Log(), 8)
		require.Empty(t, one.Failures())
		require.Empty(t, one.Residue())
	})

	t.Run("a dead daemon is its own user's to recover", func(t *testing.T) {
		t.Parallel()
		one := harness.Start(t, of(anna, "mail"))
		o := of(bert, "img")
		o.Namespace = one.Space
		two := harness.Start(t, o)
		one.Push("mail", "Gate", 1, 2, 3, 4)
		one.AwaitNoted("started", 4)
		one.KillTree()
		one.ForgetMasters()
		two.ForgetMasters()
		two.AwaitLog(leftToTheirLease)
		require.NotContains(t, two.Log(), "recovered the jobs")
		o = of(anna, "mail")
		o.Namespace = one.Space
		next := harness.Start(t, o)
		next.ForgetMasters()
		proctest.Await(t, patience, func() bool { return ranTwice(next) == 4 }, "the second runs")
		require.Contains(t, next.Log(), recoveredAtOnce)
		require.NotContains(t, next.Log(), recoveredLate)
		next.Open()
		next.AwaitNoted("ran", 4)
		for _, d := range []*harness.Daemon{next, two} {
			d.Signal(quit)
			require.Zero(t, d.Exit())
		}
		require.Empty(t, one.Failures())
		require.Empty(t, one.Residue())
	})
}

// TestNeighboursInContainers checks containers. Those without a network of their own have their
// host's name, and all have its boot id. In each the master is process 1.
func TestNeighboursInContainers(t *testing.T) {
	t.Parallel()
	needsNamespaces(t, "--mount", "--pid", "--fork")
	container := func(space, queue string, flags ...string) harness.Options {
		under := append([]string{"unshare", "--pid", "--fork", "--kill-child"}, flags...)
		return harness.Options{App: true, Workers: 2, Threads: 2, Queues: queue, Under: under, Namespace: space}
	}

	t.Run("leave each other's jobs alone", func(t *testing.T) {
		t.Parallel()
		one := harness.Start(t, container("", "mail", "--mount-proc"))
		one.Push("mail", "Gate", 1, 2, 3, 4)
		one.AwaitNoted("started", 4)
		two := harness.Start(t, container(one.Space, "img", "--mount-proc"))
		two.Push("img", "Gate", 5, 6, 7, 8)
		two.AwaitNoted("started", 8)
		host := harness.Start(t, harness.Options{App: true, Queues: "other", Namespace: one.Space})
		rounds(t, one, 3, 2)
		undisturbed(t, one, one.Log()+two.Log()+host.Log(), 8)
		one.Open()
		one.AwaitNoted("ran", 8)
		require.Empty(t, one.Failures())
	})

	t.Run("one alone keeps the schedules that are shared with Ruby", func(t *testing.T) {
		t.Parallel()
		o := container("", "mail", "--mount-proc")
		o.Config = "scheduler_lock: resque-scheduler\nschedule:\n  one: {every: 1s, class: Count, args: [1], queue: mail}\n"
		one := harness.Start(t, o)
		one.AwaitNoted("ran", 1)
		o.Namespace = one.Space
		two := harness.Start(t, o)
		two.AwaitLog("another scheduler is in charge")
	})

	t.Run("a daemon that sees another container's processes in /proc does not start", func(t *testing.T) {
		t.Parallel()
		o := container("", "mail") // with the /proc of the host
		o.Unready = true
		d := harness.Start(t, o)
		require.Equal(t, 1, d.Exit())
		d.AwaitLog("/proc is that of another PID namespace")
	})
}

// TestNeighboursWhoseNumberIsUsedAgain checks that a process of another user is not taken for
// dead because it has the pid of a dead one.
func TestNeighboursWhoseNumberIsUsedAgain(t *testing.T) {
	t.Parallel()
	needsNamespaces(t, "--mount")
	d := harness.Start(t, harness.Options{App: true, Under: hidden(54321), User: 54321})
	stranger := exec.Command("sleep", "1000")
	require.NoError(t, stranger.Start())
	t.Cleanup(func() {
		_ = stranger.Process.Signal(syscall.SIGKILL)
		_ = stranger.Wait()
	})
	// The entries of a master of this user whose pid now belongs to a process that it cannot
	// see.
	ids := d.Client.SMembers(t.Context(), d.Key("resqued:masters")).Val()
	require.Len(t, ids, 1)
	place := ids[0][:strings.LastIndexByte(ids[0], ':')]
	lives := fmt.Sprintf("%s:%d-1:0.0", place, stranger.Process.Pid)
	later := float64(time.Now().Add(time.Hour).UnixMilli())
	record := func(name string, pid int) {
		t.Helper()
		info := d.Client.HGetAll(t.Context(), d.Key("resqued:proc:"+ids[0]+":0.0")).Val()
		require.NotEmpty(t, info["view"])
		require.NoError(t, d.Client.HSet(t.Context(), d.Key("resqued:proc:"+name), "pid", pid, "start", 1, "view", info["view"]).Err())
		require.NoError(t, d.Client.ZAdd(t.Context(), d.Key("resqued:procs"), redis.Z{Score: later, Member: name}).Err())
		require.NoError(t, d.Client.SAdd(t.Context(), d.Key("resqued:place:"+place), name).Err())
	}
	const unusedPID = 1<<22 + 1 // beyond every pid
	record(lives, unusedPID)
	drains := fmt.Sprintf("%s:%d-1:0.0", place, unusedPID)
	record(drains, stranger.Process.Pid)
	gone := fmt.Sprintf("%s:%d-1:1.1", place, unusedPID)
	record(gone, unusedPID)
	proctest.Await(t, patience, func() bool {
		return errors.Is(d.Client.ZScore(t.Context(), d.Key("resqued:procs"), gone).Err(), redis.Nil)
	}, "the recovery of one that is gone for certain")
	rounds(t, d, 1, 2)
	for _, name := range []string{lives, drains} {
		require.NotZero(t, d.Client.ZScore(t.Context(), d.Key("resqued:procs"), name).Val(), d.Log())
		require.NoError(t, d.Client.ZRem(t.Context(), d.Key("resqued:procs"), name).Err())
	}
	d.Signal(quit)
	require.Zero(t, d.Exit())
}

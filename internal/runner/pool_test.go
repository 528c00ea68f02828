//go:build linux

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// fixture is a pool of the test binary.
type fixture struct {
	*Pool
	dir  string
	logs *observer.ObservedLogs
}

// ways are how processes start, and how many jobs each performs.
var ways = []struct {
	name   string
	fork   bool
	number int
}{{"started", false, 1}, {"forked", true, 1}, {"several", false, 4}, {"several forked", true, 4}}

// setup opens a pool of one process. how is what goes wrong when it boots.
func setup(t testing.TB, fork bool, concurrency int, how string, change ...func(*Options)) *fixture {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		testlevel.Integration(test)
	}
	core, logs := observer.New(zap.DebugLevel)
	if how == "" {
		how = "well"
	}
	o := Options{
		Name: "app", Argv: []string{"/proc/self/exe", "-test.run=^$"}, Env: []string{"RUNNER_TEST=" + how}, Environ: os.Environ(),
		Threads: concurrency, Concurrency: concurrency, BootTimeout: soon, KillAfter: soon, Log: zap.New(core),
		Proc: "web-1:boot:1-2:" + strings.ReplaceAll(t.Name(), " ", "_"), backOffFrom: time.Millisecond, patience: soon,
	}
	if fork {
		o.Requests = template(t, how)
	}
	for _, c := range change {
		c(&o)
	}
	p, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return &fixture{Pool: p, dir: t.TempDir(), logs: logs}
}

func job(class string, args ...string) *resqued.Job {
	list, _ := json.Marshal(args)
	return &resqued.Job{ID: "j1", Class: class, Queue: "q", Attempt: 1, Payload: []byte(`{"class":"` + class + `","args":` + string(list) + `}`)}
}

func (f *fixture) run(ctx context.Context, class string, args ...string) error {
	j := job(class, args...)
	return f.Perform(jobctx.WithJob(ctx, j), j, 0, nil)
}

// pid returns the process that performs a job.
func (f *fixture) pid(t *testing.T) int {
	t.Helper()
	var failed *JobError
	require.ErrorAs(t, f.run(t.Context(), "Pid"), &failed)
	pid, err := strconv.Atoi(failed.Error())
	require.NoError(t, err)
	return pid
}

// read returns the number in a file that a job writes.
func (f *fixture) read(t *testing.T, name string) int {
	t.Helper()
	pid := 0
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(f.dir, name))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid != 0
	}, soon, time.Millisecond)
	return pid
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

// exists reports whether a process runs; the template may take a moment to reap it.
func exists(pid int) bool {
	st, err := procfs.ReadStat(pid)
	return err == nil && !st.Dead()
}

// changes waits until another process performs jobs. Until the old one is known to be broken, a
// job given to it may be lost.
func (f *fixture) changes(t *testing.T, from int) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := f.run(t.Context(), "Pid")
		failed, ok := errors.AsType[*JobError](err)
		return ok && failed.Error() != strconv.Itoa(from)
	}, soon, time.Millisecond)
}

func each(t *testing.T, fn func(t *testing.T, fork bool, concurrency int)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			fn(t, w.fork, w.number)
		})
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "")
		ctx := t.Context()
		for range 20 {
			require.NoError(t, f.run(ctx, "Echo"))
		}
		pid := f.pid(t)

		interrupted := job("Interrupted")
		require.NoError(t, f.Perform(jobctx.WithJob(ctx, interrupted), interrupted, 0, nil))
		require.True(t, jobctx.RunOf(interrupted).Interrupted)

		err := f.run(ctx, "Fails")
		var failed *JobError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "Net::ReadTimeout", failed.Exception())
		require.Equal(t, "too\nslow\\a", failed.Error())
		require.Equal(t, []string{"a.rb:1", "b.rb:2"}, failed.Backtrace())

		var again *resqued.RequeueError
		require.ErrorAs(t, f.run(ctx, "Requeues"), &again)
		require.Equal(t, 2500*time.Millisecond, again.After)

		err = f.run(ctx, "Discards")
		require.ErrorIs(t, err, resqued.Discard)
		require.ErrorContains(t, err, "no such user")

		require.NoError(t, f.run(ctx, "Floods"))
		require.NoError(t, f.run(ctx, "Stderr"))
		require.NoError(t, f.run(ctx, "Unknown"))
		require.Equal(t, pid, f.pid(t), "all in the same process")
		list, trouble := f.Info()
		require.Empty(t, trouble)
		require.Len(t, list, 1)
		require.Equal(t, pid, list[0].PID)
		require.Equal(t, fork, list[0].Forked)
		require.Equal(t, n, list[0].Slots)
	})
}

// If the process goes with its job, that is a death.
func TestDeaths(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{
		"Kill": "", "Exits": "", "Closes": "process", "Wrong": "names a job that it does not have",
		"Hello": "is a second hello", "Junk": "is not a JSON object", "Long": "is longer than",
	} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, fork bool, n int) {
				f := setup(t, fork, n, "")
				pid := f.pid(t)
				err := f.run(t.Context(), class)
				var death *jobctx.DeathError
				require.ErrorAs(t, err, &death)
				require.Equal(t, n > 1, death.Shared)
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, strconv.Itoa(pid))
				if class == "Exits" && !fork {
					require.ErrorContains(t, err, "exited with code 7: goodbye")
				}
				if class == "Kill" {
					require.ErrorContains(t, err, "last words")
				}
				f.changes(t, pid)
			})
		})
	}
}

// A process that ends between jobs is replaced, and costs no job.
func TestEndsBetweenJobs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "")
		for range 5 {
			pid := f.pid(t)
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
			if err := f.run(t.Context(), "Echo"); err != nil {
				var death *jobctx.DeathError // it had read the job already
				require.ErrorAs(t, err, &death)
			}
			f.changes(t, pid)
		}
	})
}

func TestAnswersTwice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "", func(o *Options) { o.tick = time.Millisecond })
		pid := f.pid(t)
		require.NoError(t, f.run(t.Context(), "Twice"))
		f.changes(t, pid)
		require.Equal(t, 1, f.logs.FilterMessageSnippet("broke the protocol").Len())
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, cause := range []struct {
		err  error
		word string
	}{{resqued.ErrKilled, "killed"}, {resqued.ErrTimeout, "timeout"}, {resqued.ErrLockLost, "lock_lost"}} {
		t.Run(cause.word, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, fork bool, n int) {
				f := setup(t, fork, n, "")
				pid := f.pid(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.run(ctx, "Waits", f.path("never"), f.path("began")) }()
				f.read(t, "began")
				cancel(cause.err)
				var failed *JobError
				require.ErrorAs(t, <-done, &failed)
				require.Equal(t, "Resque::TermException", failed.Exception())
				require.Equal(t, cause.word, failed.Error())
				if n == 1 {
					require.False(t, exists(pid), "it has left")
				}
				f.changes(t, pid)
			})
		})
	}

	t.Run("one that ignores it is killed with what it has started", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, fork bool, n int) {
			f := setup(t, fork, n, "", func(o *Options) { o.KillAfter = 50 * time.Millisecond })
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- f.run(ctx, "Leaves", f.path("pid"), "hang") }()
			pid := f.read(t, "pid")
			cancel(resqued.ErrKilled)
			err := <-done
			var death *jobctx.DeathError
			require.False(t, errors.As(err, &death))
			require.ErrorContains(t, err, "did not end within 50ms")
			require.False(t, exists(pid))
		})
	})

	t.Run("one that finishes all the same has", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, fork bool, n int) {
			f := setup(t, fork, n, "")
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- f.run(ctx, "Finishes", f.path("began")) }()
			f.read(t, "began")
			cancel(resqued.ErrKilled)
			require.NoError(t, <-done)
		})
	})
}

// A job's descendants live as long as its process, and no longer.
func TestLeavesBehind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "")
		require.NoError(t, f.run(t.Context(), "Leaves", f.path("pid")))
		left := f.read(t, "pid")
		require.True(t, exists(left))
		require.Error(t, f.run(t.Context(), "Leaves", f.path("other"), "die"))
		require.False(t, exists(f.read(t, "other")))
		require.False(t, exists(left))
	})
}

func TestRecycling(t *testing.T) {
	t.Parallel()
	t.Run("after a number of jobs", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, fork bool, n int) {
			f := setup(t, fork, n, "", func(o *Options) { o.JobsPerRunner = 3 })
			pids := map[int]int{}
			for range 30 {
				pids[f.pid(t)]++
			}
			require.GreaterOrEqual(t, len(pids), 10)
			for pid, jobs := range pids {
				require.LessOrEqual(t, jobs, 3, pid)
			}
		})
	})
	for name, change := range map[string]func(*Options){
		"by age": func(o *Options) { o.MaxAge = time.Millisecond }, "by memory": func(o *Options) { o.MaxRSS = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, fork bool, n int) {
				f := setup(t, fork, n, "", change, func(o *Options) { o.tick = time.Millisecond })
				pid := f.pid(t)
				f.changes(t, pid)
				require.Eventually(t, func() bool { return !exists(pid) }, soon, time.Millisecond)
			})
		})
	}
}

func TestBoot(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"dies": "exited with code 3", "junk": "is not a JSON object", "version": "speaks version 2", "hangs": "has said nothing for",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := setup(t, false, 1, how, func(o *Options) {
				o.patience = 500 * time.Millisecond
				if how == "hangs" { // the others may take their time to start
					o.BootTimeout = 200 * time.Millisecond
				}
			})
			err := f.run(t.Context(), "Echo")
			var again *resqued.RequeueError
			require.ErrorAs(t, err, &again)
			require.ErrorContains(t, err, "runner app has no process for the job")
			require.Eventually(t, func() bool {
				_, trouble := f.Info()
				return strings.Contains(trouble, want)
			}, soon, time.Millisecond)
			require.Zero(t, f.Slots())
			if how == "dies" {
				lines := func() *observer.ObservedLogs { return f.logs.FilterMessage("runner output") }
				require.Eventually(t, func() bool { return lines().Len() > 1 }, soon, time.Millisecond, "it is started again")
				require.Equal(t, 1, lines().FilterLevelExact(zap.InfoLevel).Len(), "the error says it for the others")
			}
		})
	}
	t.Run("slowly", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, fork bool, n int) {
			f := setup(t, fork, n, "slow")
			require.NoError(t, f.run(t.Context(), "Echo"))
		})
	})
	t.Run("too slowly for the job", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, fork bool, n int) {
			f := setup(t, fork, n, "hangs", func(o *Options) { o.patience = time.Hour })
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			j := job("Echo")
			j.Deadline = time.Now().Add(time.Second) // of which it would have nothing left
			var again *resqued.RequeueError
			require.ErrorAs(t, f.Perform(ctx, j, 0, nil), &again)
		})
	})
	t.Run("once more", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, fork bool, n int) {
			f := setup(t, fork, n, "once "+filepath.Join(t.TempDir(), "here"))
			require.NoError(t, f.run(t.Context(), "Echo"))
		})
	})
	t.Run("a program that is not there", func(t *testing.T) {
		t.Parallel()
		f := setup(t, false, 1, "", func(o *Options) { o.Argv, o.patience = []string{"no-such-program"}, 300*time.Millisecond })
		require.Error(t, f.run(t.Context(), "Echo"))
		require.Eventually(t, func() bool {
			_, trouble := f.Info()
			return strings.Contains(trouble, "not on the daemon's PATH")
		}, soon, time.Millisecond)
	})
}

// With every slot in use a job waits until one is idle.
func TestSlots(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "", func(o *Options) { o.Threads = 8 })
		require.Eventually(t, func() bool { return f.Slots() == 8 }, soon, time.Millisecond)
		list, _ := f.Info()
		require.Len(t, list, 8/n)
		results := make(chan error, 40)
		for range 40 {
			go func() { results <- f.run(t.Context(), "Echo") }()
		}
		for range 40 {
			require.NoError(t, <-results)
		}
		require.Eventually(t, func() bool { return f.Slots() == 8 }, soon, time.Millisecond)
	})
}

// A process that does not leave is killed when the pool is closed.
func TestStays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "stays", func(o *Options) { o.KillAfter = 20 * time.Millisecond })
		pid := f.pid(t)
		f.Close()
		require.False(t, exists(pid))
	})
}

// A job is told to make room when its worker process leaves, and when its process is replaced.
func TestLeaving(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "rooms", func(o *Options) { o.tick = time.Millisecond })
		leaving, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.run(jobctx.WithLeaving(t.Context(), leaving), "Finishes", f.path("began")) }()
		f.read(t, "began")
		require.Empty(t, done)
		leave()
		require.NoError(t, <-done)

		old := setup(t, fork, n, "rooms", func(o *Options) { o.tick, o.MaxAge = time.Millisecond, 50*time.Millisecond })
		require.NoError(t, old.run(t.Context(), "Finishes", old.path("began")))
	})
}

// If a process does not read its socket, it cannot be told to make room, and the job ends when
// it says so.
func TestLeavingToADeafProcess(t *testing.T) {
	t.Parallel()
	f := setup(t, false, 4, "rooms")
	ends := map[string]chan error{}
	start := func(ctx context.Context, class string, args ...string) {
		end := make(chan error, 1)
		ends[class] = end
		go func() { end <- f.run(ctx, class, args...) }()
	}
	leaving, leave := context.WithCancel(t.Context())
	start(jobctx.WithLeaving(t.Context(), leaving), "Waits", f.path("end"), f.path("began"))
	f.read(t, "began")
	start(t.Context(), "Deaf", f.path("deaf"), f.path("die"))
	f.read(t, "deaf")
	f.mu.Lock()
	writing := &f.processes[0].conn.writing
	f.mu.Unlock()
	start(t.Context(), "Echo", strings.Repeat("x", 1<<20)) // has no room in the socket
	require.Eventually(t, func() bool {
		if !writing.TryLock() {
			return true
		}
		writing.Unlock()
		return false
	}, soon, time.Millisecond)
	leave()
	require.NoError(t, os.WriteFile(f.path("end"), []byte("now"), 0o600))
	select {
	case err := <-ends["Waits"]:
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "the job does not end")
	}
	require.NoError(t, os.WriteFile(f.path("die"), []byte("now"), 0o600))
	require.Error(t, <-ends["Deaf"])
	require.NoError(t, <-ends["Echo"], "another process has it")
}

func BenchmarkEcho(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			f := setup(b, w.fork, w.number, "")
			j := job("Echo", "one", "two")
			ctx := jobctx.WithJob(b.Context(), j)
			require.NoError(b, f.Perform(ctx, j, 0, nil))
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Perform(ctx, j, 0, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Processes learn of each pause in order, including those that boot during it.
func TestTell(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, fork bool, n int) {
		f := setup(t, fork, n, "", func(o *Options) { o.tick = time.Millisecond })
		heard := func() (list []string) {
			for _, e := range f.logs.FilterMessage("runner says").All() {
				list = append(list, fmt.Sprint(e.ContextMap()["message"]))
			}
			return list
		}
		said := func(want ...string) {
			t.Helper()
			require.Eventually(t, func() bool { return slices.Equal(heard(), want) }, soon, time.Millisecond)
		}
		first := f.pid(t)
		f.Tell(true)
		said("paused")
		require.Error(t, f.run(t.Context(), "Kill"))
		f.changes(t, first)
		said("paused", "paused")
		f.Tell(false)
		said("paused", "paused", "resumed")
		for range 100 {
			f.Tell(true)
			f.Tell(false)
		}
		f.Tell(true)
		require.Eventually(t, func() bool {
			list := heard()
			return list[len(list)-1] == "paused"
		}, soon, time.Millisecond)
		for i, word := range heard() {
			require.Equal(t, i == 0 || i%2 == 1, word == "paused")
		}
	})
}

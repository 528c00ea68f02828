package system_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/locker"
	"github.com/resqued/resqued/test/system/harness"
)

// witnessVariable makes this program run as the command under the lock.
const witnessVariable = "RESQUED_TEST_WITNESS"

func init() {
	if log := os.Getenv(witnessVariable); log != "" {
		os.Exit(witness(log))
	}
}

// witness writes log lines for a while to show that it is alive. It ignores TERM.
func witness(log string) int {
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 1
	}
	sequence, err := strconv.ParseInt(os.Getenv("LOCKER_SEQUENCE"), 10, 64)
	if err != nil {
		return 1
	}
	signal.Ignore(syscall.SIGTERM)
	life := 6 * time.Second // for a fault to meet it, and to last longer than the lease
	if sequence%3 == 0 {
		life = 100 * time.Millisecond
	}
	for end := procfs.BootTime() + life; procfs.BootTime() < end; <-time.After(2 * time.Millisecond) {
		if _, err := fmt.Fprintf(f, "%d %d %d\n", sequence, os.Getpid(), procfs.BootTime()); err != nil {
			return 1
		}
	}
	return 0
}

var lockedBy = regexp.MustCompile(` pid:(\d+) `)

// TestLockerRun lets several "resqued locker run" compete for one key while they are killed,
// stopped and cut off. Two commands never live at the same time.
func TestLockerRun(t *testing.T) {
	t.Parallel()
	const runners = 3
	lease := 3 * time.Second
	lasts := 12 * time.Second
	if harness.Full() {
		lasts = time.Minute
	}
	server := pgtest.Start(t, pgtest.Options{})
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, locker.Migrate(t.Context(), pool, ""))
	log := filepath.Join(t.TempDir(), "log")

	binary := harness.Binary(t)
	over := make(chan struct{})
	codes := make(chan int, 10_000)
	var all sync.WaitGroup
	for range runners {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				cmd := exec.Command(binary, "locker", "run", "the one", "--blocking", "--lock-for", lease.String(), "--renew-every", "500ms", "--", os.Args[0])
				cmd.Env = append(os.Environ(), "DATABASE_URL="+server.URL(""), witnessVariable+"="+log, "GORACE=atexit_sleep_ms=0")
				cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
				_ = cmd.Run()
				codes <- cmd.ProcessState.ExitCode()
			}
		})
	}
	// A holder that runs its command, its guard, and the guard's child.
	type target struct{ run, guard, command int }
	find := func() (g target) {
		proctest.Await(t, 60*time.Second, func() bool {
			rows, err := locker.List(t.Context(), pool, "", "the one")
			if err != nil || len(rows) == 0 || !rows[0].Held() {
				return false
			}
			m := lockedBy.FindStringSubmatch(rows[0].LockedBy)
			if m == nil {
				return false
			}
			g.run, _ = strconv.Atoi(m[1])
			for _, guard := range proctest.Children(g.run) {
				for _, command := range proctest.Children(guard.PID) {
					g.guard, g.command = guard.PID, command.PID
					return true
				}
			}
			return false
		}, "a command that runs under the lock")
		return g
	}
	faults := []struct {
		name string
		hit  func(g target)
	}{
		{"kill", func(g target) { _ = syscall.Kill(g.run, syscall.SIGKILL) }},
		{"stop", func(g target) {
			_ = syscall.Kill(g.run, syscall.SIGSTOP)
			<-time.After(lease + time.Second)
			_ = syscall.Kill(g.run, syscall.SIGCONT)
		}},
		{"cut", func(target) {
			_, _ = pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'resqued locker'")
		}},
		{"kill guard", func(g target) { _ = syscall.Kill(g.guard, syscall.SIGKILL) }},
	}
	counts := map[string]int{}
	for n, began := 0, time.Now(); n < len(faults) || time.Since(began) < lasts; n++ {
		fault := faults[n%len(faults)]
		fault.hit(find())
		counts[fault.name]++
	}
	close(over)
	all.Wait()
	close(codes)
	ended := map[int]int{}
	for code := range codes {
		ended[code]++
	}
	n := judgeLives(t, log)
	t.Logf("%d commands, faults %v, exit codes %v", n, counts, ended)
	require.Greater(t, n, 3)
}

// TestLockerTerminal checks that a command under a lock has the terminal of "resqued locker
// run".
func TestLockerTerminal(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, locker.Migrate(t.Context(), pool, ""))
	// In script, $run KEY -- CMD is "resqued locker run".
	start := func(t *testing.T, script string) *first {
		t.Helper()
		return atTerminal(t, t.TempDir(), append(os.Environ(),
			"DATABASE_URL="+server.URL(""), "GORACE=atexit_sleep_ms=0", "run="+harness.Binary(t)+" locker run"), "sh", "-c", script)
	}
	held := func(t *testing.T, key string) bool {
		t.Helper()
		rows, err := locker.List(t.Context(), pool, "", key)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		return rows[0].Held()
	}
	keys := func(t *testing.T, f *first, typed string) {
		t.Helper()
		_, err := io.WriteString(f.keys, typed)
		require.NoError(t, err)
	}
	number := func(t *testing.T, f *first, name string) int {
		t.Helper()
		f.await(t, name+"=")
		var m []string
		proctest.Await(t, patience, func() bool {
			m = regexp.MustCompile(name + `=(\d+)\r\n`).FindStringSubmatch(f.screen.String())
			return m != nil
		}, "the number of %s", name)
		pid, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return pid
	}
	gone := func(t *testing.T, pid int) {
		t.Helper()
		proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of process %d", pid)
	}
	stopped := func(t *testing.T, pid int) {
		t.Helper()
		proctest.Await(t, patience, func() bool {
			p, ok := proctest.Look(pid)
			return ok && p.State == "T"
		}, "process %d to be stopped", pid)
	}
	const readLine = `sh -c 'echo pid=$$; read line; echo "got <$line>"; exit 3'`

	t.Run("it reads what is typed", func(t *testing.T) {
		t.Parallel()
		f := start(t, `exec $run reads -- `+readLine)
		f.await(t, "pid=")
		keys(t, f, "some words\n")
		f.await(t, "got <some words>")
		require.Equal(t, 3, f.exit(t))
		require.False(t, held(t, "reads"))
	})

	t.Run("^C ends it", func(t *testing.T) {
		t.Parallel()
		f := start(t, `exec $run interrupted -- sh -c 'echo pid=$$; exec sleep 1000'`)
		pid := number(t, f, "pid")
		keys(t, f, "\x03")
		require.Equal(t, 128+int(syscall.SIGINT), f.exit(t))
		require.False(t, proctest.Alive(pid))
		require.False(t, held(t, "interrupted"))
	})

	t.Run("^C comes once, and reaches the command", func(t *testing.T) {
		t.Parallel()
		f := start(t, `exec $run interrupts -- sh -c 'trap "n=x\$n; echo int=\$n" INT; read line; echo "first <$line>"; while test "$line" != words; do read line; done; sleep 0.2; test $n = x'`)
		keys(t, f, "line\n")
		f.await(t, "first <line>") // by now the command counts as started
		keys(t, f, "\x03")
		f.await(t, "int=x")
		require.True(t, held(t, "interrupts"))
		keys(t, f, "words\n")
		require.Zero(t, f.exit(t), f.screen)
	})

	t.Run("TERM ends one that is stopped", func(t *testing.T) {
		t.Parallel()
		f := start(t, `exec $run stopped -- sh -c 'echo pid=$$; kill -STOP $$; echo goes on'`)
		stopped(t, number(t, f, "pid"))
		require.NoError(t, f.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 128+int(syscall.SIGTERM), f.exit(t))
		require.False(t, held(t, "stopped"))
	})

	t.Run("what else is in the group stays", func(t *testing.T) {
		t.Parallel()
		f := start(t, `sleep 1000 & echo beside=$!
			$run leaves -- sh -c 'sleep 1000 & echo left=$!'
			echo code=$?
			$run leaves -- sh -c 'echo pid=$$; exec sleep 1000' | (trap '' INT; cat) &
			read line; echo "script got <$line>"; exec sleep 1000`)
		beside, left := number(t, f, "beside"), number(t, f, "left")
		require.Equal(t, 0, number(t, f, "code"))
		require.False(t, proctest.Alive(left))
		require.True(t, proctest.Alive(beside))
		pid := number(t, f, "pid")
		var runs []proctest.Process
		for p, ok := proctest.Look(pid); ok && p.Parent > 1; p, ok = proctest.Look(p.Parent) {
			runs = append(runs, p)
		}
		require.Greater(t, len(runs), 2)
		require.NoError(t, syscall.Kill(runs[2].PID, syscall.SIGTERM)) // the command, the guard, locker run
		gone(t, pid)
		gone(t, runs[2].PID)
		require.True(t, proctest.Alive(beside))
		keys(t, f, "line\n")
		f.await(t, "script got <line>")
	})

	t.Run("^Z stops it, and fg lets it go on", func(t *testing.T) {
		t.Parallel()
		f := start(t, `set -m; $run stops --lock-for 10m -- `+readLine+`; echo "code=$?"; fg; echo "then=$?"`)
		pid := number(t, f, "pid")
		keys(t, f, "\x1a")
		require.Equal(t, 128+int(syscall.SIGTSTP), number(t, f, "code"))
		proctest.Await(t, patience, func() bool {
			p, _ := proctest.Look(pid)
			return p.State == "S"
		}, "the command to go on")
		require.True(t, held(t, "stops"))
		keys(t, f, "words\n")
		f.await(t, "got <words>")
		require.Equal(t, 3, number(t, f, "then"))
	})

	t.Run("a stop that lasts longer than the lease ends it", func(t *testing.T) {
		t.Parallel()
		f := start(t, `set -m; $run sleeps --lock-for 2s -- `+readLine+`; echo "code=$?"; read line; fg; echo "then=$?"`)
		pid := number(t, f, "pid")
		keys(t, f, "\x1a")
		require.Equal(t, 128+int(syscall.SIGTSTP), number(t, f, "code"))
		proctest.Await(t, patience, func() bool { return !held(t, "sleeps") }, "the end of the lease")
		require.False(t, proctest.Alive(pid))
		keys(t, f, "\n")
		require.Equal(t, 70, number(t, f, "then"))
	})

	t.Run("in the background it is stopped when it reads", func(t *testing.T) {
		t.Parallel()
		f := start(t, `set -m; $run background --lock-for 10m -- `+readLine+` & read line; fg; echo "then=$?"`)
		stopped(t, number(t, f, "pid"))
		keys(t, f, "\n")
		f.await(t, "run} background") // fg says what it brings back
		keys(t, f, "words\n")
		f.await(t, "got <words>")
		require.Equal(t, 3, number(t, f, "then"))
	})

	t.Run("with the guard goes all that is below", func(t *testing.T) {
		t.Parallel()
		f := start(t, `sh -c 'trap "" HUP; echo beside=$$; exec sleep 1000' & exec $run guarded -- sh -c 'echo guard=$PPID; setsid sleep 1000 & echo away=$!; sleep 1000'`)
		beside, guard, away := number(t, f, "beside"), number(t, f, "guard"), number(t, f, "away")
		require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
		require.Equal(t, 70, f.exit(t))
		require.False(t, proctest.Alive(away))
		require.True(t, proctest.Alive(beside), "a child that locker run had before")
	})
}

// judgeLives reads the log of the witnesses. It requires that their lives do not overlap and
// that their sequences grow.
func judgeLives(t *testing.T, log string) (witnesses int) {
	t.Helper()
	type life struct {
		sequence, pid int64
		from, to      time.Duration
	}
	var lives []life
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	of := map[int64]int{}
	for line := range bytes.Lines(text) {
		var sequence, pid, at int64
		_, err := fmt.Sscan(string(line), &sequence, &pid, &at)
		require.NoError(t, err, "%s", line)
		n, ok := of[pid]
		if !ok {
			n = len(lives)
			of[pid] = n
			lives = append(lives, life{sequence: sequence, pid: pid, from: time.Duration(at)})
		}
		lives[n].to = time.Duration(at)
	}
	slices.SortFunc(lives, func(a, b life) int { return int(a.from - b.from) })
	var bad []error
	for n := range len(lives) - 1 {
		a, b := lives[n], lives[n+1]
		if b.from <= a.to {
			bad = append(bad, fmt.Errorf("%+v and %+v live together", a, b))
		}
		if b.sequence <= a.sequence {
			bad = append(bad, fmt.Errorf("%+v has no higher sequence than %+v before it", b, a))
		}
	}
	require.NoError(t, errors.Join(bad...))
	return len(lives)
}

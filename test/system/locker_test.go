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

	"github.com/resqued/resqued/internal/pgtest"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/locker"
	"github.com/resqued/resqued/test/system/harness"
)

// witnessVariable makes this program the command that runs under the lock.
const witnessVariable = "RESQUED_TEST_WITNESS"

func init() {
	if log := os.Getenv(witnessVariable); log != "" {
		os.Exit(witness(log))
	}
}

// witness writes down that it lives, over and over, for a while. It does not heed TERM.
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
	for end := proc.BootTime() + life; proc.BootTime() < end; <-time.After(2 * time.Millisecond) {
		if _, err := fmt.Fprintf(f, "%d %d %d\n", sequence, os.Getpid(), proc.BootTime()); err != nil {
			return 1
		}
	}
	return 0
}

var lockedBy = regexp.MustCompile(` pid:(\d+) `)

// TestLockerRun: several "resqued locker run" fight for one key, and are killed, stopped
// and cut off. Two commands never live at once.
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
	// A holder that runs its command: its guard, and the guard's child.
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

// judgeLives reads what witnesses have written. It wants none of them to have lived beside
// another, and each later one to have had a higher sequence.
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

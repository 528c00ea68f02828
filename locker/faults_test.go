//go:build linux

package locker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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
)

// The environment variables of a process of holders.
const (
	roleVariable = "LOCKER_TEST_HOLDERS"
	urlVariable  = "LOCKER_TEST_URL"
	logVariable  = "LOCKER_TEST_LOG"
	fullVariable = "RESQUED_TEST_FULL"
)

// The contest for one key: the number of processes and the goroutines in each.
const (
	fightKey    = "the one"
	fightHolder = 20
	fightCount  = 3
)

var fightOptions = locker.Options{LockFor: 2 * time.Second, RenewEvery: 400 * time.Millisecond, Blocking: true}

// holderMain runs a process of holders until it is killed.
//
// It logs instants at which a block certainly held the lock: it reads the time first and checks
// its context afterwards.
func holderMain() int {
	config, err := pgxpool.ParseConfig(os.Getenv(urlVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config.MaxConns = 6
	config.ConnConfig.RuntimeParams["application_name"] = fmt.Sprintf("holder %d", os.Getpid())
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log, err := os.OpenFile(os.Getenv(logVariable), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var all sync.WaitGroup
	for range fightHolder {
		all.Go(func() {
			for {
				_, err := locker.Run(context.Background(), pool, fightKey, fightOptions, func(ctx context.Context, sequence int64) error {
					return occupy(ctx, log, sequence)
				})
				if err != nil {
					pause(20 * time.Millisecond) // the database is away, or the lock was lost
				}
			}
		})
	}
	all.Wait()
	return 0
}

func occupy(ctx context.Context, log *os.File, sequence int64) error {
	hold := rand.N(20 * time.Millisecond)
	if rand.N(8) == 0 {
		hold = rand.N(1500 * time.Millisecond)
	}
	for end := procfs.BootTime() + hold; ; pause(time.Millisecond) {
		at := procfs.BootTime()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		kind := "holds"
		if at > end {
			kind = "left"
		}
		if _, err := fmt.Fprintf(log, "%s %d %d\n", kind, sequence, at); err != nil || at > end {
			return err
		}
	}
}

func pause(d time.Duration) { <-time.After(d) }

// fight is a running test.
type fight struct {
	server    *pgtest.Server
	pool      *pgxpool.Pool
	dir       string
	processes []*exec.Cmd
	started   int
}

func (f *fight) start(t *testing.T, slot int) {
	t.Helper()
	f.started++
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=1", urlVariable+"="+f.server.URL(""),
		logVariable+"="+filepath.Join(f.dir, fmt.Sprintf("log%d", f.started)), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	f.processes[slot] = cmd
}

func (f *fight) kill(slot int) {
	if cmd := f.processes[slot]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		f.processes[slot] = nil
	}
}

var pidOf = regexp.MustCompile(` pid:(\d+) `)

// holder returns the slot of a process that holds the lock, and false if there is none.
func (f *fight) holder() (int, bool) {
	rows, err := locker.List(context.Background(), f.pool, "", fightKey)
	if err != nil || len(rows) == 0 || !rows[0].Held() {
		return 0, false
	}
	m := pidOf.FindStringSubmatch(rows[0].LockedBy)
	if m == nil {
		return 0, false
	}
	pid, _ := strconv.Atoi(m[1])
	slot := slices.IndexFunc(f.processes, func(c *exec.Cmd) bool { return c != nil && c.Process.Pid == pid })
	return slot, slot >= 0
}

func (f *fight) await(t *testing.T) (slot int) {
	t.Helper()
	ok := false
	proctest.Await(t, 30*time.Second, func() bool {
		slot, ok = f.holder()
		return ok
	}, "a holder")
	return slot
}

// The faults, each of which hits a process that holds the lock.
var faults = map[string]func(t *testing.T, f *fight){
	"kill": func(t *testing.T, f *fight) {
		slot := f.await(t)
		f.kill(slot)
		f.start(t, slot)
	},
	"stop": func(t *testing.T, f *fight) {
		process := f.processes[f.await(t)].Process
		require.NoError(t, process.Signal(syscall.SIGSTOP))
		pause(fightOptions.LockFor + 700*time.Millisecond)
		require.NoError(t, process.Signal(syscall.SIGCONT))
	},
	"cut": func(t *testing.T, f *fight) {
		name := fmt.Sprintf("holder %d", f.processes[f.await(t)].Process.Pid)
		_, err := f.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name)
		require.NoError(t, err)
	},
	"restart": func(t *testing.T, f *fight) {
		f.await(t)
		require.NoError(t, f.server.Restart(t.Context()))
		f.pool.Reset()
	},
}

// TestFight lets processes compete for one key while faults are injected all the time.
func TestFight(t *testing.T) {
	for name, kinds := range map[string][]string{
		"holders are killed, stopped and cut off": {"kill", "cut", "stop", "cut"},
		"PostgreSQL crashes and starts again":     {"restart"},
	} {
		t.Run(name, func(t *testing.T) {
			full := os.Getenv(fullVariable) != ""
			// The slack is for busy machines.
			lasts, slack := 5*time.Second, 30*time.Second
			if full {
				lasts, slack = time.Minute, time.Second
				if slices.Contains(kinds, "restart") {
					slack = 5 * time.Second // no lock can be taken while the server is away
				}
			}
			f := &fight{server: pgtest.Start(t, pgtest.Options{}), dir: t.TempDir(), processes: make([]*exec.Cmd, fightCount)}
			f.pool = newPool(t, f.server.URL(""), "judge", 2)
			require.NoError(t, locker.Migrate(t.Context(), f.pool, ""))
			t.Cleanup(func() {
				for slot := range f.processes {
					f.kill(slot)
				}
			})
			for slot := range f.processes {
				f.start(t, slot)
			}
			counts := map[string]int{}
			for n, began := 0, time.Now(); n < len(kinds) || time.Since(began) < lasts; n++ {
				kind := kinds[n%len(kinds)]
				faults[kind](t, f)
				counts[kind]++
				pause(rand.N(time.Second))
			}
			last := procfs.BootTime()
			proctest.Await(t, 30*time.Second, func() bool {
				turns := f.read(t)
				return len(turns) > 5 && turns[len(turns)-1].from > last
			}, "work after the last fault")
			for slot := range f.processes {
				f.kill(slot)
			}
			t.Logf("faults: %v", counts)
			handed := judge(t, f.read(t), fightOptions.LockFor+slack)
			if full {
				require.Less(t, handed, 50*time.Millisecond, "from a release to the next holder, the median")
			}
		})
	}
}

// turn is an interval in which one block certainly held the lock.
type turn struct {
	sequence int64
	from, to time.Duration
	released bool
}

// read returns the turns of all processes, in the order of their beginnings.
func (f *fight) read(t *testing.T) []turn {
	t.Helper()
	var all []turn
	logs, err := filepath.Glob(filepath.Join(f.dir, "log*"))
	require.NoError(t, err)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		of := map[int64]int{}
		// A kill cut off what follows the last line break.
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			var kind string
			var sequence, at int64
			_, err := fmt.Sscan(string(line), &kind, &sequence, &at)
			require.NoError(t, err, "%s", line)
			n, ok := of[sequence]
			if !ok {
				n = len(all)
				of[sequence] = n
				all = append(all, turn{sequence: sequence, from: time.Duration(at)})
			}
			all[n].to, all[n].released = time.Duration(at), kind == "left"
		}
	}
	slices.SortFunc(all, func(a, b turn) int { return int(a.from - b.from) })
	return all
}

// judge checks that no two turns overlap, that every sequence is above all earlier ones, and
// that no takeover took longer than longest. It returns the median time from a release to the
// next holder.
func judge(t *testing.T, turns []turn, longest time.Duration) time.Duration {
	t.Helper()
	var handed []time.Duration
	var gap time.Duration
	var bad []error
	for n := range len(turns) - 1 {
		a, b := turns[n], turns[n+1]
		if b.from <= a.to {
			bad = append(bad, fmt.Errorf("%+v and %+v hold the lock together", a, b))
		}
		if b.sequence <= a.sequence {
			bad = append(bad, fmt.Errorf("%+v has no higher sequence than %+v before it", b, a))
		}
		if gap = max(gap, b.from-a.to); b.from-a.to > longest {
			bad = append(bad, fmt.Errorf("from %+v to %+v nobody took the lock", a, b))
		}
		if a.released {
			handed = append(handed, b.from-a.to)
		}
	}
	require.NoError(t, errors.Join(bad...))
	require.NotEmpty(t, handed)
	slices.Sort(handed)
	t.Logf("%d turns; longest gap %s; from a release to the next holder: median %s, 95%% within %s",
		len(turns), gap, handed[len(handed)/2], handed[len(handed)*95/100])
	return handed[len(handed)/2]
}

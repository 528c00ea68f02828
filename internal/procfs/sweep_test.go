//go:build linux

package procfs

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testlevel"
)

// A worker process that was killed may take long to end. What it has started must not
// live as long.
func TestSweepBelowALivingProcess(t *testing.T) {
	t.Parallel()
	name, other := unique("p-slow"), unique("p-slow-2")
	c := spawn(t, name, "tree")
	d := spawn(t, other, "tree")
	for _, name := range []string{name, other} {
		require.Eventually(t, func() bool { return len(members(t, name)) == 5 }, 30*time.Second, 10*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	killed, err := c.sweeper.Sweep(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, killed)
	require.Equal(t, []int{c.PID()}, members(t, name), "it lives itself")
	require.Len(t, members(t, other), 5)

	// Once more when it is gone, also when its number should be another's by now.
	require.NoError(t, c.Process.Kill())
	c.wait()
	c.sweeper.root = ID{d.PID(), c.sweeper.root.Start - 1}
	killed, err = c.sweeper.Sweep(ctx)
	require.NoError(t, err)
	require.Zero(t, killed)
	require.Len(t, members(t, other), 5)
	sweep(t, other)
}

// Below a worker process each process is known by its parent, so that no environment has to
// be waited for.
func TestSweepGoesByParents(t *testing.T) {
	t.Parallel()
	c := spawn(t, unique("p-under"), "tree")
	require.Eventually(t, func() bool { return len(members(t, unique("p-under"))) == 5 }, 30*time.Second, 10*time.Millisecond)
	s := NewSweeper("another name", nil)
	later := ID{c.PID(), c.sweeper.root.Start + 1}
	left, err := s.under(later)
	require.NoError(t, err)
	require.Zero(t, left, "the number is another's")
	require.Empty(t, s.signalled)
	left, err = s.under(c.sweeper.root)
	require.NoError(t, err)
	require.NotZero(t, left)
	require.Len(t, s.signalled, 4)
	require.NotContains(t, s.signalled, c.sweeper.root)
	sweep(t, unique("p-under"))
}

func TestEndDescendants(t *testing.T) {
	t.Parallel()
	require.Equal(t, "alone", start(t, "end").Line(t))
}

// One that does not even answer who asks for its environment, as those do that wait for
// memory, is known by its master.
func TestWorkerProcessesNeedNotBeAsked(t *testing.T) {
	t.Parallel()
	name := unique("p-known")
	c := spawn(t, name, "deaf")
	spawned.Store(c.sweeper.root, "as its master says")
	p, ok, err := see(strconv.Itoa(c.PID()))
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, p.worker)
	require.Equal(t, "as its master says", p.proc)
	require.NoError(t, c.Process.Kill())
	c.wait()
	_, ok = spawned.Load(c.sweeper.root)
	require.False(t, ok, "its number may become another's")
}

// Who was killed does not end at once, and until then may lose what it was known by: its
// parent, where it has no tag of its own, or its environment.
func TestSweepForgetsNone(t *testing.T) {
	t.Parallel()
	// Numbers of no process: none is killed.
	const master, worker, bare = 1 << 28, 1<<28 + 1, 1<<28 + 2
	self := os.Getpid()
	first := processes{worker: {parent: self, start: 7, proc: "p"}, bare: {parent: worker, start: 8}}
	for what, later := range map[string]process{
		"its parent has ended":             {parent: self, start: 8},
		"it has another parent":            {parent: master, start: 8},
		"it is dying, with another parent": {parent: master, start: 8, dying: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := NewSweeper("p", nil)
			snapshots := []processes{first}
			for range 2 * cleanPasses {
				snapshots = append(snapshots, processes{bare: later})
			}
			// Its number is another's; that one is not ours.
			snapshots = append(snapshots, slices.Repeat([]processes{{bare: {parent: self, start: 9}}}, cleanPasses)...)
			s.looks = func() (processes, error) {
				if len(snapshots) == 0 {
					return nil, errors.New("nothing is left, and it still looks")
				}
				found := maps.Clone(snapshots[0])
				snapshots = snapshots[1:]
				return found, nil
			}
			killed, err := s.Sweep(t.Context())
			require.NoError(t, err)
			require.Zero(t, killed)
			require.Empty(t, snapshots)
		})
	}
}

// An environment is read in pieces. Of one whose process dies in between the first ones
// are left, which may hold no tag.
func TestHalfAnEnvironmentTellsNothing(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	require.True(t, Stat{EnvStart: 100, EnvEnd: 104}.whole([]byte("A=1\x00")))
	require.False(t, Stat{EnvStart: 100, EnvEnd: 108}.whole([]byte("A=1\x00")))
	require.False(t, Stat{EnvStart: 100, EnvEnd: 100}.whole(nil))
	proc, _ := readTags([]byte("A=1\x00" + ProcEnv + "=h:b:1-2:0"))
	require.Empty(t, proc, "a name that was cut off is another's")

	name := unique("p-half")
	for range 100 {
		cmd := exec.Command("sleep", "1000")
		for i := range 20 {
			cmd.Env = append(cmd.Env, "X"+strconv.Itoa(i)+"="+strings.Repeat("x", 6000))
		}
		cmd.Env = append(cmd.Env, ProcEnv+"="+name)
		require.NoError(t, cmd.Start())
		pid := strconv.Itoa(cmd.Process.Pid)
		require.NoError(t, unix.Kill(cmd.Process.Pid, unix.SIGKILL))
		for {
			p, ok, err := see(pid)
			require.NoError(t, err)
			if !ok {
				break
			}
			require.True(t, p.proc == name || p.dying || p.executing, "%+v", p)
		}
		_ = cmd.Wait()
	}
}

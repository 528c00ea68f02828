//go:build linux

package procfs

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// A killed worker process may take long to end. Its descendants must not live as long.
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

	// Again when it is gone, even if its pid should be reused by now.
	require.NoError(t, c.Process.Kill())
	c.wait()
	c.sweeper.sweep.Root = ID{d.PID(), c.sweeper.sweep.Root.Start - 1}
	killed, err = c.sweeper.Sweep(ctx)
	require.NoError(t, err)
	require.Zero(t, killed)
	require.Len(t, members(t, other), 5)
	sweep(t, other)
}

// Below a worker process, parents identify all processes, so no environment has to be waited
// for.
func TestSweepGoesByParents(t *testing.T) {
	t.Parallel()
	c := spawn(t, unique("p-under"), "tree")
	require.Eventually(t, func() bool { return len(members(t, unique("p-under"))) == 5 }, 30*time.Second, 10*time.Millisecond)
	root := c.sweeper.sweep.Root
	s := Sweep{Root: ID{root.PID, root.Start + 1}, From: from()}
	left, unclear, err := s.look(s.kill)
	require.NoError(t, err)
	require.Zero(t, left+unclear+s.killed, "the number is another's")
	s.Root = root
	left, _, err = s.look(s.kill)
	require.NoError(t, err)
	require.NotZero(t, left)
	require.Equal(t, 4, s.killed)
	require.NotContains(t, s.known, root)
	sweep(t, unique("p-under"))
}

func TestEndDescendants(t *testing.T) {
	t.Parallel()
	require.Equal(t, "alone", start(t, "end").Line(t))
}

// Its master identifies even a worker process that does not answer a request for its
// environment, like one that waits for memory.
func TestWorkerProcessesNeedNotBeAsked(t *testing.T) {
	t.Parallel()
	name := unique("p-known")
	c := spawn(t, name, "deaf")
	spawned.Store(c.sweeper.sweep.Root, "as its master says")
	p, err := readTag(c.sweeper.sweep.Root, Stat{})
	require.NoError(t, err)
	require.Equal(t, tag{proc: "as its master says", worker: true}, p)
	require.NoError(t, c.Process.Kill())
	c.wait()
	_, ok := spawned.Load(c.sweeper.sweep.Root)
	require.False(t, ok, "its number may become another's")
}

// An environment is read in pieces. If the process dies in between, only the first are left,
// perhaps without a tag.
func TestHalfAnEnvironmentTellsNothing(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	require.True(t, Stat{EnvStart: 100, EnvEnd: 104}.whole([]byte("A=1\x00")))
	require.False(t, Stat{EnvStart: 100, EnvEnd: 108}.whole([]byte("A=1\x00")))
	require.False(t, Stat{EnvStart: 100, EnvEnd: 100}.whole(nil))
	proc, _ := Environment{variables: Stat{}.sound([]byte("A=1\x00" + ProcEnv + "=h:b:1-2:0"))}.tags()
	require.Empty(t, proc, "a name that was cut off is another's")

	name := unique("p-half")
	for range 100 {
		cmd := exec.Command("sleep", "1000")
		for i := range 20 {
			cmd.Env = append(cmd.Env, "X"+strconv.Itoa(i)+"="+strings.Repeat("x", 6000))
		}
		cmd.Env = append(cmd.Env, ProcEnv+"="+name)
		require.NoError(t, cmd.Start())
		pid := cmd.Process.Pid
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		for {
			st, err := ReadStat(pid)
			require.NoError(t, err)
			if st.Dead() {
				break
			}
			p, err := readTag(ID{pid, st.Start}, st)
			require.NoError(t, err)
			require.True(t, p.proc == name || p.Dying || p.Executing, "%+v", p)
		}
		_ = cmd.Wait()
	}
}

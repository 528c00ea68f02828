package proc

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/procfs"
)

func TestIdentity(t *testing.T) {
	t.Parallel()

	t.Run("a process knows itself, and is alive", func(t *testing.T) {
		t.Parallel()
		self, err := Self()
		require.NoError(t, err)
		require.Equal(t, os.Getpid(), self.PID)
		require.False(t, self.Dead())
		again, err := ParseIdentity(self.String())
		require.NoError(t, err)
		require.Equal(t, self, again)
		again, err = ParseIdentity(self.Child(3, 17))
		require.NoError(t, err)
		require.Equal(t, self, again)
		require.Equal(t, self.String()+":3.17", self.Child(3, 17))
	})

	t.Run("a later process with the same pid is another one", func(t *testing.T) {
		t.Parallel()
		self, err := Self()
		require.NoError(t, err)
		self.Start--
		require.True(t, self.Dead())
	})

	t.Run("a dead process that was not reaped is dead", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, "p-zombie", act{Act: "deaf"})
		hello(t, c)
		s, err := procfs.ReadStat(c.PID())
		require.NoError(t, err)
		id := Identity{PID: c.PID(), Start: s.Start}
		require.False(t, id.Dead())
		require.NoError(t, c.Kill())
		require.Eventually(t, id.Dead, 30*time.Second, time.Millisecond)
		c.Wait()
		require.True(t, id.Dead())
	})

	t.Run("text that is not an identity is refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "a:b", "a:b:1", "a:b:1-2:3", "a:b:x-2", "a:b:99999999999999999999-2", ":b:1-2"} {
			_, err := ParseIdentity(text)
			require.ErrorContains(t, err, "identity", text)
		}
	})

	t.Run("a host's name cannot break a Redis key or this format", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "a-b-c-d-e", sanitise("a/b c#d:e"))
	})

	t.Run("containers of one machine are told apart, also with one hostname", func(t *testing.T) {
		t.Parallel()
		const boot, pids, times = "0d6f5b2e-aaaa", "pid:[4026531836]", "time:[4026531834]"
		names := map[string]bool{}
		for _, name := range []string{
			bootName(boot, pids, times), bootName(boot, "pid:[4026532001]", times), bootName(boot, "pid:[4026532002]", times),
			// In another time namespace the same start has another time.
			bootName(boot, pids, "time:[4026532003]"), bootName("another boot", pids, times),
		} {
			require.Len(t, name, 8)
			names[name] = true
		}
		require.Len(t, names, 5)
		require.NotContains(t, names, boot[:8], "an identity that promises less has another name")
		require.Equal(t, bootName(boot, pids, times), bootName(boot, pids, times))
	})

	t.Run("a process always has the same identity", func(t *testing.T) {
		t.Parallel()
		self, err := Self()
		require.NoError(t, err)
		again, err := Self()
		require.NoError(t, err)
		require.Equal(t, self, again)
	})

	t.Run("what is not a process is not a dead one", func(t *testing.T) {
		t.Parallel()
		for _, pid := range []int{0, -1, -os.Getpid()} {
			require.False(t, Identity{PID: pid, Start: 1}.Dead(), pid)
		}
	})
}

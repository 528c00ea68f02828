package proc

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIdentity(t *testing.T) {
	t.Parallel()

	t.Run("a process knows itself, and is alive", func(t *testing.T) {
		t.Parallel()
		self, err := Self()
		require.NoError(t, err)
		require.Equal(t, os.Getpid(), self.PID)
		require.True(t, self.Alive())
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
		require.False(t, self.Alive())
	})

	t.Run("a dead process that nobody has reaped is dead", func(t *testing.T) {
		t.Parallel()
		c := spawn(t, &Spawner{}, "p-zombie", act{Act: "deaf"})
		hello(t, c)
		s, err := readStat(strconv.Itoa(c.PID()))
		require.NoError(t, err)
		id := Identity{PID: c.PID(), Start: s.start}
		require.True(t, id.Alive())
		require.NoError(t, c.Kill())
		require.Eventually(t, func() bool { return !id.Alive() }, 30*time.Second, time.Millisecond)
		c.Wait()
		require.False(t, id.Alive())
	})

	t.Run("text that is no identity is refused", func(t *testing.T) {
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
		const boot = "0d6f5b2e-aaaa"
		require.Equal(t, "0d6f5b2e", bootName(boot, initialPIDNamespace))
		one, two := bootName(boot, "pid:[4026532001]"), bootName(boot, "pid:[4026532002]")
		require.Len(t, one, 8)
		require.NotEqual(t, one, two)
		require.NotEqual(t, "0d6f5b2e", one)
	})
}

func TestBootTime(t *testing.T) {
	t.Parallel()
	first := BootTime()
	require.Positive(t, first)
	require.GreaterOrEqual(t, BootTime(), first)
}

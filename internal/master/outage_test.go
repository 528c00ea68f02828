package master

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

// While Redis is away or refuses, title and status say so, why, and for how long.
func TestOutage(t *testing.T) {
	t.Parallel()
	away := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

	bubble(t, "it is told while it lasts, and logged when it begins and ends", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		f.redis.set(func() { f.redis.down = away })
		f.wait(50 * time.Second)
		first := f.sys.title()
		require.Regexp(t, `master: Redis away for 4\ds: dial tcp: connection refused; running, 2 workers, 2/8 busy`, first)
		f.wait(5 * time.Second)
		require.Regexp(t, `Redis away for 5\ds: dial tcp: connection refused; running`, f.sys.title())
		require.Greater(t, f.systemd.count("status Redis away for"), 40)
		f.redis.set(func() { f.redis.down = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("another port")} })
		f.wait(5 * time.Second)
		require.Contains(t, f.sys.title(), "another port")
		require.Equal(t, 1, f.logs.FilterMessage("redis cannot be told of this master").Len())
		f.redis.set(func() { f.redis.down = nil })
		f.wait(3 * time.Second)
		require.Contains(t, f.sys.title(), "master: running, 2 workers", "within seconds, not at the next round")
		back := f.logs.FilterMessage("redis is back").All()
		require.Len(t, back, 1)
		require.Greater(t, back[0].ContextMap()["after"], 50*time.Second)
	})

	bubble(t, "what only workers notice counts, with how many these are", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		refused := proc.Message{Type: proc.Beat, Away: 7 * time.Second, Refused: true, Trouble: "NOPERM No permissions to access a key"}
		up[0].say(refused)
		f.wait(time.Second)
		require.Contains(t, f.sys.title(), "master: Redis refusing for 8s for 1 of 2 workers: NOPERM No permissions to access a key; running")
		up[1].say(refused)
		f.wait(time.Second)
		require.Contains(t, f.sys.title(), "master: Redis refusing for 9s: NOPERM")
		up[0].say(proc.Message{Type: proc.Beat})
		up[1].say(proc.Message{Type: proc.Beat})
		f.wait(2 * time.Second)
		require.Contains(t, f.sys.title(), "master: running")
	})

	bubble(t, "a worker process that waits for redis is not ended for that", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.BootTimeout = 10 * time.Second })
		c := f.newest()
		c.say(proc.Message{Type: proc.Hello, Protocol: proc.Protocol, PID: c.PID()})
		for n := range 30 {
			c.say(proc.Message{Type: proc.Beat, Away: time.Duration(n+1) * 2 * time.Second, Refused: true, Trouble: "WRONGPASS invalid username-password pair"})
			f.wait(2 * time.Second)
		}
		require.False(t, c.wasKilled())
		require.True(t, strings.HasSuffix(f.sys.title(), "WRONGPASS invalid username-password pair; starting, 0 of 2 workers ready"), f.sys.title())
		f.wait(11 * time.Second)
		require.True(t, c.wasKilled(), "it has said nothing more")
	})
}

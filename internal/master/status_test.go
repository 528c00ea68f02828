package master

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

func TestStatus(t *testing.T) {
	t.Parallel()

	bubble(t, "title and status follow the state at once, and numbers every second", func(t *testing.T) {
		f := setup(t)
		require.Equal(t, "resqued (resque-3): master: starting, 0 of 2 workers ready", f.sys.title())
		up := f.up(2)
		f.wait(time.Second)
		up[0].say(proc.Message{Type: proc.Beat, Busy: 3, Done: 1200})
		up[1].say(proc.Message{Type: proc.Beat, Busy: 2, Done: 4})
		f.wait(time.Second)
		require.Equal(t, "resqued (resque-3): master: running, 2 workers, 5/8 busy, 1,204 done", f.sys.title())
		require.Equal(t, 1, f.systemd.count("status running, 2 workers, 5/8 busy, 1,204 done"))
		before := f.systemd.count("status")
		for n := range 50 {
			up[0].say(proc.Message{Type: proc.Beat, Done: n})
		}
		require.LessOrEqual(t, f.systemd.count("status"), before+1)
		f.signal(syscall.SIGUSR2)
		require.Contains(t, f.sys.title(), "master: paused")
	})

	bubble(t, "one that a signal of its own has paused, or lets work, is told", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(proc.Message{Type: proc.Beat, State: "paused"})
		up[1].say(proc.Message{Type: proc.Beat, State: "running"})
		f.wait(time.Second)
		require.Contains(t, f.sys.title(), "running, 2 workers, 1 of them paused, ")
		f.signal(syscall.SIGUSR2)
		require.Contains(t, f.sys.title(), "paused, 2 workers, 0/8")
		up[1].say(proc.Message{Type: proc.Beat, State: "running"})
		f.wait(time.Second)
		require.Contains(t, f.sys.title(), "paused, 2 workers, 1 of them running, ")
	})

	bubble(t, "jobs of the dead stay counted", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].leave(41, "")
		f.up(1)
		up[1].say(proc.Message{Type: proc.Beat, Done: 1})
		require.Equal(t, 42, f.m.count().done)
	})

	bubble(t, "what is missing or leaving is told", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(retires("quota"))
		f.wait(2 * time.Second)
		require.Contains(t, f.sys.title(), "running, 1 of 2 workers, 1 retiring")
	})

	bubble(t, "the watchdog is fed by the loop", func(t *testing.T) {
		f := setup(t, func(f *fixture, _ *Config) { f.systemd.watchdog = 30 * time.Second })
		f.wait(5 * time.Minute)
		require.GreaterOrEqual(t, f.systemd.count("watchdog"), 30)
	})

	bubble(t, "without a watchdog none is fed", func(t *testing.T) {
		f := setup(t)
		f.wait(5 * time.Minute)
		require.Zero(t, f.systemd.count("watchdog"))
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{Threads: 1}, {Slots: 1}} {
		_, err := New(cfg, Deps{})
		require.ErrorContains(t, err, "needs one at least")
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		require.Equal(t, want, grouped(n))
	}
}

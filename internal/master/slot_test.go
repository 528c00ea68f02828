package master

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

func retires(reason string) proc.Message {
	return proc.Message{Type: proc.Retires, Reason: reason}
}

func TestStart(t *testing.T) {
	t.Parallel()

	bubble(t, "worker processes boot one at a time", func(t *testing.T) {
		f := setup(t)
		require.Equal(t, 1, f.spawned())
		first := f.newest()
		require.Equal(t, "h:b:1-2:0.0", first.spec.Proc)
		require.Equal(t, []byte("one"), first.spec.Config)
		require.False(t, first.spec.DieWithMaster)
		require.Equal(t, []string{"welcome running"}, first.hello())
		require.Equal(t, 1, f.spawned())
		require.Zero(t, f.systemd.count("ready"))
		first.say(proc.Message{Type: proc.Ready})
		require.Equal(t, 2, f.spawned())
		require.Equal(t, "resqued (resque-3): worker 2 of 2", f.newest().spec.Title)
		require.Equal(t, 1, f.systemd.count("ready"))
		f.up(1)
		require.Equal(t, 2, f.spawned())
		require.Equal(t, 1, f.systemd.count("ready"))
	})

	bubble(t, "the kernel kills the workers of a dead master where that is wanted", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.OnMasterDeath = "kill" })
		require.True(t, f.newest().spec.DieWithMaster)
	})

	bubble(t, "a worker that is not ready in time is ended and tried again", func(t *testing.T) {
		f := setup(t)
		c := f.newest()
		c.hello()
		f.wait(30*time.Second - time.Millisecond)
		require.False(t, c.wasKilled())
		f.wait(2 * time.Millisecond)
		require.True(t, c.wasKilled())
		f.wait(time.Second)
		require.Greater(t, f.spawned(), 1)
		require.Zero(t, f.systemd.count("ready"))
	})

	bubble(t, "one that speaks another protocol, or none, is ended", func(t *testing.T) {
		f := setup(t)
		c := f.newest()
		c.say(proc.Message{Type: proc.Hello, Protocol: proc.Protocol + 1})
		require.True(t, c.wasKilled())
		f.wait(time.Second)
		c = f.newest()
		c.say(proc.Message{Type: "garbage"})
		require.True(t, c.wasKilled())
	})

	bubble(t, "an unknown message changes nothing", func(t *testing.T) {
		f := setup(t)
		c := f.up(1)[0]
		c.say(proc.Message{Type: "weather"})
		require.False(t, c.wasKilled())
	})

	bubble(t, "a process that cannot be started is tried again", func(t *testing.T) {
		f := setup(t, func(f *fixture, _ *Config) { f.sys.fail = errors.New("no more processes") })
		require.Zero(t, f.spawned())
		f.sys.mu.Lock()
		f.sys.fail = nil
		f.sys.mu.Unlock()
		f.wait(longestDelay)
		f.up(2)
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "a worker that cannot use its configuration ends the master", func(t *testing.T) {
		f := setup(t)
		c := f.newest()
		c.hello()
		c.die(proc.Exit{Code: 78})
		require.ErrorIs(t, f.over(), ErrWorkerConfig)
		require.Equal(t, 1, f.spawned())
	})

	bubble(t, "one that says so when the configuration has worked is replaced", func(t *testing.T) {
		for _, paused := range []bool{false, true} {
			f := setup(t)
			up := f.up(2)
			if paused {
				f.signal(syscall.SIGUSR2)
			}
			up[0].die(proc.Exit{Code: 78})
			f.wait(longestDelay)
			require.True(t, f.running())
			require.Equal(t, 3, f.spawned())
			f.newest().die(proc.Exit{Code: 78}) // not ready, either
			f.wait(longestDelay)
			require.True(t, f.running())
			require.Equal(t, 4, f.spawned())
		}
	})
}

func TestBackOff(t *testing.T) {
	t.Parallel()

	bubble(t, "crashing slots do not storm", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.Slots = 4 })
		for range 10_000 {
			for _, c := range f.sys.alive() {
				c.crash()
			}
			<-time.After(time.Millisecond)
		}
		// 4 slots in 10 s: about 7 each.
		require.Less(t, f.spawned(), 45)
		require.Greater(t, f.spawned(), 20)
	})

	bubble(t, "the delay ends at half a minute, and health forgives", func(t *testing.T) {
		s := &slot{}
		now := time.Now()
		require.LessOrEqual(t, s.fail(now), firstDelay)
		for range 100 {
			delay := s.fail(now)
			require.LessOrEqual(t, delay, longestDelay)
		}
		require.GreaterOrEqual(t, s.fail(now), longestDelay/2)

		f := setup(t)
		up := f.up(2)
		f.m.slots[0].failures = 9
		f.wait(healthy + time.Second)
		up[0].crash()
		f.wait(firstDelay)
		require.Equal(t, 3, f.spawned())
	})

	bubble(t, "a worker that leaves at once, having done nothing, counts as one that died", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].leave(0, "")
		require.Equal(t, 2, f.spawned())
		f.wait(firstDelay)
		require.Equal(t, 3, f.spawned())
	})

	bubble(t, "a worker that leaves after its jobs is replaced at once", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].leave(1, "")
		require.Equal(t, 3, f.spawned())
	})

	bubble(t, "one without a sign of life is ended and replaced", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[1].mu.Lock()
		up[1].mute = true
		up[1].mu.Unlock()
		f.wait(29 * time.Second)
		require.False(t, up[1].wasKilled())
		f.wait(2 * time.Second)
		require.True(t, up[1].wasKilled())
		require.False(t, up[0].wasKilled())
		require.Equal(t, 3, f.spawned())
	})

	bubble(t, "one whose locks expire is not waited for so long", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		for i, locks := range []time.Duration{20 * time.Second, time.Second} {
			up[i].mu.Lock()
			up[i].mute = true
			up[i].mu.Unlock()
			up[i].locksLast(locks)
		}
		f.wait(5 * time.Second)
		require.False(t, up[1].wasKilled(), "it may just be slow")
		f.wait(2 * time.Second)
		require.True(t, up[1].wasKilled())
		f.wait(12 * time.Second)
		require.False(t, up[0].wasKilled())
		f.wait(2 * time.Second)
		require.True(t, up[0].wasKilled())
	})

	bubble(t, "one that reports is left alone, though its locks have expired while Redis is away", func(t *testing.T) {
		for _, lock := range []time.Duration{0, 3 * time.Second} {
			f := setup(t, func(_ *fixture, c *Config) { c.LockDuration = lock })
			w := f.up(2)[0]
			end := procfs.BootTime() + time.Second
			for range 100 {
				w.say(proc.Message{Type: proc.Beat, LockEnd: end})
				f.wait(time.Second)
				require.False(t, w.wasKilled())
			}
		}
	})

	bubble(t, "short locks do not outlive one that is silent", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.LockDuration = 3 * time.Second })
		w := f.up(2)[0]
		w.mu.Lock()
		w.mute = true
		w.mu.Unlock()
		// Its last beat is 2/7 of a lock old: that leaves 2.1 s.
		w.locksLast(27*3*time.Second/35 - 2*3*time.Second/7)
		f.wait(1500 * time.Millisecond)
		require.False(t, w.wasKilled())
		f.wait(600 * time.Millisecond)
		require.True(t, w.wasKilled())
	})

	bubble(t, "what waits to be read while the master stands still is a sign of life", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.LockDuration = 5 * time.Second })
		up := f.up(2)
		for _, w := range up {
			w.locksLast(time.Second)
		}
		// Both beat after 2 and after 4 s, and may be silent for 3. The loop is blocked from 3.1
		// to 5.4 s. It wanted to wake up for its round, after 4.5 s or later, so it is not late
		// enough to assume that it was stopped.
		f.wait(3100 * time.Millisecond)
		f.m.log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.InfoLevel),
			zap.Hooks(func(e zapcore.Entry) error {
				if e.Message == "signal" {
					<-time.After(2300 * time.Millisecond)
				}
				return nil
			}))
		f.signal(syscall.SIGCONT)
		f.wait(3 * time.Second)
		require.False(t, up[0].wasKilled())
		require.False(t, up[1].wasKilled())
	})

	bubble(t, "one that does not read its messages is ended", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].mu.Lock()
		up[0].full = true
		up[0].mu.Unlock()
		f.signal(syscall.SIGUSR2)
		require.True(t, up[0].wasKilled())
		require.False(t, up[1].wasKilled())
	})
}

func TestRetiring(t *testing.T) {
	t.Parallel()

	bubble(t, "a successor starts while the old one finishes, and only one at a time", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.Slots = 3 })
		up := f.up(3)
		for _, c := range up {
			c.say(retires("quota"))
		}
		require.Equal(t, 4, f.spawned())
		f.up(1)
		f.wait(time.Hour)
		require.Equal(t, 4, f.spawned(), "max_retiring is 1")
		up[0].leave(9, "")
		require.Equal(t, 5, f.spawned())
		f.up(1)
		up[2].leave(9, "") // its own slot is empty now
		require.Equal(t, 6, f.spawned())
		f.up(1)
		up[1].leave(9, "")
		require.Equal(t, 6, f.spawned())
		require.Len(t, f.sys.alive(), 3)
	})

	bubble(t, "without room for another the old one leaves first", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.MaxRetiring = 0 })
		up := f.up(2)
		up[0].say(retires("quota"))
		up[1].say(retires("age"))
		require.Equal(t, 2, f.spawned())
		require.Empty(t, up[0].hear())
		require.Empty(t, up[1].hear(), "one at a time")
		up[0].leave(9, "")
		f.up(1)
		require.Equal(t, []string{"retire"}, up[1].hear())
		up[1].leave(9, "")
		require.Equal(t, 4, f.spawned())
	})

	for _, reason := range []string{"age", "memory"} {
		bubble(t, "for its "+reason+" a worker goes on until its successor is ready", func(t *testing.T) {
			f := setup(t)
			up := f.up(2)
			f.wait(grownAfter)
			up[0].say(retires(reason))
			up[1].say(retires(reason))
			require.Equal(t, 3, f.spawned())
			require.Empty(t, up[0].hear())
			f.up(1)
			require.Equal(t, []string{"retire"}, up[0].hear())
			f.wait(time.Hour)
			require.Equal(t, 3, f.spawned())
			require.Empty(t, up[1].hear(), "it goes on: there is no room")
			up[0].leave(9, "")
			f.up(1)
			require.Equal(t, []string{"retire"}, up[1].hear())
		})
	}

	bubble(t, "a successor that dies costs the old one nothing", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(retires("age"))
		f.newest().crash()
		require.Empty(t, up[0].hear())
		f.wait(firstDelay)
		require.Equal(t, 4, f.spawned())
		f.up(1)
		require.Equal(t, []string{"retire"}, up[0].hear())
	})

	bubble(t, "a successor takes the place of one that dies meanwhile", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(retires("age"))
		up[0].crash()
		f.up(1)
		f.wait(time.Minute)
		require.Equal(t, 3, f.spawned())
		require.Len(t, f.sys.alive(), 2)
	})

	bubble(t, "one process with one thread runs one job at a time, also in between", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.Slots, c.Threads = 1, 1 })
		old := f.up(1)[0]
		old.say(retires("quota"))
		next := f.newest()
		require.Equal(t, []string{"welcome waiting"}, next.hello())
		next.say(proc.Message{Type: proc.Ready})
		f.signal(syscall.SIGUSR2)
		f.signal(syscall.SIGCONT)
		require.Empty(t, next.hear(), "it knows that it has to wait")
		old.leave(1, "")
		require.Equal(t, []string{"state running"}, next.hear())
	})
}

func TestUntilEmpty(t *testing.T) {
	t.Parallel()

	bubble(t, "the master ends when every worker has found nothing to do", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].leave(3, "empty")
		require.Equal(t, 2, f.spawned())
		require.True(t, f.running())
		up[1].leave(3, "empty")
		require.NoError(t, f.over())
	})

	bubble(t, "one that makes room for its successor closes nothing", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(retires("quota"))
		next := f.up(1)[0]
		up[0].leave(9, "empty")
		next.crash()
		f.wait(firstDelay)
		require.Equal(t, 4, f.spawned())
	})

	bubble(t, "jobs of a crashed worker are done before it ends", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[1].spec.Proc, reserved("a", 0))
		up[1].crash()
		up[0].leave(3, "empty")
		f.wait(firstDelay)
		f.up(1)[0].leave(1, "empty")
		for range 5 { // slots that were closed before the job was back are open again
			for _, c := range f.sys.alive() {
				if len(c.hello()) > 0 {
					c.say(proc.Message{Type: proc.Ready})
					f.wait(2 * time.Second)
					c.leave(0, "empty")
				}
			}
		}
		require.NoError(t, f.over())
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})
}

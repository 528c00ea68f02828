package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/control"
	"github.com/resqued/resqued/internal/sys/proc"
)

// fakePeer is another master controlled by the test.
type fakePeer struct {
	mu     sync.Mutex
	heard  []string
	said   chan proc.Message
	gone   chan struct{}
	over   sync.Once
	killed bool
}

func newPeer() *fakePeer {
	return &fakePeer{said: make(chan proc.Message, 100), gone: make(chan struct{})}
}

func (p *fakePeer) PID() int { return 77 }

func (p *fakePeer) Send(m proc.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := m.Type
	switch m.Type {
	case proc.Welcome, proc.SetState, proc.Charge:
		text += " " + m.State
	case proc.Signal, proc.Failed:
		text += " " + m.Reason
	case proc.Filled:
		text += fmt.Sprint(" ", m.Slots, " ", m.On)
	}
	p.heard = append(p.heard, text)
	return nil
}

func (p *fakePeer) Recv() (proc.Message, error) {
	select {
	case m := <-p.said:
		return m, nil
	case <-p.gone:
		return proc.Message{}, io.EOF
	}
}

func (p *fakePeer) Kill() error {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.end()
	return nil
}

func (p *fakePeer) Close() error {
	p.end()
	return nil
}

// end plays its end.
func (p *fakePeer) end() { p.over.Do(func() { close(p.gone) }) }

func (p *fakePeer) say(m proc.Message) {
	p.said <- m
	synctest.Wait()
}

// hear returns the master's messages to it since the last call.
func (p *fakePeer) hear() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	list := append([]string{}, p.heard...)
	p.heard = nil
	return list
}

func (p *fakePeer) wasKilled() bool {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// upgrading runs a master of n slots whose program has changed; started is the result of
// starting it again.
func upgrading(t *testing.T, n int, started error) (*fixture, *fakePeer, []*fakeChild) {
	t.Helper()
	peer := newPeer()
	f := setup(t, func(f *fixture, c *Config) {
		c.Slots = n
		f.reload = func() (Config, error) { return Config{}, errors.New("the configuration is not to be read") }
		f.upgrade = Upgrade{
			Changed: func() (bool, error) { return true, nil },
			Start: func(context.Context) (Peer, error) {
				if started != nil {
					return nil, started
				}
				return peer, nil
			},
			InCharge: func(on bool) { f.charges = append(f.charges, on) },
		}
	})
	t.Cleanup(peer.end)
	return f, peer, f.up(n)
}

// ask sends a request and returns a channel for the verdict.
func (f *fixture) ask(r Request) <-chan control.Reply {
	verdicts := make(chan control.Reply, 1)
	r.Answer = func(v control.Reply) { verdicts <- v }
	f.requests <- r
	synctest.Wait()
	return verdicts
}

// ready takes a new master up to the moment when it is in charge.
func (p *fakePeer) ready() {
	p.say(proc.Message{Type: proc.Hello, Protocol: proc.BesideProtocol})
	p.say(proc.Message{Type: proc.Up})
	p.say(proc.Message{Type: proc.InCharge})
}

func TestUpgrade(t *testing.T) {
	t.Parallel()

	bubble(t, "the slots go over one by one, each when the one before is empty", func(t *testing.T) {
		f, peer, up := upgrading(t, 3, nil)
		asked := f.ask(Request{})
		require.Equal(t, 1, f.systemd.count("reloading"))
		peer.say(proc.Message{Type: proc.Hello, Protocol: proc.BesideProtocol})
		require.Equal(t, []string{"welcome running"}, peer.hear())
		for _, c := range up {
			require.Empty(t, c.hear(), "the new one is not ready")
		}
		peer.say(proc.Message{Type: proc.Up})
		require.Equal(t, []string{"charge running"}, peer.hear())
		require.Equal(t, 1, f.systemd.count("main pid 77"))
		require.Empty(t, f.charges)
		require.Empty(t, asked, "it is not in charge yet")
		peer.say(proc.Message{Type: proc.InCharge})
		require.Equal(t, []bool{false}, f.charges)
		f.redis.set(func() {
			require.Equal(t, "handed over", f.redis.masters[len(f.redis.masters)-1].Fields["state"], "at once")
		})
		v := <-asked
		require.True(t, v.OK)
		require.Equal(t, 77, v.PID)
		for n := 1; n <= 2; n++ {
			peer.say(proc.Message{Type: proc.Filled, Slots: n})
			require.Empty(t, peer.hear(), "a worker process of the old one is there")
			left := 0
			for _, c := range up {
				if !c.isDead() {
					if h := c.hear(); len(h) > 0 {
						require.Equal(t, []string{"retire"}, h)
						c.leave(1, "")
						left++
					}
				}
			}
			require.Equal(t, 1, left, "one leaves at a time")
			require.Equal(t, []string{"next"}, peer.hear())
		}
		require.True(t, f.running())
		peer.say(proc.Message{Type: proc.Filled, Slots: 3, On: true})
		for _, c := range up {
			if !c.isDead() {
				require.Equal(t, []string{"retire"}, c.hear())
				c.leave(1, "")
			}
		}
		require.NoError(t, f.over())
		require.Equal(t, 3, f.spawned())
		require.True(t, f.redis.dropped)
	})

	bubble(t, "a long job does not hold up the next slot for ever", func(t *testing.T) {
		f, peer, up := upgrading(t, 2, nil)
		f.signal(syscall.SIGHUP)
		peer.ready()
		peer.hear()
		peer.say(proc.Message{Type: proc.Filled, Slots: 1})
		f.wait(giveEvery - time.Second)
		require.Empty(t, peer.hear())
		f.wait(2 * time.Second)
		require.Equal(t, []string{"next"}, peer.hear())
		retired := 0
		for _, c := range up {
			retired += len(c.hear())
		}
		require.Equal(t, 1, retired, "the other one works until its place is taken")
	})

	bubble(t, "a slot that has not gone over is kept filled", func(t *testing.T) {
		f, peer, up := upgrading(t, 2, nil)
		f.signal(syscall.SIGHUP)
		peer.ready()
		peer.say(proc.Message{Type: proc.Filled, Slots: 1})
		stays := up[0]
		if len(up[0].hear()) > 0 {
			stays = up[1]
		}
		stays.crash()
		f.wait(longestDelay)
		require.Equal(t, 3, f.spawned())
		f.newest().boot()
	})

	bubble(t, "a longer time to boot gives a new version longer, and it is said", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.BootTimeout = 3 * time.Minute })
		require.Equal(t, 210*time.Second, (<-f.ask(Request{Do: control.Status})).Takes)
	})

	bubble(t, "the service manager is asked for the time that it may take", func(t *testing.T) {
		f, _, _ := upgrading(t, 2, nil)
		f.ask(Request{Do: control.Upgrade})
		synctest.Wait()
		require.Equal(t, 1, f.systemd.count("extend "+(upgradePatience+extension).String()))
	})

	for name, c := range map[string]struct {
		start   error
		fail    func(*fixture, *fakePeer)
		because string
	}{
		"cannot be started":     {start: errors.New("exec format error"), because: "exec format error"},
		"says why it cannot":    {fail: func(_ *fixture, p *fakePeer) { p.say(proc.Message{Type: proc.Failed, Reason: "line 3"}); p.end() }, because: "line 3"},
		"ends without a word":   {fail: func(_ *fixture, p *fakePeer) { p.end() }, because: "ended before its first worker process was ready"},
		"speaks something else": {fail: func(_ *fixture, p *fakePeer) { p.say(proc.Message{Type: proc.Hello, Protocol: 99}) }, because: "protocol 99"},
		"does not get ready":    {fail: func(f *fixture, _ *fakePeer) { f.wait(upgradePatience + time.Second) }, because: "not ready after 1m0s"},
		"waits for what is away": {fail: func(f *fixture, p *fakePeer) {
			p.say(proc.Message{Type: proc.Failed, Reason: "waiting for redis"})
			f.wait(upgradePatience + time.Second)
		}, because: "waiting for redis"},
	} {
		bubble(t, "nothing changes if the new version "+name, func(t *testing.T) {
			f, peer, up := upgrading(t, 2, c.start)
			before := f.standing()
			asked := f.ask(Request{Do: control.Upgrade})
			if c.fail != nil {
				c.fail(f, peer)
			}
			synctest.Wait()
			v := <-asked
			require.False(t, v.OK)
			require.Contains(t, v.Text, c.because)
			require.Equal(t, before, f.standing())
			require.Empty(t, up[0].hear())
			require.Contains(t, f.sys.title(), "; reload refused: ")
			require.Zero(t, f.systemd.count("main pid"))
			require.Equal(t, 2, f.systemd.count("ready"))
			require.Empty(t, f.charges)
			if c.start == nil {
				select {
				case <-peer.gone:
				default:
					t.Fatal("it was not ended")
				}
			}
			// The next successful one clears the complaint.
			f.m.d.Upgrade.Changed = func() (bool, error) { return false, nil }
			f.reload = func() (Config, error) { return f.m.cfg, nil }
			f.signal(syscall.SIGHUP)
			f.newest().boot()
			f.wait(2 * tellEvery)
			require.NotContains(t, f.sys.title(), "refused")
		})
	}

	bubble(t, "one that dies after it took over gives everything back", func(t *testing.T) {
		f, peer, _ := upgrading(t, 2, nil)
		f.signal(syscall.SIGHUP)
		peer.ready()
		peer.say(proc.Message{Type: proc.Filled, Slots: 2, On: true})
		require.Empty(t, f.m.slots)
		peer.end()
		f.up(1)
		f.up(1)
		require.Len(t, f.m.slots, 2)
		require.Equal(t, []bool{false, true}, f.charges)
		require.Equal(t, 1, f.systemd.count("speak"))
		require.Equal(t, 4, f.spawned())
	})

	bubble(t, "what is asked of the new one reaches the old one", func(t *testing.T) {
		f, peer, up := upgrading(t, 2, nil)
		f.signal(syscall.SIGHUP)
		peer.ready()
		peer.say(proc.Message{Type: proc.Signal, Reason: "SIGUSR2"})
		require.Equal(t, signals.Paused, f.m.state)
		peer.say(proc.Message{Type: proc.Signal, Reason: "SIGCONT"})
		peer.say(proc.Message{Type: proc.Signal, Reason: "SIGQUIT"})
		require.Contains(t, up[0].hear(), "state draining")
		up[0].leave(1, "")
		up[1].leave(1, "")
		require.NoError(t, f.over())
	})

	bubble(t, "a drain of both that takes too long ends as the new one says", func(t *testing.T) {
		f, peer, up := upgrading(t, 1, nil)
		f.signal(syscall.SIGHUP)
		peer.ready()
		peer.say(proc.Message{Type: proc.Signal, Reason: "SIGQUIT"})
		peer.say(proc.Message{Type: proc.KillJobs, Cause: "too long", Requeue: true, Exit: true})
		require.Equal(t, []string{"state draining", "kill 10s exit requeue: too long"}, up[0].hear())
		require.Equal(t, &overrun{"too long", true}, f.m.over)
		up[0].leave(0, "")
		require.NoError(t, f.over())
	})

	bubble(t, "a stop ends a new version that is not in charge", func(t *testing.T) {
		f, peer, up := upgrading(t, 1, nil)
		asked := f.ask(Request{})
		peer.say(proc.Message{Type: proc.Hello, Protocol: proc.BesideProtocol})
		f.signal(syscall.SIGQUIT)
		require.True(t, peer.wasKilled())
		require.False(t, (<-asked).OK)
		up[0].leave(1, "")
		require.NoError(t, f.over())
	})

	bubble(t, "a pause meanwhile goes over, and so does a reload", func(t *testing.T) {
		f, peer, _ := upgrading(t, 1, nil)
		f.signal(syscall.SIGHUP)
		peer.say(proc.Message{Type: proc.Hello, Protocol: proc.BesideProtocol})
		f.signal(syscall.SIGUSR2)
		f.signal(syscall.SIGHUP)
		asked := f.ask(Request{})
		peer.say(proc.Message{Type: proc.Up})
		require.Equal(t, []string{"welcome running", "state paused", "charge paused", "signal SIGHUP"}, peer.hear())
		v := <-asked
		require.True(t, v.Elsewhere)
		require.Equal(t, 77, v.PID)
		require.True(t, (<-f.ask(Request{})).Elsewhere)
	})
}

// succeeding runs a master of n slots that replaces another one.
func succeeding(t *testing.T, n int, change ...func(*fixture, *Config)) (*fixture, *fakePeer) {
	t.Helper()
	peer := newPeer()
	f := setup(t, append(change, func(f *fixture, c *Config) {
		c.Slots = n
		f.upgrade = Upgrade{Elder: peer, InCharge: func(on bool) { f.charges = append(f.charges, on) }}
	})...)
	t.Cleanup(peer.end)
	return f, peer
}

func TestTakeOver(t *testing.T) {
	t.Parallel()

	bubble(t, "slots are filled as the old master gives them", func(t *testing.T) {
		f, elder := succeeding(t, 3)
		require.Equal(t, []string{"hello"}, elder.hear())
		require.Zero(t, f.spawned(), "the old one has not answered")
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		f.up(1)
		f.wait(time.Minute)
		require.Equal(t, 1, f.spawned(), "one is the proof")
		require.Equal(t, []string{"up"}, elder.hear())
		require.Empty(t, f.charges)
		require.Equal(t, 1, f.systemd.count("hold"))
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		require.Equal(t, []string{"in charge", "filled 1 false"}, elder.hear())
		require.Equal(t, []bool{true}, f.charges)
		require.Equal(t, 1, f.systemd.count("speak"))
		elder.say(proc.Message{Type: proc.Next})
		f.up(1)
		require.Equal(t, []string{"filled 2 false"}, elder.hear())
		elder.say(proc.Message{Type: proc.Next})
		f.up(1)
		require.Equal(t, []string{"filled 3 true"}, elder.hear())
		elder.end()
		f.wait(time.Minute)
		require.True(t, f.running())
		require.Contains(t, f.sys.title(), "running, 3 workers, 3/12 busy")
	})

	bubble(t, "it ends if the old one goes before it is in charge", func(t *testing.T) {
		f, elder := succeeding(t, 1)
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		c := f.up(1)[0]
		elder.end()
		require.Contains(t, c.hear(), "state draining")
		c.leave(0, "")
		require.ErrorIs(t, f.over(), errElderGone)
	})

	bubble(t, "if the old one goes afterwards, all slots are filled", func(t *testing.T) {
		f, elder := succeeding(t, 2)
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		f.up(1)
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		elder.end()
		f.up(1)
		require.Equal(t, 2, f.spawned())
		require.True(t, f.running())
	})

	bubble(t, "it says why its first worker process has ended", func(t *testing.T) {
		f, elder := succeeding(t, 2)
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		f.newest().die(proc.Exit{Code: 78})
		require.ErrorContains(t, f.over(), "its first worker process ended: exit code 78")
		require.Contains(t, elder.hear()[1], "failed its first worker process ended: exit code 78")
	})

	bubble(t, "it stays until the old one has ended, and passes on what it is told", func(t *testing.T) {
		f, elder := succeeding(t, 1)
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		c := f.up(1)[0]
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		elder.hear()
		f.signal(syscall.SIGQUIT)
		require.Equal(t, []string{"signal SIGQUIT"}, elder.hear())
		c.leave(1, "")
		extended := f.systemd.count("extend")
		f.wait(time.Hour)
		require.True(t, f.running())
		require.Greater(t, f.systemd.count("extend"), extended+100)
		elder.end()
		require.NoError(t, f.over())
	})

	bubble(t, "its drain_timeout is that of the old one, too", func(t *testing.T) {
		f, elder := succeeding(t, 1, func(_ *fixture, c *Config) { c.DrainTimeout, c.DrainRequeue = time.Minute, true })
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		c := f.up(1)[0]
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		f.signal(syscall.SIGQUIT)
		c.leave(0, "")
		elder.hear()
		f.wait(2 * time.Minute)
		require.Equal(t, []string{"kill"}, elder.hear(), "not as a signal, which would fail the jobs")
		require.True(t, elder.wasKilled())
		require.NoError(t, f.over())
	})

	bubble(t, "an old one that ignores a kill is killed", func(t *testing.T) {
		f, elder := succeeding(t, 1)
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		c := f.up(1)[0]
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		f.signal(syscall.SIGTERM)
		c.leave(0, "")
		require.False(t, elder.wasKilled())
		f.wait(time.Minute)
		require.True(t, elder.wasKilled())
		require.NoError(t, f.over())
	})

	bubble(t, "it is paused if the old one is", func(t *testing.T) {
		f, elder := succeeding(t, 1)
		elder.say(proc.Message{Type: proc.Welcome, State: "paused"})
		require.Equal(t, []string{"welcome paused"}, f.newest().hello())
		f.newest().ready()
		require.Equal(t, signals.Paused, f.m.state)
		elder.say(proc.Message{Type: proc.SetState, State: "running"})
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "the only worker process takes jobs at once, whatever the old one still has", func(t *testing.T) {
		f, elder := succeeding(t, 1, func(_ *fixture, c *Config) { c.Threads = 1 })
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		c := f.newest()
		require.Equal(t, []string{"welcome running"}, c.hello())
		c.ready()
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		require.Equal(t, []string{"hello", "up", "in charge", "filled 1 true"}, elder.hear())
		f.wait(time.Minute)
		require.Equal(t, 1, f.spawned())
	})

	bubble(t, "a reload waits until all slots are taken over", func(t *testing.T) {
		f, elder := succeeding(t, 2, func(f *fixture, c *Config) {
			next := *c
			next.Slots, next.Worker = 2, []byte("two")
			f.reload = func() (Config, error) { return next, nil }
		})
		elder.say(proc.Message{Type: proc.Welcome, State: "running"})
		f.up(1)
		elder.say(proc.Message{Type: proc.Charge, State: "running"})
		asked := f.ask(Request{})
		require.Equal(t, 1, f.spawned())
		elder.say(proc.Message{Type: proc.Next})
		f.up(1)
		f.up(1)
		require.Equal(t, []byte("two"), f.newest().spec.Config)
		require.True(t, (<-asked).OK)
	})
}

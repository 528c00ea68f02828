package master

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/sys/control"
	"github.com/resqued/resqued/internal/sys/proc"
)

// standing is everything that a refused reload might change in a master.
func (f *fixture) standing() any {
	synctest.Wait()
	type place struct {
		number, failures int
		due              time.Time
		closed           bool
		current          string
	}
	var places []place
	for _, s := range f.m.slots {
		p := place{number: s.number, failures: s.failures, due: s.due, closed: s.closed}
		if s.current != nil && s.current.gen == f.m.gen {
			p.current = s.current.proc
		}
		places = append(places, p)
	}
	cfg := f.m.cfg
	cfg.InForce = nil // functions cannot be compared
	return []any{cfg, f.m.gen, f.m.state, f.m.startAs, places, f.m.apart.waiting, f.m.poller != nil}
}

// reloading runs a master of n slots that finds another configuration.
func reloading(t *testing.T, n int, change func(*Config)) (*fixture, []*fakeChild) {
	t.Helper()
	f := setup(t, func(f *fixture, c *Config) {
		c.Slots = n
		next := *c
		next.Worker = []byte("two")
		if change != nil {
			change(&next)
		}
		f.reload = func() (Config, error) { return next, nil }
	})
	return f, f.up(n)
}

func TestReload(t *testing.T) {
	t.Parallel()

	bubble(t, "worker processes are replaced one after another", func(t *testing.T) {
		f, up := reloading(t, 3, nil)
		f.signal(syscall.SIGHUP)
		require.Equal(t, 1, f.systemd.count("reloading"))
		for i := range up {
			require.Equal(t, 4+i, f.spawned())
			c := f.newest()
			require.Equal(t, []byte("two"), c.spec.Config)
			require.Empty(t, up[i].hear(), "its successor is not ready")
			c.boot()
			require.Equal(t, []string{"retire"}, up[i].hear())
			require.Equal(t, 4+i, f.spawned(), "the old one is not gone")
			up[i].leave(5, "")
		}
		f.wait(time.Minute)
		require.Equal(t, 6, f.spawned())
		require.Equal(t, 2, f.systemd.count("ready"))
		require.Contains(t, f.sys.title(), "running, 3 workers, 3/12 busy")
	})

	bubble(t, "the next one waits for few of the jobs of those that the one before replaces", func(t *testing.T) {
		f, _ := reloading(t, 3, nil)
		again := func(name string) <-chan control.Reply {
			next := f.m.cfg
			next.Worker = []byte(name)
			f.reload = func() (Config, error) { return next, nil }
			return f.ask(Request{})
		}
		var retired []*fakeChild // all have long jobs
		for i, name := range []string{"two", "three"} {
			verdict := again(name)
			c := f.newest()
			require.Equal(t, name, string(c.spec.Config))
			before := f.m.slots[f.m.leastBusy()].current.child.(*fakeChild)
			c.boot()
			require.True(t, (<-verdict).OK)
			require.Equal(t, []string{"retire"}, before.hear())
			retired = append(retired, before)
			f.wait(time.Minute)
			require.Equal(t, 4+i, f.spawned())
		}
		verdict := again("four")
		f.wait(time.Minute)
		require.Equal(t, 5, f.spawned(), "two are leaving, which is one more than max_retiring")
		retired[0].leave(1, "")
		require.Equal(t, "four", string(f.newest().spec.Config))
		f.newest().boot()
		require.True(t, (<-verdict).OK)
		require.Equal(t, 4, f.systemd.count("ready"))
	})

	bubble(t, "a configuration that cannot be read changes nothing", func(t *testing.T) {
		f, up := reloading(t, 2, nil)
		f.reload = func() (Config, error) { return Config{}, errors.New("line 3: worker_cuont is unknown") }
		f.signal(syscall.SIGHUP)
		f.wait(time.Minute)
		require.Equal(t, 2, f.spawned())
		require.Empty(t, up[0].hear())
		require.Equal(t, 2, f.systemd.count("ready"))
		require.Nil(t, f.m.roll)
	})

	bubble(t, "one without worker processes is refused", func(t *testing.T) {
		f, _ := reloading(t, 2, func(c *Config) { c.Slots = 0 })
		f.signal(syscall.SIGHUP)
		require.Equal(t, 2, f.spawned())
		require.Equal(t, 2, f.systemd.count("ready"))
	})

	for name, exit := range map[string]proc.Exit{
		"dies":                         {Code: -1, Signal: syscall.SIGSEGV},
		"cannot use its configuration": {Code: 78},
	} {
		bubble(t, "the old one stays if the first new process "+name, func(t *testing.T) {
			f, up := reloading(t, 2, nil)
			f.signal(syscall.SIGHUP)
			f.newest().die(exit)
			f.wait(time.Minute)
			require.True(t, f.running())
			require.Equal(t, 3, f.spawned())
			require.Empty(t, up[0].hear())
			require.Equal(t, 2, f.systemd.count("ready"))
			// Processes that die now are replaced with the old configuration.
			up[0].crash()
			f.wait(longestDelay)
			require.Equal(t, []byte("one"), f.newest().spec.Config)
		})
	}

	for name, refuse := range map[string]func(*fixture){
		"cannot be read": func(f *fixture) { f.reload = func() (Config, error) { return Config{}, errors.New("line 3") } },
		"cannot work":    func(f *fixture) { f.reload = func() (Config, error) { return Config{Threads: 1}, nil } },
		"cannot start": func(f *fixture) {
			f.sys.mu.Lock()
			f.sys.fail = errors.New("no memory")
			f.sys.mu.Unlock()
		},
		"dies":            func(*fixture) {},
		"is never ready":  func(*fixture) {},
		"cannot be used":  func(*fixture) {},
		"leaves politely": func(*fixture) {},
	} {
		bubble(t, "whatever refuses it, nothing has changed: it "+name, func(t *testing.T) {
			inForce := 0
			f, up := reloading(t, 3, func(c *Config) {
				*c = Config{
					Slots: 1, Threads: 2, MaxRetiring: 1, TermTimeout: time.Second, DrainTimeout: time.Second, BootTimeout: 5 * time.Second,
					LockDuration: time.Minute, MaxDeaths: 9, OnMasterDeath: "kill", Worker: []byte("two"), Env: []string{"A=1"},
					Fields: map[string]string{"queues": "other"}, InForce: func() { inForce++ },
				}
			})
			// One slot waits after a death, one has closed.
			for range 6 {
				up[0].crash()
				f.wait(longestDelay)
				up[0] = f.newest()
			}
			up[0].crash()
			up[1].leave(0, proc.Empty)
			before, spawned := f.standing(), f.spawned()
			refuse(f)
			f.signal(syscall.SIGHUP)
			if f.spawned() > spawned {
				trial := f.newest()
				require.Equal(t, []byte("two"), trial.spec.Config)
				if name != "is never ready" {
					require.Equal(t, before, f.standing(), "while it is tried")
				}
				switch name {
				case "dies":
					trial.crash()
				case "cannot be used":
					trial.hello()
					trial.die(proc.Exit{Code: 78})
				case "leaves politely":
					trial.hello()
					trial.leave(0, "")
				case "is never ready":
					f.wait(31 * time.Second)
					require.Equal(t, []byte("one"), f.newest().spec.Config, "the slot has waited long enough meanwhile")
					before = f.standing()
				}
			}
			require.Equal(t, before, f.standing())
			require.Nil(t, f.m.roll)
			require.Equal(t, 2, f.systemd.count("ready"))
			require.Zero(t, inForce)
		})
	}

	bubble(t, "what else depends on the configuration changes when it has proven itself", func(t *testing.T) {
		inForce := 0
		f, _ := reloading(t, 2, func(c *Config) { c.InForce = func() { inForce++ } })
		f.signal(syscall.SIGHUP)
		require.Zero(t, inForce)
		f.up(1)
		require.Equal(t, 1, inForce)
		f.up(1)
		f.wait(time.Minute)
		require.Equal(t, 1, inForce)
	})

	bubble(t, "each worker process is judged by the configuration that it has", func(t *testing.T) {
		f, up := reloading(t, 1, func(c *Config) {
			c.TermTimeout, c.LockDuration, c.Threads = 20*time.Second, 5*time.Second, 9
		})
		old := f.m.slots[0].current
		f.signal(syscall.SIGHUP)
		c := f.newest()
		c.hello()
		require.Equal(t, 20*time.Second, c.grace())
		patience := old.patience()
		c.ready()
		require.Equal(t, patience, old.patience(), "its locks last as long as before")
		require.Greater(t, patience, f.m.slots[0].current.patience())
		up[0].leave(1, "")
	})

	bubble(t, "a configuration that works helps slots that crash with the old one", func(t *testing.T) {
		f := setup(t)
		f.up(1)
		for range 8 {
			f.newest().crash()
			f.wait(longestDelay)
		}
		f.newest().crash()
		f.reload = func() (Config, error) {
			return Config{Slots: 2, Threads: 4, MaxRetiring: 1, MaxDeaths: 3, Worker: []byte("two")}, nil
		}
		before := f.spawned()
		f.signal(syscall.SIGHUP)
		require.Equal(t, before+1, f.spawned(), "at once")
		require.Equal(t, []byte("two"), f.newest().spec.Config)
		f.up(1)
		require.Equal(t, []byte("two"), f.newest().spec.Config)
		f.up(1)
	})

	bubble(t, "slots are added", func(t *testing.T) {
		f, up := reloading(t, 1, func(c *Config) { c.Slots = 3 })
		f.signal(syscall.SIGHUP)
		f.up(1)
		up[0].leave(1, "")
		f.up(2)
		f.wait(time.Minute)
		require.Equal(t, 4, f.spawned())
		require.Len(t, f.sys.alive(), 3)
	})

	bubble(t, "slots are removed when their workers have finished", func(t *testing.T) {
		f, up := reloading(t, 3, func(c *Config) { c.Slots = 1 })
		f.signal(syscall.SIGHUP)
		f.up(1)
		for _, c := range up {
			require.Equal(t, []string{"retire"}, c.hear())
			c.leave(1, "")
		}
		f.wait(time.Minute)
		require.Equal(t, 4, f.spawned())
		require.Len(t, f.sys.alive(), 1)
	})

	bubble(t, "a paused master stays paused", func(t *testing.T) {
		f, _ := reloading(t, 2, nil)
		f.signal(syscall.SIGUSR2)
		f.signal(syscall.SIGHUP)
		require.Equal(t, []string{"welcome paused"}, f.newest().hello())
	})

	bubble(t, "HUPs that come meanwhile are one more reload", func(t *testing.T) {
		f, up := reloading(t, 1, nil)
		f.signal(syscall.SIGHUP)
		f.signal(syscall.SIGHUP)
		f.signal(syscall.SIGHUP)
		for i := range 2 {
			require.Equal(t, 2+i, f.spawned())
			next := f.up(1)[0]
			up[0].leave(1, "")
			up[0] = next
		}
		f.wait(time.Minute)
		require.Equal(t, 3, f.spawned())
		require.Equal(t, 2, f.systemd.count("reloading"))
	})

	bubble(t, "during the start it waits for the first worker", func(t *testing.T) {
		f := setup(t)
		f.reload = func() (Config, error) {
			return Config{Slots: 2, Threads: 4, MaxRetiring: 1, MaxDeaths: 3, Worker: []byte("two")}, nil
		}
		f.signal(syscall.SIGHUP)
		require.Zero(t, f.systemd.count("reloading"))
		f.up(1)
		require.Equal(t, 1, f.systemd.count("reloading"))
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "a drain ends it", func(t *testing.T) {
		f, up := reloading(t, 2, nil)
		f.signal(syscall.SIGHUP)
		next := f.newest()
		f.signal(syscall.SIGQUIT)
		require.Equal(t, []string{"welcome draining"}, next.hello())
		next.die(proc.Exit{})
		for _, c := range up {
			require.Equal(t, []string{"state draining"}, c.hear())
			c.leave(1, "")
		}
		require.NoError(t, f.over())
		require.Equal(t, 3, f.spawned())
	})
}

// TestDropped: Dropped is called once for a configuration that does not take effect, and not for
// one in force.
func TestDropped(t *testing.T) {
	t.Parallel()
	counted := func(t *testing.T, change func(*Config)) (f *fixture, dropped, inForce *int) {
		t.Helper()
		dropped, inForce = new(int), new(int)
		f, _ = reloading(t, 2, func(c *Config) {
			c.Dropped = func() { *dropped++ }
			c.InForce = func() { *inForce++ }
			if change != nil {
				change(c)
			}
		})
		return f, dropped, inForce
	}

	bubble(t, "one that takes effect", func(t *testing.T) {
		f, dropped, inForce := counted(t, nil)
		f.signal(syscall.SIGHUP)
		f.newest().boot()
		f.wait(time.Minute)
		require.Equal(t, []int{0, 1}, []int{*dropped, *inForce})
		f.signal(syscall.SIGTERM)
		f.wait(time.Second)
		require.Zero(t, *dropped)
	})
	bubble(t, "one that is no good", func(t *testing.T) {
		f, dropped, inForce := counted(t, func(c *Config) { c.Slots = 0 })
		f.signal(syscall.SIGHUP)
		f.wait(time.Second)
		require.Equal(t, []int{1, 0}, []int{*dropped, *inForce})
	})
	bubble(t, "one whose first worker process cannot use it", func(t *testing.T) {
		f, dropped, inForce := counted(t, nil)
		f.signal(syscall.SIGHUP)
		f.newest().die(proc.Exit{Code: 78})
		f.wait(time.Minute)
		require.Equal(t, []int{1, 0}, []int{*dropped, *inForce})
		require.Nil(t, f.m.roll)
	})
	bubble(t, "one that the end of the daemon overtakes", func(t *testing.T) {
		f, dropped, inForce := counted(t, nil)
		f.signal(syscall.SIGHUP)
		require.NotNil(t, f.m.roll)
		f.signal(syscall.SIGTERM)
		f.wait(time.Second)
		require.Equal(t, []int{1, 0}, []int{*dropped, *inForce})
	})
}

package master

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

// ordered leaves orders for the master, and returns the answers as soon as it has written them.
func (f *fixture) ordered(orders ...store.Order) map[string]store.OrderAnswer {
	f.t.Helper()
	f.redis.set(func() { f.redis.orders = orders })
	f.look()
	return f.answers()
}

// answers returns the answers of the last renewal of the master's entry.
func (f *fixture) answers() map[string]store.OrderAnswer {
	f.t.Helper()
	synctest.Wait()
	f.redis.mu.Lock()
	defer f.redis.mu.Unlock()
	require.Empty(f.t, f.redis.orders, "they were not taken")
	require.NotEmpty(f.t, f.redis.masters)
	return f.redis.masters[len(f.redis.masters)-1].Answers
}

func order(id string, verb store.Verb) store.Order { return store.Order{ID: id, Verb: verb} }

func obeyed(text string) store.OrderAnswer { return store.OrderAnswer{Done: true, Text: text} }

func refused(text string) store.OrderAnswer { return store.OrderAnswer{Text: text} }

// In each state, each order acts like its signal, and the answer says what it did.
func TestOrders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state  signals.State
		verb   store.Verb
		next   signals.State
		answer store.OrderAnswer
		hears  []string
	}{
		{signals.Starting, store.OrderPause, signals.Starting, obeyed("it is starting, and will be paused"), []string{"state paused"}},
		{signals.Starting, store.OrderResume, signals.Starting, obeyed("it is running already"), []string{"state running"}},
		{signals.Starting, store.OrderDrain, signals.Draining, obeyed("draining"), []string{"state draining"}},
		{signals.Starting, store.OrderRecycle, signals.Starting, refused("it is starting"), nil},

		{signals.Running, store.OrderPause, signals.Paused, obeyed("paused"), []string{"state paused"}},
		{signals.Running, store.OrderResume, signals.Running, obeyed("it is running already"), []string{"state running"}},
		{signals.Running, store.OrderDrain, signals.Draining, obeyed("draining"), []string{"state draining"}},
		{signals.Running, store.OrderRecycle, signals.Running, obeyed("replacing 2 worker processes"), nil},
		{signals.Running, "explode", signals.Running, refused(`this version does not know the order "explode"`), nil},

		{signals.Paused, store.OrderPause, signals.Paused, obeyed("it is paused already"), []string{"state paused"}},
		{signals.Paused, store.OrderResume, signals.Running, obeyed("running"), []string{"state running"}},
		{signals.Paused, store.OrderDrain, signals.Draining, obeyed("draining"), []string{"state draining"}},
		{signals.Paused, store.OrderRecycle, signals.Paused, obeyed("replacing 2 worker processes"), nil},
		{signals.Paused, "explode", signals.Paused, refused(`this version does not know the order "explode"`), nil},

		{signals.Draining, store.OrderPause, signals.Draining, refused("it is draining"), nil},
		{signals.Draining, store.OrderResume, signals.Draining, refused("it is draining"), nil},
		{signals.Draining, store.OrderDrain, signals.Draining, obeyed("it is draining already"), nil},
		{signals.Draining, store.OrderRecycle, signals.Draining, refused("it is draining"), nil},
		{signals.Draining, "explode", signals.Draining, refused(`this version does not know the order "explode"`), nil},

		{signals.Killing, store.OrderPause, signals.Killing, refused("it is killing"), nil},
		{signals.Killing, store.OrderResume, signals.Killing, refused("it is killing"), nil},
		{signals.Killing, store.OrderDrain, signals.Killing, refused("it is killing"), nil},
		{signals.Killing, store.OrderRecycle, signals.Killing, refused("it is killing"), nil},
	} {
		bubble(t, fmt.Sprintf("%s %s", c.state, c.verb), func(t *testing.T) {
			f, workers := inState(t, c.state)
			require.Equal(t, map[string]store.OrderAnswer{"1": c.answer}, f.ordered(order("1", c.verb)))
			require.Equal(t, c.next, f.m.state)
			for _, w := range workers {
				require.ElementsMatch(t, c.hears, w.hear())
				require.False(t, w.wasKilled())
			}
		})
	}
	for _, c := range []struct {
		verb   store.Verb
		answer store.OrderAnswer
		state  signals.State
		ready  signals.State
		hears  string
	}{
		{store.OrderPause, obeyed("it is starting, and will be paused"), signals.Starting, signals.Paused, "welcome paused"},
		{store.OrderResume, obeyed("it is running already"), signals.Starting, signals.Running, "welcome running"},
		{store.OrderDrain, obeyed("draining"), signals.Draining, signals.Draining, "welcome draining"},
		{store.OrderRecycle, refused("it is starting"), signals.Starting, signals.Running, "welcome running"},
	} {
		bubble(t, fmt.Sprintf("starting %s", c.verb), func(t *testing.T) {
			f := setup(t, func(f *fixture, _ *Config) { f.redis.orders = []store.Order{order("1", c.verb)} })
			require.Equal(t, map[string]store.OrderAnswer{"1": c.answer}, f.answers())
			require.Equal(t, c.state, f.m.state)
			w := f.newest()
			require.Equal(t, []string{c.hears}, w.hello())
			w.ready()
			require.Equal(t, c.ready, f.m.state)
		})
	}

	bubble(t, "a start that was told to pause can be told to go on", func(t *testing.T) {
		f := setup(t, func(f *fixture, _ *Config) {
			f.redis.orders = []store.Order{order("1", store.OrderPause), order("2", store.OrderPause), order("3", store.OrderResume)}
		})
		require.Equal(t, map[string]store.OrderAnswer{
			"1": obeyed("it is starting, and will be paused"), "2": obeyed("it is paused already"), "3": obeyed("it is starting, and will be running"),
		}, f.answers())
		f.up(1)
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "a drain that was ordered ends when the last worker process has left", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.ordered(order("1", store.OrderDrain))
		up[0].leave(5, "")
		f.wait(time.Hour)
		require.True(t, f.running())
		require.Equal(t, 2, f.spawned())
		up[1].leave(5, "")
		require.NoError(t, f.over())
	})

	bubble(t, "orders that come together are carried out one after another, also behind a drain", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		require.Equal(t, map[string]store.OrderAnswer{
			"1": obeyed("paused"), "2": obeyed("running"), "3": obeyed("draining"), "4": refused("it is draining"), "5": refused("it is draining"),
		}, f.ordered(order("1", store.OrderPause), order("2", store.OrderResume), order("3", store.OrderDrain),
			order("4", store.OrderResume), order("5", store.OrderRecycle)))
		require.Equal(t, []string{"state paused", "state running", "state draining"}, up[0].hear())
		require.Equal(t, 2, f.spawned())
	})

	bubble(t, "single worker processes cannot be paused", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		for _, verb := range []store.Verb{store.OrderPause, store.OrderResume} {
			answer := f.ordered(store.Order{ID: string(verb), Verb: verb, Proc: up[0].spec.Proc})[string(verb)]
			require.Equal(t, refused("single worker processes cannot be told to "+string(verb)+"; name their master"), answer)
		}
		require.Equal(t, signals.Running, f.m.state)
		require.Empty(t, up[0].hear())
	})
}

func TestOrdersAreCarriedOutOnce(t *testing.T) {
	t.Parallel()

	bubble(t, "one that is delivered again changes nothing, and its answer stays", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		first := map[string]store.OrderAnswer{"1": obeyed("paused")}
		require.Equal(t, first, f.ordered(order("1", store.OrderPause), order("1", store.OrderPause)))
		f.signal(syscall.SIGCONT)
		require.Equal(t, first, f.ordered(order("1", store.OrderPause)))
		require.Equal(t, signals.Running, f.m.state)
		require.Equal(t, []string{"state paused", "state running"}, up[0].hear())
		require.Len(t, f.logs.FilterMessage("order from afar").All(), 1)
	})

	bubble(t, "for as long as an order waits in Redis", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		require.GreaterOrEqual(t, answerKept, store.OrderPatience)
		first := f.ordered(order("1", store.OrderPause))
		f.signal(syscall.SIGCONT)
		f.wait(store.OrderPatience - 2*roundEvery)
		require.Equal(t, first, f.ordered(order("1", store.OrderPause)))
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "an answer is written until one writing of it may have worked, and then forgotten", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		f.redis.set(func() {
			f.redis.orders, f.redis.down = []store.Order{order("1", store.OrderPause)}, errors.New("connection reset by peer")
		})
		f.wait(3 * roundEvery)
		require.Equal(t, signals.Paused, f.m.state, "what was read was carried out")
		f.redis.set(func() { f.redis.down = nil })
		f.look()
		require.Equal(t, map[string]store.OrderAnswer{"1": obeyed("paused")}, f.answers())
		f.wait(answerKept + 2*roundEvery)
		require.Empty(t, f.answers())
		require.Empty(t, f.m.answers)
	})
}

func TestRecycle(t *testing.T) {
	t.Parallel()

	bubble(t, "all are replaced one after another, and the full number is always there", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		require.Equal(t, obeyed("replacing 2 worker processes"), f.ordered(order("1", store.OrderRecycle))["1"])
		for i, old := range up {
			require.Equal(t, 3+i, f.spawned())
			require.Empty(t, old.hear(), "its successor is not ready")
			f.newest().boot()
			require.Equal(t, []string{"retire"}, old.hear())
			require.Equal(t, 3+i, f.spawned(), "max_retiring")
			old.leave(5, "")
		}
		f.wait(time.Minute)
		require.Equal(t, 4, f.spawned())
		for _, c := range f.sys.alive() {
			require.Equal(t, []byte("one"), c.spec.Config, "the configuration is not read again")
		}
		require.Zero(t, f.systemd.count("reloading"))
		require.NotEmpty(t, f.logs.FilterMessage("worker process recycled").FilterField(zap.String("reason", "order")).All())
		require.Equal(t, "died=0 jobs=0 memory=0 age=0 other=2", f.redis.shown(store.FieldEnds))
	})

	bubble(t, "with a max_retiring of 0 the place is free first", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.MaxRetiring = 0 })
		up := f.up(2)
		f.ordered(order("1", store.OrderRecycle))
		for i, old := range up {
			require.Equal(t, []string{"retire"}, old.hear())
			require.Equal(t, 2+i, f.spawned())
			old.leave(5, "")
			f.newest().boot()
			require.Equal(t, 3+i, f.spawned())
		}
		f.wait(time.Minute)
		require.Equal(t, 4, f.spawned())
	})

	for _, verb := range []store.Verb{store.OrderRecycle, store.OrderDrain} {
		bubble(t, "one that is named, by "+string(verb), func(t *testing.T) {
			f := setup(t)
			up := f.up(2)
			named := store.Order{ID: "1", Verb: verb, Proc: up[1].spec.Proc}
			require.Equal(t, obeyed("replacing 1 worker process"), f.ordered(named)["1"])
			require.Equal(t, signals.Running, f.m.state)
			f.newest().boot()
			require.Equal(t, []string{"retire"}, up[1].hear())
			require.Empty(t, up[0].hear())
			named.ID = "2"
			require.Equal(t, obeyed("nothing to replace"), f.ordered(named)["2"], "it is leaving")
			up[1].leave(5, "")
			named.ID = "3"
			require.Equal(t, refused("it has no such worker process"), f.ordered(named)["3"])
			f.wait(time.Minute)
			require.Equal(t, 3, f.spawned())
		})
	}

	bubble(t, "one that has just been started is as good as replaced", func(t *testing.T) {
		f := setup(t)
		f.up(1)
		booting := f.newest()
		require.Len(t, booting.hello(), 1)
		require.Equal(t, obeyed("nothing to replace"), f.ordered(store.Order{ID: "1", Verb: store.OrderRecycle, Proc: booting.spec.Proc})["1"])
		booting.ready()
		f.wait(time.Minute)
		require.Equal(t, 2, f.spawned())
	})

	bubble(t, "one that runs a suspect leaves by itself", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(waiting(1))
		alone := f.isolated(0)
		require.Equal(t, refused("it runs one suspect alone and leaves by itself"),
			f.ordered(store.Order{ID: "1", Verb: store.OrderRecycle, Proc: alone.spec.Proc})["1"])
		require.Equal(t, obeyed("replacing 2 worker processes"), f.ordered(order("2", store.OrderRecycle))["2"])
		require.Empty(t, alone.hear())
	})

	bubble(t, "not beside a reload", func(t *testing.T) {
		f, _ := reloading(t, 2, nil)
		f.signal(syscall.SIGHUP)
		require.Equal(t, refused("a reload is replacing them already"), f.ordered(order("1", store.OrderRecycle))["1"])
	})

	bubble(t, "not by a master that another replaces", func(t *testing.T) {
		f, peer, up := upgrading(t, 2, nil)
		f.ask(Request{})
		require.Equal(t, refused("process 77 starts to take over"), f.ordered(order("1", store.OrderRecycle))["1"])
		peer.say(proc.Message{Type: proc.Hello, Protocol: proc.BesideProtocol})
		peer.say(proc.Message{Type: proc.Up})
		peer.say(proc.Message{Type: proc.InCharge})
		require.Equal(t, refused("handed over to process 77"), f.ordered(order("2", store.OrderRecycle))["2"])
		require.Equal(t, 2, f.spawned())
		require.Empty(t, up[1].hear())
	})
}

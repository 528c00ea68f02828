package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// gathering is a store with one lane behind a proxy, with a first job under way that the
// proxy keeps.
type gathering struct {
	*fixture
	proxy *faultproxy.Proxy
	all   sync.WaitGroup
	// first is the job under way; its goroutine ends when it is let go.
	first *faultproxy.Caught
	sent  []int // jobs of each transaction but the first
	// gone makes the server unreachable.
	gone atomic.Bool
}

func isExec(q faultproxy.Request) bool { return q.Name == "EXEC" }

func behindProxy(t *testing.T, server *redistest.Server, change ...func(*store.Options)) (*fixture, *faultproxy.Proxy) {
	t.Helper()
	proxy, err := faultproxy.Listen(faultproxy.Config{Network: "unix", Address: server.Socket})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	change = append([]func(*store.Options){func(o *store.Options) { o.URL = "redis://" + proxy.Addr() + "/0" }}, change...)
	return setup(t, server, change...), proxy
}

func gather(t *testing.T) *gathering {
	t.Helper()
	g := &gathering{}
	g.fixture, g.proxy = behindProxy(t, redistest.Shared(t), func(o *store.Options) { o.PoolSize = 1 })
	first := true
	storetest.Intercept(g.Redis(), func(cmds []redis.Cmder, next func() error) error {
		if first {
			first = false
			return next()
		}
		if g.gone.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(redis.ErrPoolTimeout)
			}
			return redis.ErrPoolTimeout
		}
		n := 0
		for _, cmd := range cmds {
			if cmd.Name() == "rpush" {
				n += len(cmd.Args()) - 2
			}
		}
		g.sent = append(g.sent, n)
		return next()
	})
	caught := g.proxy.Trap(faultproxy.Trap{Match: isExec})
	g.all.Go(func() {
		_, err := g.PushTogether(context.Background(), "first", []byte(job("A", "[0]")))
		require.NoError(t, err)
	})
	g.first = <-caught
	t.Cleanup(func() {
		g.first.Pass()
		g.all.Wait()
	})
	return g
}

// pushed is what became of a job.
type pushed struct {
	length int64
	err    error
}

// push pushes a job by a goroutine of its own, and returns when it waits.
func (g *gathering) push(ctx context.Context, queue, payload string) <-chan pushed {
	g.t.Helper()
	before := store.Waiting(g.Store)
	answer := make(chan pushed, 1)
	g.all.Go(func() {
		length, err := g.PushTogether(ctx, queue, []byte(payload))
		answer <- pushed{length, err}
	})
	require.Eventually(g.t, func() bool { return store.Waiting(g.Store) == before+1 }, time.Minute, 100*time.Microsecond)
	return answer
}

func TestPushTogether(t *testing.T) {
	t.Parallel()

	t.Run("what waits leaves in one call, and each job has its answer", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		var answers []<-chan pushed
		for i := range 9 {
			answers = append(answers, g.push(t.Context(), "ab"[i%2:i%2+1], job("A", fmt.Sprintf("[%d]", i))))
		}
		g.first.Pass()
		for i, answer := range answers {
			require.Equal(t, pushed{length: int64(i/2 + 1)}, <-answer)
		}
		require.Equal(t, []int{9}, g.sent)
		require.Equal(t, []string{job("A", "[0]"), job("A", "[2]"), job("A", "[4]"), job("A", "[6]"), job("A", "[8]")}, g.list("queue:a"))
		require.ElementsMatch(t, []string{"first", "a", "b"}, g.redis.SMembers(t.Context(), g.key("queues")).Val())
	})

	t.Run("a job for which there is a connection does not wait", func(t *testing.T) {
		t.Parallel()
		f, proxy := behindProxy(t, redistest.Shared(t), func(o *store.Options) { o.PoolSize = 2 })
		caught := proxy.Trap(faultproxy.Trap{Match: isExec})
		var first sync.WaitGroup
		first.Go(func() {
			_, err := f.PushTogether(context.Background(), "first", []byte("{}"))
			require.NoError(t, err)
		})
		held := <-caught
		for range 3 {
			_, err := f.PushTogether(t.Context(), "q", []byte("{}"))
			require.NoError(t, err)
		}
		held.Pass()
		first.Wait()
	})

	t.Run("a call has so many jobs and so many bytes at most", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		var answers []<-chan pushed
		for i := range store.BatchJobs + 10 {
			answers = append(answers, g.push(t.Context(), "q", job("A", fmt.Sprintf("[%d]", i))))
		}
		half := `{"class":"A","args":["` + strings.Repeat("x", 600<<10) + `"]}`
		large := `{"class":"A","args":["` + strings.Repeat("x", 2<<20) + `"]}`
		for _, payload := range []string{half, half, large} {
			answers = append(answers, g.push(t.Context(), "q", payload))
		}
		g.first.Pass()
		for i, answer := range answers {
			require.Equal(t, pushed{length: int64(i + 1)}, <-answer)
		}
		require.Equal(t, []int{store.BatchJobs, 11, 1, 1}, g.sent)
	})

	t.Run("a key in the way concerns the jobs of its queue", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		require.NoError(t, g.redis.Set(t.Context(), g.key("queue:bad"), "x", 0).Err())
		before, bad, after := g.push(t.Context(), "q", "{}"), g.push(t.Context(), "bad", "{}"), g.push(t.Context(), "q", "{}")
		g.first.Pass()
		require.Equal(t, pushed{length: 1}, <-before)
		require.Equal(t, pushed{length: 2}, <-after)
		err := (<-bad).err
		require.ErrorContains(t, err, `push to "bad": WRONGTYPE`)
		require.Equal(t, []int{3}, g.sent)
	})

	t.Run("a job whose context ends while it waits is not sent", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		ctx, cancel := context.WithCancel(t.Context())
		stays, leaves, too := g.push(t.Context(), "q", job("A", "[1]")), g.push(ctx, "q", job("A", "[2]")), g.push(t.Context(), "q", job("A", "[3]"))
		cancel()
		err := (<-leaves).err
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, rdb.Unexecuted(err))
		_, err = g.PushTogether(ctx, "q", []byte(job("A", "[4]")))
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, rdb.Unexecuted(err))
		g.first.Pass()
		require.Equal(t, pushed{length: 1}, <-stays)
		require.Equal(t, pushed{length: 2}, <-too)
		require.Equal(t, []string{job("A", "[1]"), job("A", "[3]")}, g.list("queue:q"))
	})

	t.Run("that of one which is under way says nothing of it, and concerns no other", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := g.push(ctx, "q", job("A", "[1]")), g.push(t.Context(), "q", job("A", "[2]"))
		caught := g.proxy.Trap(faultproxy.Trap{Match: isExec, Reply: true})
		g.first.Pass()
		second := <-caught
		cancel()
		err := (<-leaves).err
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, rdb.Unexecuted(err))
		second.Pass()
		require.Equal(t, pushed{length: 2}, <-stays)
		require.Equal(t, []string{job("A", "[1]"), job("A", "[2]")}, g.list("queue:q"))
	})

	t.Run("a call whose answer is lost is not repeated", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		one, two := g.push(t.Context(), "a", "{}"), g.push(t.Context(), "b", "{}")
		lost := g.proxy.DropReply(faultproxy.Drop{Match: isExec})
		g.first.Pass()
		<-lost
		for _, answer := range []<-chan pushed{one, two} {
			err := (<-answer).err
			require.Error(t, err)
			require.False(t, rdb.Unexecuted(err))
		}
		require.Equal(t, []string{"{}"}, g.list("queue:a"))
		require.Equal(t, []string{"{}"}, g.list("queue:b"))
	})

	t.Run("a server that cannot be reached has done nothing", func(t *testing.T) {
		t.Parallel()
		g := gather(t)
		one, two := g.push(t.Context(), "q", "{}"), g.push(t.Context(), "q", "{}")
		g.gone.Store(true)
		g.first.Pass()
		for _, answer := range []<-chan pushed{one, two} {
			require.True(t, rdb.Unexecuted((<-answer).err))
		}
		require.Empty(t, g.list("queue:q"))
	})

	t.Run("closing answers what waits, and ends what is under way", func(t *testing.T) {
		t.Parallel()
		f, proxy := behindProxy(t, redistest.Shared(t))
		s, err := store.Open(store.Options{URL: "redis://" + proxy.Addr() + "/0", Namespace: f.ns, PoolSize: 1})
		require.NoError(t, err)
		caught := proxy.Trap(faultproxy.Trap{Match: isExec, Nth: 2})
		var all sync.WaitGroup
		push := func(ctx context.Context, payload string) <-chan error {
			answer := make(chan error, 1)
			all.Go(func() {
				_, err := s.PushTogether(ctx, "q", []byte(payload))
				answer <- err
			})
			return answer
		}
		waiting := func(n int) {
			require.Eventually(t, func() bool { return store.Waiting(s) == n }, time.Minute, 100*time.Microsecond)
		}
		// One that goes by itself, one that a lane has taken, one that waits, and one that has come too late.
		alone := proxy.Trap(faultproxy.Trap{Match: isExec})
		first := push(t.Context(), "1")
		held := <-alone
		second := push(t.Context(), "2")
		waiting(1)
		held.Pass()
		require.NoError(t, <-first)
		held = <-caught
		third := push(t.Context(), "3")
		waiting(1)
		require.NoError(t, s.Close())
		require.False(t, rdb.Unexecuted(<-second))
		for _, answer := range []<-chan error{third, push(t.Context(), "4")} {
			err := <-answer
			require.ErrorIs(t, err, redis.ErrClosed)
			require.True(t, rdb.Unexecuted(err))
		}
		held.Cut()
		all.Wait()
		require.Equal(t, []string{"1"}, f.list("queue:q"))
	})
}

// Jobs that exceed one call leave in others at once.
func TestPushTogetherTakesMoreLanes(t *testing.T) {
	t.Parallel()
	g := &gathering{}
	g.fixture, g.proxy = behindProxy(t, redistest.Shared(t), func(o *store.Options) { o.PoolSize = 2 })
	leave := store.HoldLane(g.Store)
	large := `{"class":"A","args":["` + strings.Repeat("x", 2<<20) + `"]}`
	one, two := g.push(t.Context(), "a", large), g.push(t.Context(), "b", large)
	caught := g.proxy.Trap(faultproxy.Trap{Match: isExec})
	leave()
	held := <-caught
	var stays <-chan pushed
	select { // the other one
	case p := <-one:
		require.NoError(t, p.err)
		stays = two
	case p := <-two:
		require.NoError(t, p.err)
		stays = one
	}
	held.Pass()
	require.NoError(t, (<-stays).err)
}

// Of a call that was refused in part nothing is sent again but what goes by itself.
func TestPushTogetherThatIsRefusedInPart(t *testing.T) {
	t.Parallel()
	g := &gathering{}
	g.fixture = setup(t, redistest.Shared(t))
	leave := store.HoldLane(g.Store)
	one, two := g.push(t.Context(), "a", "{}"), g.push(t.Context(), "b", "{}")
	calls := 0
	storetest.Intercept(g.Redis(), func(cmds []redis.Cmder, _ func() error) error {
		calls++
		done, ok := cmds[2].(*redis.IntCmd)
		require.True(t, ok)
		done.SetVal(1)
		err := refused("READONLY You can't write against a read only replica.")
		cmds[3].SetErr(err)
		return err
	})
	leave()
	require.Equal(t, pushed{length: 1}, <-one)
	require.True(t, rdb.Unexecuted((<-two).err))
	require.Equal(t, 1, calls)
}

// A user who may push to one queue only, and others who push to it meanwhile.
func TestPushTogetherWithFewRights(t *testing.T) {
	t.Parallel()
	redistest.NeedsMajor(t, 6)
	server := redistest.Start(t, redistest.Options{})
	g := &gathering{}
	g.fixture, g.proxy = behindProxy(t, server)
	require.NoError(t, g.redis.Do(t.Context(), "ACL", "SETUSER", "producer", "on", ">pw", "~"+g.key("queues"), "~"+g.key("queue:q"), "+@all").Err())
	s, err := store.Open(store.Options{URL: "redis://producer:pw@" + g.proxy.Addr() + "/0", Namespace: g.ns, PoolSize: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	g.Store = s
	caught := g.proxy.Trap(faultproxy.Trap{Match: isExec})
	g.all.Go(func() { _, _ = s.PushTogether(context.Background(), "q", []byte("0")) })
	first := <-caught
	before, other, after := g.push(t.Context(), "q", "1"), g.push(t.Context(), "other", "2"), g.push(t.Context(), "q", "3")
	first.Pass()
	err = (<-other).err
	require.ErrorContains(t, err, "NOPERM")
	require.True(t, rdb.Unexecuted(err))
	require.NoError(t, (<-before).err)
	require.NoError(t, (<-after).err)
	g.all.Wait()
	require.ElementsMatch(t, []string{"0", "1", "3"}, g.list("queue:q"))
	require.Equal(t, []string{"q"}, g.redis.SMembers(t.Context(), g.key("queues")).Val())
}

// Many goroutines push while connections break, answers get lost, the server refuses and hangs,
// and contexts end: a job that was pushed stands where its answer says, once; one that was not
// stands nowhere, and no other twice.
func TestPushTogetherUnderFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { pushUnderFaults(t, server, seed) }) {
			return
		}
	}
}

func pushUnderFaults(t *testing.T, server *redistest.Server, seed uint64) {
	plan := rand.New(rand.NewPCG(seed, 0))
	f, proxy := behindProxy(t, server, func(o *store.Options) { o.PoolSize = 1 + plan.IntN(4) })
	const producers, jobs = 16, 60
	type sent struct {
		queue, payload string
		pushed
	}
	ledger := make([][]sent, producers)
	var all sync.WaitGroup
	for p := range producers {
		choose := rand.New(rand.NewPCG(seed, uint64(p)+1))
		all.Go(func() {
			for i := range jobs {
				s := sent{queue: fmt.Sprintf("q%d", choose.IntN(3)), payload: fmt.Sprintf(`{"class":"A","args":[%d,%d]}`, p, i)}
				ctx, cancel := context.WithCancel(context.Background())
				switch choose.IntN(8) {
				case 0:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(choose.IntN(3000))*time.Microsecond)
				case 1:
					stop := time.AfterFunc(time.Duration(choose.IntN(3000))*time.Microsecond, cancel)
					defer stop.Stop()
				}
				s.length, s.err = f.PushTogether(ctx, s.queue, []byte(s.payload))
				cancel()
				ledger[p] = append(ledger[p], s)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	faults := []func(){
		func() { proxy.Cut() },
		func() { proxy.DropReply(faultproxy.Drop{Match: isExec, Nth: 1 + plan.IntN(3)}) },
		func() { proxy.Hold() },
		func() { proxy.Refuse(true); proxy.Cut() },
		func() { f.redis.ConfigSet(context.Background(), "maxmemory", "1") },
		func() { proxy.SetDelay(time.Millisecond, time.Millisecond) },
		func() { server.Hang() },
		func() {},
	}
	for ended := false; !ended; {
		faults[plan.IntN(len(faults))]()
		select {
		case <-done:
			ended = true
		case <-time.After(time.Duration(1+plan.IntN(5)) * time.Millisecond):
		}
		server.Resume()
		proxy.Heal()
		f.redis.ConfigSet(context.Background(), "maxmemory", "0")
	}
	lists := map[string][]string{}
	count := map[string]int{}
	for _, queue := range []string{"q0", "q1", "q2"} {
		lists[queue] = f.list("queue:" + queue)
		for _, payload := range lists[queue] {
			count[payload]++
		}
	}
	outcomes := map[string]int{}
	for _, of := range ledger {
		last := map[string]int64{}
		for _, s := range of {
			switch {
			case s.err == nil:
				outcomes["pushed"]++
				require.LessOrEqual(t, s.length, int64(len(lists[s.queue])))
				require.Equal(t, s.payload, lists[s.queue][s.length-1])
				require.Equal(t, 1, count[s.payload])
				require.Greater(t, s.length, last[s.queue], "jobs of a goroutine keep their order")
				last[s.queue] = s.length
			case rdb.Unexecuted(s.err):
				outcomes["not pushed"]++
				require.Zero(t, count[s.payload], "%s: %v", s.payload, s.err)
			default:
				outcomes["unknown"]++
				require.LessOrEqual(t, count[s.payload], 1, "%s: %v", s.payload, s.err)
			}
		}
	}
	t.Log(outcomes)
}

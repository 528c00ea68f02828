package system_test

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// twoStores are the daemons of the stores a and b of one configuration, each with its own
// server. Their jobs' notes go to the Redis shared by all tests.
type twoStores struct {
	servers [2]*redistest.Server
	daemons [2]*harness.Daemon
}

func startTwoStores(t *testing.T) *twoStores {
	t.Helper()
	s := &twoStores{}
	for i := range s.servers {
		s.servers[i] = redistest.Start(t, durable)
	}
	config := fmt.Sprintf("stores:\n  a: {redis_url: %q, queues: [a]}\n  b: {redis_url: %q, queues: [b, 'b_*']}\n", s.servers[0].URL(), s.servers[1].URL())
	space := redistest.Namespace(t)
	for i, store := range []string{"a", "b"} {
		s.daemons[i] = harness.Start(t, harness.Options{App: true, Threads: 8, Config: config, Namespace: space, Args: []string{"--store", store}})
	}
	return s
}

// push enqueues jobs of class Count into the server of a store.
func (s *twoStores) push(t *testing.T, i int, queue string, ids ...int) {
	t.Helper()
	harness.Watch(t, s.servers[i].Client(t), s.daemons[i].Space).Push(queue, "Count", ids...)
}

// Each daemon works its own store, and requests to it do not affect the other.
func TestStores(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t)
	a, b := s.daemons[0], s.daemons[1]
	s.push(t, 0, "b", 1) // a queue of the other store
	a.Signal(syscall.SIGUSR2)
	a.AwaitStatus("paused")
	s.push(t, 0, "a", 2)
	s.push(t, 1, "b", 3)
	b.AwaitNoted("ran", 1)
	require.Equal(t, "1", b.Noted("ran")["3"])
	a.Signal(syscall.SIGCONT)
	a.AwaitNoted("ran", 2)
	require.Equal(t, "1", a.Noted("ran")["2"])
	for _, d := range s.daemons {
		d.Signal(syscall.SIGQUIT)
		require.Zero(t, d.Exit())
	}
	require.EqualValues(t, 1, s.servers[0].Client(t).LLen(t.Context(), a.Space+":queue:b").Val(), "no daemon works b in the server of a")
}

// The command that moves a queue is killed repeatedly, while both stores are worked: each job
// runs once.
func TestStoresMoveKilled(t *testing.T) {
	t.Parallel()
	s := startTwoStores(t)
	a, b := s.daemons[0], s.servers[1].Client(t)
	for _, d := range s.daemons {
		d.Signal(syscall.SIGUSR2)
		d.AwaitStatus("paused")
	}
	n := harness.Jobs(3000)
	s.push(t, 0, "b_moved", harness.Range(1, n)...) // a queue of b by now, that has jobs in a
	move := []string{"queues", "move", "b_moved", "--config", a.ConfigFile, "--store", "a", "--to", "b", "--yes"}
	for kill := range 8 {
		cmd := a.Command(t.Context(), nil, move...)
		require.NoError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		want := int64(n * kill / 10)
		proctest.Await(t, patience, func() bool {
			select {
			case err := <-done:
				done <- err
				return true
			default:
			}
			return b.LLen(t.Context(), a.Space+":queue:b_moved").Val() > want
		}, "some to have been moved")
		_ = cmd.Process.Kill()
		if err := <-done; err != nil {
			t.Logf("move %d: %v", kill, err) // killed
		}
	}
	for _, d := range s.daemons {
		d.Signal(syscall.SIGCONT)
	}
	out, err := a.Command(t.Context(), nil, move...).CombinedOutput()
	require.NoError(t, err, string(out))
	a.AwaitNoted("ran", n)
	noted := a.Noted("ran")
	for _, id := range harness.Range(1, n) {
		require.Equal(t, "1", noted[strconv.Itoa(id)], "job %d", id)
	}
	left := s.servers[0].Client(t).Exists(t.Context(), a.Space+":queue:b_moved", a.Space+":resqued:moving:b_moved").Val()
	require.Zero(t, left)
}

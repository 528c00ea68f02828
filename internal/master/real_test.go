package master

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// realWorker is the worker process of TestRealProcesses: the test binary, spawned by a master.
func realWorker() int {
	conn, config, err := proc.Inherit()
	if err != nil || string(config) != "one" {
		fmt.Fprintln(os.Stderr, err, string(config))
		return configExit
	}
	// It leaves a process behind when it is killed.
	if err := exec.Command("sleep", "1000").Start(); err != nil {
		return 1
	}
	_ = conn.Send(proc.Message{Type: proc.Hello, Protocol: proc.Protocol, PID: os.Getpid()})
	for {
		m, err := conn.Recv()
		if err != nil {
			return 1
		}
		switch {
		case m.State == "draining", m.Type == proc.KillJobs && m.Exit:
			_ = conn.Send(proc.Message{Type: proc.Bye, Done: 1})
			return 0
		case m.Type == proc.Welcome:
			_ = conn.Send(proc.Message{Type: proc.Ready})
		}
	}
}

// Not parallel: another master in this process, such as TestTheDeadOfAMachine's, gives its
// worker processes the same names.
func TestRealProcesses(t *testing.T) {
	testlevel.Integration(t)
	self, err := proc.Self()
	require.NoError(t, err)
	redis := &fakeRedis{held: map[string][]store.Reserved{}}
	sigs := make(chan os.Signal, 8)
	m, err := New(Config{Slots: 2, Threads: 1, MaxRetiring: 1, MaxDeaths: 3, Worker: []byte("one")}, Deps{
		Self: self, System: &Linux{}, Store: redis, Notifier: &fakeNotifier{}, Log: zap.NewNop(), Signals: sigs,
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background()) }()

	living := func(slot, seq int) []proctest.Process {
		return proctest.Find(func(p proctest.Process) bool {
			return p.Env(procfs.ProcEnv) == self.Child(slot, seq) && p.Env("RESQUED_ROLE") != "" && p.Parent == os.Getpid()
		})
	}
	find := func(slot, seq int) int {
		var found []proctest.Process
		proctest.Await(t, 30*time.Second, func() bool {
			found = living(slot, seq)
			return len(found) == 1
		}, "worker process %d.%d", slot, seq)
		return found[0].PID
	}
	pid := find(0, 0)
	find(1, 1)
	name := self.Child(0, 0)
	redis.hold(name, reserved("a", 0))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		redis.mu.Lock()
		defer redis.mu.Unlock()
		return len(redis.verdicts) == 1 && redis.verdicts[0] == "a requeue"
	}, 30*time.Second, 10*time.Millisecond)
	// Nothing of it is left, or another sweep would find it.
	killed, err := proc.Sweep(t.Context(), name)
	require.NoError(t, err)
	require.Zero(t, killed)
	find(0, 2)

	sigs <- syscall.SIGQUIT
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the master does not end")
	}
	for seq, slot := range []int{0, 1, 0} {
		require.Empty(t, living(slot, seq))
	}
}

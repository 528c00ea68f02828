package master

import (
	"context"
	"os"
	"os/exec"
	"slices"
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

// A new master recognises dead processes of its machine at once, by the real /proc.
func TestTheDeadOfAMachine(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	self, err := proc.Self()
	require.NoError(t, err)
	other := exec.Command("sleep", "1000")
	require.NoError(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	at, ok := proctest.Look(other.Process.Pid)
	require.True(t, ok)
	child := func(change func(id *proc.Identity)) string {
		id := proc.Identity{Host: self.Host, Boot: self.Boot, PID: at.PID, Start: at.Start}
		change(&id)
		return id.Child(0, 0)
	}
	lives := child(func(*proc.Identity) {})
	reused := child(func(id *proc.Identity) { id.Start-- })
	gone := child(func(id *proc.Identity) { id.PID = 1<<22 + 1 }) // beyond every pid
	// A pid of another boot proves nothing: the host may have rebooted, or be another container
	// with the same name.
	rebooted := child(func(id *proc.Identity) { id.Boot, id.PID = "0ldb007f", 1<<22+1 })
	elsewhere := child(func(id *proc.Identity) { id.Host, id.PID = "elsewhere", 1<<22+1 })
	// Its master is dead, but its pid was reused; or it had other rights.
	drains := child(func(id *proc.Identity) { id.PID, id.Start = 1<<22+1, 2 })
	foreign := child(func(id *proc.Identity) { id.PID, id.Start = 1<<22+1, 3 })
	names := []string{lives, reused, gone, rebooted, elsewhere, drains, foreign}

	redis := &fakeRedis{held: map[string][]store.Reserved{}, procs: slices.Clone(names), traces: map[string]map[string]string{}}
	mine, err := procfs.TracesOfSelf()
	require.NoError(t, err)
	dead := procfs.Traces{PID: 1<<22 + 1, Start: 7, View: mine.View}
	for i, name := range names {
		redis.hold(name, reserved([]string{"lives", "reused", "gone", "rebooted", "elsewhere", "drains", "foreign"}[i], 0))
		redis.traces[name] = dead.Fields()
	}
	redis.traces[drains] = procfs.Traces{PID: at.PID, Start: at.Start, View: mine.View}.Fields()
	redis.traces[foreign] = procfs.Traces{PID: dead.PID, Start: 7, View: "another"}.Fields()
	sigs := make(chan os.Signal, 1)
	m, err := New(Config{Slots: 1, Threads: 1, MaxRetiring: 1, MaxDeaths: 3, Worker: []byte("one")}, Deps{
		Self: self, System: &Linux{}, Store: redis, Notifier: &fakeNotifier{}, Log: zap.NewNop(), Signals: sigs,
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background()) }()
	await := func(what string, tokens ...string) {
		t.Helper()
		proctest.Await(t, 30*time.Second, func() bool {
			redis.mu.Lock()
			defer redis.mu.Unlock()
			slices.Sort(redis.verdicts)
			return slices.Equal(redis.verdicts, tokens)
		}, "%s", what)
	}
	await("the first round", "gone requeue", "reused requeue")
	// Only a past lease proves that the others are dead.
	redis.set(func() { redis.orphans = []string{rebooted, elsewhere} })
	sigs <- syscall.SIGUSR2 // the next round comes at once
	await("a round after the leases", "elsewhere requeue", "gone requeue", "rebooted requeue", "reused requeue")
	require.True(t, proctest.Alive(at.PID))

	sigs <- syscall.SIGQUIT
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the master does not end")
	}
	redis.set(func() { require.Len(t, redis.verdicts, 4, "whose master lives was left alone") })
}

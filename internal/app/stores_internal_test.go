package app

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/control"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/systemd"
)

// newStores returns a process above masters that has none, whose service manager listens.
func newStores(t *testing.T) (s *Stores, heard func() []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "stores") // short enough for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s = &Stores{
		Log: zap.NewNop(), notifier: systemd.New(systemd.Config{Socket: path}, zap.NewNop()), planned: make(chan storePlanned, 1),
		Plan: func(context.Context) ([]StorePlan, error) { return []StorePlan{{Name: "a"}}, nil }, state: signals.Starting,
	}
	heard = func() (all []string) {
		buf := make([]byte, 4096)
		s.notifier.Status("end")
		for {
			n, err := conn.Read(buf)
			require.NoError(t, err)
			if string(buf[:n]) == "STATUS=end" {
				s.notifier.Status("next")
				return all
			}
			all = append(all, string(buf[:n]))
		}
	}
	return s, heard
}

// A reload during the start does not end that for the service manager.
func TestStoresReloadWhileStarting(t *testing.T) {
	t.Parallel()
	s, heard := newStores(t)
	s.masters = []*storeMaster{{plan: StorePlan{Name: "a"}, base: filepath.Join(t.TempDir(), "a")}}
	reload := func() {
		s.reload(control.Reload)
		for s.reread.under {
			s.onPlan(t.Context(), <-s.planned)
		}
	}
	reload()
	require.Empty(t, heard())
	s.state, s.readied = signals.Running, true
	reload()
	all := heard()
	require.Contains(t, all[len(all)-2], "RELOADING=1")
	require.Equal(t, "READY=1", all[len(all)-1])
}

// A pause that USR1 has ended does not come back with a master that is started later.
func TestStoresPauseEnds(t *testing.T) {
	t.Parallel()
	s, _ := newStores(t)
	s.exits, s.Invocation.Path, s.Invocation.Args = make(chan storeExit, 3), "/bin/true", []string{"true"}
	m := &storeMaster{plan: StorePlan{Name: "a"}, base: filepath.Join(t.TempDir(), "a"), pids: map[*os.Process]bool{}}
	for _, sigs := range [][]os.Signal{{syscall.SIGUSR2}, {syscall.SIGCONT}, {syscall.SIGUSR2, syscall.SIGUSR1}} {
		for _, sig := range sigs {
			s.onSignal(sig)
		}
		s.start(m)
		<-s.exits
		require.Equal(t, sigs[0] == os.Signal(syscall.SIGUSR2) && len(sigs) == 1, len(m.wants) == 1)
		m.wants = nil
	}
}

// A master that could not be asked for a reload, as it waited for its Redis, and that works by the time
// the others have answered, reads its configuration: it does not drain.
func TestStoresReloadOfOneThatBegins(t *testing.T) {
	t.Parallel()
	s, _ := newStores(t)
	s.state, s.readied = signals.Running, true
	process, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	works, waits := &storeMaster{ready: true}, &storeMaster{status: waitsForRedis}
	for _, m := range []*storeMaster{works, waits} {
		m.startedAt, m.pids = time.Now(), map[*os.Process]bool{process: true}
	}
	s.onPlan(t.Context(), storePlanned{done: true, ok: true, restart: []*storeMaster{works, waits}})
	require.Equal(t, []os.Signal{syscall.SIGHUP}, works.wants)
	require.False(t, works.again)
	require.Equal(t, []os.Signal{syscall.SIGQUIT}, waits.wants)
	require.True(t, waits.again)
}

// A store whose Redis is away, so that no worker process of it can be ready, says so.
func TestStoresReloadWithoutRedis(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "stores") // short enough for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "a.sock")
	server, err := control.Listen(path, func(ctx context.Context, r control.Request) control.Reply {
		if r.Do == control.Status {
			return control.Reply{OK: true, Outage: "Redis away for 80s: EOF"}
		}
		<-ctx.Done()
		return control.Reply{}
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	_, err = askMaster(path, control.Try, time.Millisecond)
	require.Equal(t, "no worker process is ready with the new configuration: Redis away for 80s: EOF", whyNoAnswer(path, err))
	server.Close()
	_, err = askMaster(path, control.Try, time.Millisecond)
	require.Equal(t, err.Error(), whyNoAnswer(path, err))
}

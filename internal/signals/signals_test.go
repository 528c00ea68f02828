package signals

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestMain(m *testing.M) {
	if os.Getenv("SIGNALS_TEST_PART") == "listen" {
		os.Exit(listenPart())
	}
	goleak.VerifyTestMain(m)
}

// listenPart sends itself every signal that must not end it, and leaves with 0
// when those that are listened for have come.
func listenPart() int {
	sigs, stop := Listen()
	defer stop()
	want := map[os.Signal]bool{}
	for _, sig := range []syscall.Signal{
		syscall.SIGPIPE, syscall.SIGTTOU, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGHUP, syscall.SIGCHLD,
	} {
		if Of(sig) != None {
			want[sig] = true
		}
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			return 2
		}
	}
	late := time.After(30 * time.Second)
	for len(want) > 0 {
		select {
		case sig := <-sigs:
			if Of(sig) == None {
				return 3
			}
			delete(want, sig)
		case <-late:
			return 1
		}
	}
	// A signal is not lost behind others that were not received yet.
	for range 5000 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGCHLD); err != nil {
			return 2
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGQUIT); err != nil {
		return 2
	}
	for {
		select {
		case sig := <-sigs:
			if sig == syscall.SIGQUIT {
				return 0
			}
		case <-time.After(10 * time.Second):
			return 4
		}
	}
}

func TestListen(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SIGNALS_TEST_PART=listen")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestTables(t *testing.T) {
	t.Parallel()

	t.Run("a second TERM within a second is taken for a copy of the first", func(t *testing.T) {
		t.Parallel()
		for _, table := range []func(State, Intent, time.Duration) Step{Master, Worker} {
			require.Equal(t, Ignore, table(Killing, Kill, 999*time.Millisecond).Do)
			require.Equal(t, KillNow, table(Killing, Kill, time.Second).Do)
		}
	})

	t.Run("a second ^C at a terminal kills, but not the copy of the first", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, Interrupt, OfDev(syscall.SIGINT))
		require.Equal(t, Kill, OfDev(syscall.SIGTERM))
		require.Equal(t, Draining, Master(Running, Interrupt, 0).Next)
		require.Equal(t, Ignore, Master(Draining, Interrupt, 10*time.Millisecond).Do)
		require.Equal(t, Killing, Master(Draining, Interrupt, Again).Next)
	})

	t.Run("no signal leads out of a shutdown", func(t *testing.T) {
		t.Parallel()
		rank := map[State]int{Draining: 1, Killing: 2}
		for _, table := range []Table{masterTable, workerTable} {
			for state, steps := range table {
				for intent, step := range steps {
					require.GreaterOrEqual(t, rank[step.Next], rank[state], "%s, %s", state, intent)
				}
			}
		}
	})

	t.Run("what a table does not list changes nothing", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, Step{Do: Ignore, Next: Draining}, Master(Draining, Pause, time.Hour))
		require.Equal(t, Step{Do: Ignore, Next: Running}, Worker(Running, Reap, time.Hour))
	})
}

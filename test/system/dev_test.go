package system_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// screen collects the output of a program to its terminal.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *screen) read(from io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		s.mu.Lock()
		s.buf.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// first is a program started at a terminal, like a person's first "resqued dev".
type first struct {
	cmd    *exec.Cmd
	keys   *os.File
	screen *screen
	ended  chan struct{}
	env    []string
}

func firstRun(t *testing.T, path string) *first {
	t.Helper()
	home := t.TempDir()
	return atTerminal(t, home, []string{"PATH=" + path, "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "TMPDIR=" + home, "TERM=xterm"}, harness.Binary(t), "dev")
}

// atTerminal starts a program as the leader of a terminal's session, in a directory of its own.
// All processes that it leaves are killed at the end of the test.
func atTerminal(t *testing.T, home string, env []string, program string, args ...string) *first {
	t.Helper()
	ours, theirs := harness.Terminal(t)
	f := &first{keys: ours, screen: &screen{}, ended: make(chan struct{}), env: append(env, "RESQUED_TEST_RUN="+home)}
	f.cmd = exec.Command(program, args...)
	f.cmd.Dir, f.cmd.Env = home, f.env
	f.cmd.Stdin, f.cmd.Stdout, f.cmd.Stderr = theirs, theirs, theirs
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, f.cmd.Start())
	require.NoError(t, theirs.Close())
	var reader sync.WaitGroup
	reader.Go(func() { f.screen.read(ours) })
	go func() {
		_ = f.cmd.Wait()
		close(f.ended)
	}()
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		<-f.ended
		proctest.Await(t, patience, func() bool {
			left := proctest.Find(func(p proctest.Process) bool { return p.Env("RESQUED_TEST_RUN") == home })
			for _, p := range left {
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
			return len(left) == 0
		}, "the end of everything that was started")
		_ = ours.Close()
		reader.Wait()
		if t.Failed() {
			t.Log(f.screen)
		}
	})
	return f
}

func (f *first) await(t *testing.T, part string) {
	t.Helper()
	proctest.Await(t, patience, func() bool { return strings.Contains(f.screen.String(), part) }, "%q on the screen", part)
}

func (f *first) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-f.ended:
	case <-time.After(patience):
		t.Fatal("the program does not end")
	}
	return f.cmd.ProcessState.ExitCode()
}

// nothingLeft requires that no process of a first run is alive.
func (f *first) nothingLeft(t *testing.T) {
	t.Helper()
	mark := f.env[len(f.env)-1]
	require.Empty(t, proctest.Find(func(p proctest.Process) bool {
		return p.Env("RESQUED_TEST_RUN") == strings.TrimPrefix(mark, "RESQUED_TEST_RUN=")
	}))
}

func TestFirstRun(t *testing.T) {
	t.Parallel()
	// A machine that has Go but no redis-server on PATH.
	bare := t.TempDir()
	for _, program := range []string{"sh", "sleep"} {
		path, err := exec.LookPath(program)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(bare, program)))
	}
	for name, path := range map[string]string{"with a redis-server": os.Getenv("PATH"), "with Go alone": bare} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := firstRun(t, path)
			f.await(t, "2 processes")
			f.await(t, "done")

			enqueue := exec.Command(harness.Binary(t), "enqueue", "Hello", "you", "--dev")
			enqueue.Env = f.env
			out, err := enqueue.CombinedOutput()
			require.NoError(t, err, "%s", out)
			f.await(t, `Hello["you"]`)

			_, err = f.keys.WriteString("\x03")
			require.NoError(t, err)
			require.Zero(t, f.exit(t))
			f.nothingLeft(t)
		})
	}

	t.Run("a second ^C kills", func(t *testing.T) {
		t.Parallel()
		f := firstRun(t, os.Getenv("PATH"))
		f.await(t, "done")
		for i := range 16 { // two for each thread
			enqueue := exec.Command(harness.Binary(t), "enqueue", "Slow", strconv.Itoa(i), "--dev")
			enqueue.Env = f.env
			require.NoError(t, enqueue.Run())
		}
		_, err := f.keys.WriteString("\x03")
		require.NoError(t, err)
		f.await(t, "stopping")
		<-time.After(1100 * time.Millisecond)
		_, err = f.keys.WriteString("\x03")
		require.NoError(t, err)
		require.Zero(t, f.exit(t))
		f.nothingLeft(t)
	})
}

// address returns the dashboard's address from the screen.
func (f *first) address(t *testing.T) string {
	t.Helper()
	f.await(t, "dashboard  http://")
	f.await(t, "try ")
	_, rest, _ := strings.Cut(f.screen.String(), "dashboard  ")
	at, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(at)
}

func (f *first) dashboards() []proctest.Process {
	mark := strings.TrimPrefix(f.env[len(f.env)-1], "RESQUED_TEST_RUN=")
	return proctest.Find(func(p proctest.Process) bool {
		return p.Env("RESQUED_TEST_RUN") == mark && strings.Contains(p.Title, "--while-stdin")
	})
}

// TestDevDashboard kills the dashboard of "resqued dev", and "resqued dev" itself.
func TestDevDashboard(t *testing.T) {
	t.Parallel()
	get := func(t *testing.T, url string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s", body)
		return string(body)
	}
	f := firstRun(t, os.Getenv("PATH"))
	at := f.address(t)
	require.Contains(t, get(t, at), "<title>")
	require.Contains(t, get(t, at+"api/v1/workers"), `"items":`)

	t.Log("killed, it comes back at the same address, and nobody is refused meanwhile")
	before := f.dashboards()
	require.Len(t, before, 1)
	require.NoError(t, syscall.Kill(before[0].PID, syscall.SIGKILL))
	require.Equal(t, "ok\n", get(t, at+"healthz"))
	after := f.dashboards()
	require.Len(t, after, 1)
	require.NotEqual(t, before[0].PID, after[0].PID)

	t.Log("stopped, it holds nothing up")
	require.NoError(t, syscall.Kill(after[0].PID, syscall.SIGSTOP))
	enqueue := exec.Command(harness.Binary(t), "enqueue", "Hello", "meanwhile", "--dev")
	enqueue.Env = f.env
	out, err := enqueue.CombinedOutput()
	require.NoError(t, err, "%s", out)
	f.await(t, `Hello["meanwhile"]`)
	require.NoError(t, syscall.Kill(after[0].PID, syscall.SIGCONT))

	t.Log("it ends with its parent, however that ends")
	require.NoError(t, f.cmd.Process.Kill())
	<-f.ended
	proctest.Await(t, patience, func() bool { return len(f.dashboards()) == 0 }, "the end of the dashboard")
}

package system_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// restored is how top leaves a terminal: lines wrap, the cursor is seen, the main screen is back.
const restored = "\x1b[?7h\x1b[?25h\x1b[?1049l"

// topAt starts top at a terminal on a namespace that holds a queue.
func topAt(t *testing.T, server *redistest.Server, args ...string) (f *first, namespace string) {
	t.Helper()
	namespace = redistest.Namespace(t)
	redis := server.Client(t)
	require.NoError(t, redis.SAdd(t.Context(), namespace+":queues", "mail").Err())
	require.NoError(t, redis.RPush(t.Context(), namespace+":queue:mail", `{"class":"Mail","args":[1]}`).Err())
	home := t.TempDir()
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TERM=xterm", "REDIS_URL=" + server.URL(), "RESQUE_NAMESPACE=" + namespace}
	f = atTerminal(t, home, env, harness.Binary(t), append([]string{"top"}, args...)...)
	f.await(t, "no worker has it among its queues")
	return f, namespace
}

func (f *first) press(t *testing.T, keys string) {
	t.Helper()
	_, err := f.keys.WriteString(keys)
	require.NoError(t, err)
}

// awaitRestored waits until the last that was written gives the terminal back: what a process
// has written may be read after its end.
func (f *first) awaitRestored(t *testing.T) {
	t.Helper()
	ok := proctest.Within(patience, func() bool { return strings.HasSuffix(f.screen.String(), restored) })
	require.True(t, ok, "%q", f.screen.String())
}

func TestTop(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	f, namespace := topAt(t, server, "--interval", "100ms")
	redis := server.Client(t)
	paused := func() bool { return redis.Exists(t.Context(), namespace+":pause:queue:mail").Val() == 1 }

	f.press(t, "p")
	f.await(t, "paused mail")
	proctest.Await(t, patience, paused, "the pause in Redis")
	f.await(t, "paused by pause:queue:mail")
	f.press(t, "p")
	f.await(t, "resumed mail")
	proctest.Await(t, patience, func() bool { return !paused() }, "the end of the pause")
	require.NoError(t, redis.Set(t.Context(), namespace+":pause:all", "true", 0).Err())
	f.await(t, "paused by pause:all")
	f.press(t, "p")
	f.await(t, "mail is paused with all queues; see: resqued queues resume --all")

	// Another size: all is drawn again, with room for more.
	require.NoError(t, unix.IoctlSetWinsize(int(f.keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 150}))
	f.await(t, "\x1b[40;1H")

	f.press(t, "\x1a") // ^Z: no shell looks after this one, so that the kernel does not stop it
	f.await(t, restored+"\x1b[?1049h")
	f.press(t, "q")
	require.Zero(t, f.exit(t))
	f.awaitRestored(t)
}

func TestTopEndsBySignal(t *testing.T) {
	t.Parallel()
	f, _ := topAt(t, redistest.Shared(t))
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, f.exit(t))
	f.awaitRestored(t)
}

func TestTopGoesOnWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f, namespace := topAt(t, server, "--interval", "100ms")
	server.Stop()
	f.await(t, "Redis away for ")
	server.Restart()
	require.NoError(t, server.Client(t).SAdd(t.Context(), namespace+":queues", "late").Err())
	f.await(t, "late ")
	f.press(t, "\x03")
	require.Zero(t, f.exit(t))
}

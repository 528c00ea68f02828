//go:build linux

package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// transcript is an output that another goroutine reads.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *transcript) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until the output meets a condition.
func (o *transcript) await(t *testing.T, what string, is func(text string) bool) string {
	t.Helper()
	require.Eventually(t, func() bool { return is(o.String()) }, time.Minute, 5*time.Millisecond, "%s: %s", what, o)
	return o.String()
}

func (o *transcript) awaitText(t *testing.T, text string) string {
	t.Helper()
	return o.await(t, text, func(all string) bool { return strings.Contains(all, text) })
}

// watching runs a verb with --watch, and returns a function that ends it and returns its exit code.
func watching(t *testing.T, stdout, stderr io.Writer, args ...string) (end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &cli{handlers: resqued.New(), stdin: strings.NewReader(""), output: output{name: "resqued", stdout: stdout, stderr: stderr}, args: args}
	code := make(chan int, 1)
	go func() { code <- a.run(ctx) }()
	end = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() { end() })
	return end
}

func TestWatch(t *testing.T) {
	t.Parallel()

	t.Run("blocks follow each other, and an outage ends nothing", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		redis := server.Client(t)
		require.NoError(t, redis.SAdd(t.Context(), "w:queues", "mail").Err())
		var out, notes transcript
		end := watching(t, &out, &notes, "queues", "--watch=100ms", "--redis-url", server.URL(), "-n", "w")
		out.await(t, "three blocks", func(text string) bool { return strings.Count(text, "\n\nQUEUE ") >= 2 })
		require.Empty(t, notes.String())
		server.Stop()
		notes.awaitText(t, "resqued: ")
		server.Restart()
		notes.awaitText(t, "it answers again, after ")
		require.Equal(t, 1, strings.Count(notes.String(), "resqued: "), "an outage is said once: %s", notes.String())
		require.NoError(t, redis.SAdd(t.Context(), "w:queues", "late").Err())
		out.awaitText(t, "late ")
		require.Zero(t, end())
	})

	t.Run("JSON is one line each", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		var out, notes transcript
		end := watching(t, &out, &notes, "queues", "--watch=100ms", "--redis-url", server.URL(), "-n", redistest.Namespace(t), "-o", "json")
		out.await(t, "two lines", func(text string) bool { return strings.Count(text, "\n") >= 2 })
		require.Zero(t, end())
		for line := range strings.Lines(out.String()) {
			require.Equal(t, `{"items":[],"next":null,"partial":false}`+"\n", line)
		}
	})

	t.Run("YAML is one document each", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		var out, notes transcript
		end := watching(t, &out, &notes, "queues", "--watch=100ms", "--redis-url", server.URL(), "-n", redistest.Namespace(t), "-o", "yaml")
		out.awaitText(t, "items: []\nnext: null\npartial: false\n---\nitems: []\n")
		require.Zero(t, end())
	})

	t.Run("on a terminal each takes the place of the one before", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		require.NoError(t, server.Client(t).SAdd(t.Context(), "w:queues", "a", "b", "c", "d", "e", "f", "g", "h", "i").Err())
		screen, tty := terminal(t, 60, 8)
		var notes transcript
		end := watching(t, tty, &notes, "queues", "--watch=100ms", "--redis-url", server.URL(), "-n", "w", "--no-color")
		text := screen.await(t, "two frames", func(text string) bool { return strings.Count(text, "\x1b[H") >= 3 })
		require.Equal(t, 1, strings.Count(text, "\x1b[2J"), "clearing flickers")
		frame := strings.Split(text, "\x1b[H")[1]
		require.LessOrEqual(t, strings.Count(frame, "\n"), 7, "it fits: %q", frame)
		require.Contains(t, frame, "… 5 more lines")
		require.NotContains(t, text, server.URL(), "there may be a password in it")
		server.Stop()
		screen.awaitText(t, "no answer for ")
		require.Contains(t, screen.String()[strings.LastIndex(screen.String(), "no answer for "):]+"QUEUE", "QUEUE", "the last result stays")
		server.Restart()
		before := len(screen.String())
		screen.await(t, "an answer again", func(text string) bool {
			_, last, ok := strings.Cut(text[before:], "\x1b[H")
			return ok && strings.Contains(last, "\x1b[J") && !strings.Contains(last[strings.LastIndex(last, "\x1b[H")+1:], "no answer")
		})
		require.Zero(t, end())
		screen.awaitText(t, "\x1b[?7h\x1b[?25h")
	})

	t.Run("what fails at once is an error", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		for code, args := range map[int][]string{
			exitNotFound:    {"queues", "nope", "--watch", "--redis-url", server.URL(), "-n", redistest.Namespace(t)},
			exitUnreachable: {"queues", "--watch", "--redis-url", "redis://127.0.0.1:1"},
			exitUsage:       {"queues", "--watch=1ms", "--redis-url", server.URL()},
		} {
			var out, notes transcript
			a := &cli{handlers: resqued.New(), stdin: strings.NewReader(""), output: output{name: "resqued", stdout: &out, stderr: &notes}, args: args}
			require.Equal(t, code, a.run(t.Context()), "%v: %s", args, notes.String())
			require.NotEmpty(t, notes.String())
			require.Empty(t, out.String())
		}
		var out, notes transcript
		a := &cli{handlers: resqued.New(), stdin: strings.NewReader(""), output: output{name: "resqued", stdout: &out, stderr: &notes}, args: []string{"queues", "--watch", "5s"}}
		require.Equal(t, exitUsage, a.run(t.Context()))
		require.Contains(t, notes.String(), `"5s" is not a name; write --watch=5s`)
	})
}

// Every verb that lists can be watched.
func TestVerbsThatListAreWatched(t *testing.T) {
	t.Parallel()
	a := &cli{output: output{name: "resqued"}, handlers: resqued.New()}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
			if sub.Name() == "ls" {
				require.NotNil(t, sub.Flags().Lookup("watch"), sub.CommandPath())
				if c.RunE != nil && c.Name() != "locker" {
					require.NotNil(t, c.Flags().Lookup("watch"), c.CommandPath())
				}
			}
		}
	}
	walk(a.root())
}

// terminal returns a terminal of a size, and its transcript.
func terminal(t *testing.T, columns, rows uint16) (*transcript, *os.File) {
	t.Helper()
	ours, tty := harness.Terminal(t)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	screen, done := &transcript{}, make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(screen, ours)
	}()
	t.Cleanup(func() {
		_ = tty.Close() // which ends the reading
		<-done
	})
	return screen, tty
}

package system_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// impostor is a server in place of a Redis. It forwards to a real one until it is given an
// answer to send instead, whatever the request.
type impostor struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	begin string // what an answer begins with; empty = lead on to the server
	then  string // and what follows, for ever
	conns []net.Conn
	all   sync.WaitGroup
}

func newImpostor(t *testing.T, server string) *impostor {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	i := &impostor{listener: l, server: server}
	i.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			i.all.Go(func() { i.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		i.hangUp()
		i.all.Wait()
	})
	return i
}

func (i *impostor) url() string { return "redis://" + i.listener.Addr().String() }

// answer sets the answer from now on.
func (i *impostor) answer(begin, then string) {
	i.mu.Lock()
	i.begin, i.then = begin, then
	i.mu.Unlock()
	i.hangUp()
}

func (i *impostor) hangUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.conns {
		_ = c.Close()
	}
	i.conns = nil
}

func (i *impostor) serve(conn net.Conn) {
	defer conn.Close()
	i.mu.Lock()
	begin, then := i.begin, i.then
	i.conns = append(i.conns, conn)
	i.mu.Unlock()
	if begin == "" {
		server, err := net.Dial("tcp", i.server)
		if err != nil {
			return
		}
		i.mu.Lock()
		i.conns = append(i.conns, server)
		i.mu.Unlock()
		i.all.Go(func() {
			_, _ = io.Copy(server, conn)
			_ = server.Close()
		})
		_, _ = io.Copy(conn, server)
		return
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // whatever it is
		return
	}
	_, err := io.WriteString(conn, begin)
	for err == nil && then != "" {
		_, err = io.WriteString(conn, then)
	}
	_, _ = io.Copy(io.Discard, conn)
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// mostMemory returns the peak memory of any process of a daemon, in MiB.
func mostMemory(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	most := 0
	for _, p := range d.Processes() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		if err != nil {
			continue
		}
		if m := peak.FindSubmatch(status); m != nil {
			kib, err := strconv.Atoi(string(m[1]))
			require.NoError(t, err)
			most = max(most, kib>>10)
		}
	}
	return most
}

// TestHostileServer replaces Redis by servers that are not Redis or answer nonsense. The daemon
// does not take much memory, logs what it received, and still exits on TERM.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ begin, then, says string }{
		"an array of a billion values": {"*1000000000\r\n", "", "1000000000 values"},
		"a line without an end":        {"+", strings.Repeat("x", 1<<20), "a line of more than"},
		"values nested without an end": {strings.Repeat("*1\r\n", 100), strings.Repeat("*1\r\n", 1<<18), "nested deeper"},
		"a text without an end":        {"$9000000000\r\n", strings.Repeat("x", 1<<20), "a text of 9000000000 bytes"},
		"HTTP":                         {"HTTP/1.1 400 Bad Request\r\n\r\n", "", "it speaks HTTP"},
	} {
		t.Run(name+", from the start", func(t *testing.T) {
			t.Parallel()
			i := newImpostor(t, "")
			i.answer(c.begin, c.then)
			d := harness.Start(t, harness.Options{Unready: true, Env: []string{"REDIS_URL=" + i.url()}})
			d.AwaitLog("waiting for redis")
			d.AwaitLog(c.says)
			require.Less(t, mostMemory(t, d), 200, "MiB")
			d.Signal(syscall.SIGTERM)
			require.Equal(t, 0, d.Exit())
		})
		t.Run(name+", with a job in hand", func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			where, err := url.Parse(server.URL())
			require.NoError(t, err)
			i := newImpostor(t, where.Host)
			d := harness.Start(t, harness.Options{
				App: true, Workers: 2, Threads: 2, Config: "resque_term_timeout: 2s\n", Env: []string{"REDIS_URL=" + i.url()},
			})
			d.Push("q", "Gate", 1)
			d.AwaitNoted("started", 1)
			i.answer(c.begin, c.then)
			d.AwaitLog(c.says)
			require.Less(t, mostMemory(t, d), 300, "MiB")
			d.Signal(syscall.SIGTERM)
			d.Exit()
		})
	}
}

//go:build linux

// Package runners_test drives the shims of runners/ over docs/runner-protocol.md, like the
// daemon but without it: the same table for all languages.
package runners_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// patience bounds what a test waits for, not what it measures.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shim is the runner of one language.
type shim struct {
	name string
	// tool is the interpreter.
	tool string
	// argv starts it with the classes of testdata.
	argv []string
	env  []string
	// fork: it has a template.
	fork bool
	// Known differences of its language.
	unknown, unfit, recursion string
	// Not empty: the exception of a job that calls exit. Empty: the process ends.
	exit string
	// blocks: code that does not wait delays reading the socket.
	blocks bool
	// threads: a job in a system call is interrupted even if others run in the process.
	threads bool
}

var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

func path(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }

var shims = []shim{
	{
		name: "ruby", tool: "ruby", fork: true,
		argv:    []string{"ruby", path("runners/ruby/exe/resqued-runner"), path("test/runners/testdata/jobs.rb")},
		unknown: "NameError", unfit: "ArgumentError", recursion: "SystemStackError", exit: "SystemExit", threads: true,
	},
	{
		name: "python", tool: "python3", fork: true,
		argv:    []string{"python3", "-m", "resqued_runner", path("test/runners/testdata/jobs.py")},
		env:     []string{"PYTHONPATH=" + path("runners/python"), "PYTHONDONTWRITEBYTECODE=1"},
		unknown: "resqued.UnknownClass", unfit: "TypeError", recursion: "RecursionError", exit: "SystemExit",
	},
	{
		name: "node", tool: "node",
		argv:    []string{"node", path("runners/node/bin/resqued-runner.js"), path("test/runners/testdata/jobs.js")},
		unknown: "UnknownClass", unfit: "TypeError", recursion: "RangeError", blocks: true, threads: true,
	},
}

// need skips the test without the interpreter, and fails it if the interpreter is required.
func (s shim) need(tb testing.TB) {
	tb.Helper()
	testlevel.Integration(tb)
	if _, err := os.Stat(path("runners", s.name)); err != nil {
		tb.Skipf("no shim for %s: %v", s.name, err)
	}
	if _, err := exec.LookPath(s.tool); err != nil {
		if os.Getenv("RESQUED_TEST_TOOLS") == "required" {
			tb.Fatalf("%v: scripts/provide installs it", err)
		}
		tb.Skip(err)
	}
}

// output is what a process has written to a descriptor.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// runner is one runner process.
type runner struct {
	tb       testing.TB
	conn     *net.UnixConn
	lines    *bufio.Reader
	out, err *output
	hello    map[string]any
	pid      int
	// ending is the template's report of a fork's end.
	ending *os.File
	// wait returns how a directly started process has ended.
	wait func() (int, error)
	next int
}

// pair returns both ends of a socketpair: as a connection, and as a file for the other process.
func pair(tb testing.TB, kind int) (*net.UnixConn, *os.File) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	require.NoError(tb, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	conn, err := net.FileConn(ours)
	require.NoError(tb, err)
	require.NoError(tb, ours.Close())
	tb.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn), theirs
}

// spawn starts the shim with files as its descriptors from 3 on.
func (s shim) spawn(tb testing.TB, files []*os.File, env ...string) (cmd *exec.Cmd, out, errs *output) {
	tb.Helper()
	cmd = exec.CommandContext(context.Background(), s.argv[0], s.argv[1:]...) // it outlives the context of a test, up to its cleanup
	out, errs = &output{}, &output{}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.Dir = tb.TempDir()
	cmd.ExtraFiles = files
	cmd.Env = append(append(os.Environ(), s.env...), env...)
	require.NoError(tb, cmd.Start())
	for _, file := range files {
		require.NoError(tb, file.Close())
	}
	return cmd, out, errs
}

// ended returns a function that waits for a command and kills it after patience. It may be
// called again.
func ended(tb testing.TB, cmd *exec.Cmd) func() (int, error) {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	wait := func() (int, error) {
		select {
		case <-done:
			return cmd.ProcessState.ExitCode(), nil
		case <-time.After(patience):
			return 0, fmt.Errorf("process %d has not ended", cmd.Process.Pid)
		}
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	return wait
}

// direct starts a runner that boots itself, and waits for its hello.
func (s shim) direct(tb testing.TB, concurrency int) *runner {
	tb.Helper()
	s.need(tb)
	conn, theirs := pair(tb, unix.SOCK_STREAM)
	cmd, out, errs := s.spawn(tb, []*os.File{theirs}, "RESQUED_FD=3", "RESQUED_RUNNER=test",
		fmt.Sprint("RESQUED_CONCURRENCY=", concurrency), "RESQUED_PROC=proc-1")
	r := &runner{tb: tb, conn: conn, out: out, err: errs, pid: cmd.Process.Pid, wait: ended(tb, cmd)}
	r.greet(concurrency)
	return r
}

// greet reads the hello.
func (r *runner) greet(concurrency int) {
	r.tb.Helper()
	r.lines = bufio.NewReaderSize(r.conn, 1<<20)
	line := r.read()
	hello, ok := line["hello"].(map[string]any)
	require.True(r.tb, ok, "%v", line)
	require.EqualValues(r.tb, 1, hello["protocol"])
	require.EqualValues(r.tb, concurrency, hello["concurrency"])
	r.hello = hello
}

// template is a template process.
type template struct {
	tb       testing.TB
	status   *bufio.Reader
	conn     *net.UnixConn
	requests *net.UnixConn
	out, err *output
	wait     func() (int, error)
	pid      int
}

// boot starts a template and waits until it is ready.
func (s shim) boot(tb testing.TB) *template {
	tb.Helper()
	s.need(tb)
	conn, theirs := pair(tb, unix.SOCK_STREAM)
	requests, other := pair(tb, unix.SOCK_SEQPACKET)
	cmd, out, errs := s.spawn(tb, []*os.File{theirs, other}, "RESQUED_FD=3", "RESQUED_FORK_FD=4",
		"RESQUED_RUNNER=test", "RESQUED_CONCURRENCY=1")
	p := &template{
		tb: tb, status: bufio.NewReader(conn), conn: conn, requests: requests,
		out: out, err: errs, wait: ended(tb, cmd), pid: cmd.Process.Pid,
	}
	hello, ok := p.read()["hello"].(map[string]any)
	require.True(tb, ok)
	require.Equal(tb, true, hello["template"])
	return p
}

func (p *template) read() map[string]any {
	p.tb.Helper()
	require.NoError(p.tb, p.conn.SetReadDeadline(time.Now().Add(patience)))
	text, err := p.status.ReadBytes('\n')
	require.NoError(p.tb, err, "%s", p.err)
	var line map[string]any
	require.NoError(p.tb, json.Unmarshal(text, &line))
	return line
}

// request writes a packet with descriptors.
func (p *template) request(packet string, files ...*os.File) {
	p.tb.Helper()
	var fds []int
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := p.requests.WriteMsgUnix([]byte(packet), rights, nil)
	require.NoError(p.tb, err)
}

// within returns the template for the use of a subtest.
func (p *template) within(tb testing.TB) *template {
	its := *p
	its.tb = tb
	return &its
}

// fork asks for a runner, and waits for its hello. Its process id is the kernel's.
func (p *template) fork(concurrency int) *runner {
	p.tb.Helper()
	r := &runner{tb: p.tb, out: &output{}, err: &output{}}
	var theirs *os.File
	r.conn, theirs = pair(p.tb, unix.SOCK_STREAM)
	files := []*os.File{theirs}
	for _, into := range []*output{r.out, r.err} {
		reader, writer, err := os.Pipe()
		require.NoError(p.tb, err)
		copied := make(chan struct{})
		go func() {
			_, _ = io.Copy(into, reader)
			close(copied)
		}()
		p.tb.Cleanup(func() {
			_ = r.conn.Close()
			_ = reader.SetReadDeadline(time.Now().Add(patience))
			<-copied
			_ = reader.Close()
		})
		files = append(files, writer)
	}
	ending, writer, err := os.Pipe()
	require.NoError(p.tb, err)
	p.tb.Cleanup(func() { _ = ending.Close() })
	files, r.ending = append(files, writer), ending
	p.request(fmt.Sprintf(`{"fork":{"concurrency":%d,"env":{"RESQUED_PROC":"proc-2"}}}`, concurrency), files...)
	for _, file := range files {
		require.NoError(p.tb, file.Close())
	}
	r.pid = r.peer()
	r.greet(concurrency)
	return r
}

// peer returns the process id of the writer of the next bytes, without reading them.
func (r *runner) peer() int {
	r.tb.Helper()
	raw, err := r.conn.SyscallConn()
	require.NoError(r.tb, err)
	require.NoError(r.tb, r.conn.SetReadDeadline(time.Now().Add(patience)))
	var credentials *unix.Ucred
	var failed error
	require.NoError(r.tb, raw.Read(func(fd uintptr) bool {
		rest := make([]byte, 256)
		n, oob, _, _, err := unix.Recvmsg(int(fd), make([]byte, 1), rest, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		if failed = err; err != nil || n == 0 {
			return true
		}
		messages, err := unix.ParseSocketControlMessage(rest[:oob])
		if failed = err; err != nil || len(messages) == 0 {
			return true
		}
		credentials, failed = unix.ParseUnixCredentials(&messages[0])
		return true
	}), "%s", r.err)
	require.NoError(r.tb, failed)
	require.NotNil(r.tb, credentials, "the runner has ended without a hello: %s", r.err)
	return int(credentials.Pid)
}

// write writes a line.
func (r *runner) write(format string, args ...any) {
	r.tb.Helper()
	require.NoError(r.tb, r.conn.SetWriteDeadline(time.Now().Add(patience)))
	_, err := fmt.Fprintf(r.conn, format+"\n", args...)
	require.NoError(r.tb, err, "%s", r.err)
}

// read returns the next line.
func (r *runner) read() map[string]any {
	r.tb.Helper()
	require.NoError(r.tb, r.conn.SetReadDeadline(time.Now().Add(patience)))
	text, err := r.lines.ReadBytes('\n')
	require.NoError(r.tb, err, "%s%s", text, r.err)
	var line map[string]any
	require.NoError(r.tb, json.Unmarshal(text, &line), "%s", text)
	return line
}

// start hands out a job, and returns its number.
func (r *runner) start(class string, args ...any) int {
	r.tb.Helper()
	if args == nil {
		args = []any{}
	}
	payload, err := json.Marshal(map[string]any{"class": class, "args": args})
	require.NoError(r.tb, err)
	return r.startPayload(class, `"payload":`+string(payload))
}

// startPayload hands out a job with these keys.
func (r *runner) startPayload(class, keys string) int {
	r.tb.Helper()
	r.next++
	r.write(`{"job":{"number":%d,"id":"job-%d","class":%q,"queue":"q","attempt":1,"max_attempts":null,`+
		`"enqueued_at":null,"deadline":null,"deaths":0,"worker":"host:1-1:q",%s}}`, r.next, r.next, class, keys)
	return r.next
}

// end returns the line that ends a job, and those before it.
func (r *runner) end(number int) (end map[string]any, before []map[string]any) {
	r.tb.Helper()
	for {
		line := r.read()
		for _, kind := range []string{"done", "failed", "requeue", "limit_hit", "discard"} {
			if of, is := line[kind]; is {
				require.EqualValues(r.tb, number, of, "%v", line)
				return line, before
			}
		}
		before = append(before, line)
	}
}

// perform hands out a job and returns the line that ends it.
func (r *runner) perform(class string, args ...any) map[string]any {
	r.tb.Helper()
	end, _ := r.end(r.start(class, args...))
	return end
}

// closed waits for the end of the socket; lines before it are a failure.
func (r *runner) closed() {
	r.tb.Helper()
	require.NoError(r.tb, r.conn.SetReadDeadline(time.Now().Add(patience)))
	rest, err := io.ReadAll(r.lines)
	if err != nil && !strings.Contains(err.Error(), "connection reset") {
		require.NoError(r.tb, err, "%s", r.err)
	}
	require.Empty(r.tb, string(rest))
}

// gone waits until the process of a runner has ended.
func (r *runner) gone() {
	r.tb.Helper()
	if r.wait != nil {
		_, err := r.wait()
		require.NoError(r.tb, err)
		return
	}
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err == unix.ESRCH {
		return
	}
	require.NoError(r.tb, err)
	defer func() { _ = unix.Close(fd) }()
	require.Eventually(r.tb, func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		return err == nil && n == 1
	}, patience, time.Millisecond)
}

package devredis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// readyTimeout is how long a redis-server may take to answer. It normally takes 20 ms, but
// longer when it loads a dump or the machine is busy.
const readyTimeout = 20 * time.Second

// supervise is the watchdog: a shell that holds the read end of a pipe from this program.
// However this program ends, the pipe closes with it. The shell then ends the server and
// removes its directory. Pdeathsig would not do: it fires when the *thread* that forked ends,
// and Go may end threads at any time.
//
// A word sent through the pipe ends the server: "term" lets it save, "kill" does not. After
// both the directory stays.
const supervise = `dir=$1 log=$2; shift 2
"$@" >"$log" 2>&1 </dev/null &
pid=$!
echo $pid
word=
read -r word
case $word in
term) kill -TERM $pid ;;
*) kill -KILL $pid ;;
esac
wait $pid
[ -n "$word" ] || rm -rf "$dir"
`

// ErrPortTaken reports that another program listens on the port given to the server.
var ErrPortTaken = errors.New("address already in use")

// ProcessConfig describes a redis-server child.
type ProcessConfig struct {
	// Binary is the path of redis-server or valkey-server.
	Binary string
	// Dir is the server's own directory; it is removed when this program dies.
	Dir string
	// Socket is the unix socket on which the server listens, for the readiness check and for
	// this program.
	Socket string
	// Args are the server's arguments besides --dir, --unixsocket and --logfile.
	Args []string
}

// Process is a redis-server that cannot outlive this program. It has a process group of its
// own, so that ^C at a terminal does not reach it.
type Process struct {
	pid    int
	config ProcessConfig
	shell  *exec.Cmd
	words  io.WriteCloser
	gone   *bufio.Reader
}

// Launch starts a redis-server and returns when it answers.
func Launch(ctx context.Context, c ProcessConfig) (*Process, error) {
	logFile := filepath.Join(c.Dir, "server.log")
	argv := append([]string{"-c", supervise, "resqued-redis-watchdog", c.Dir, logFile, c.Binary}, c.Args...)
	argv = append(argv, "--dir", c.Dir, "--unixsocket", c.Socket, "--logfile", "")

	// Not CommandContext, because ctx limits only the start.
	shell := exec.Command("/bin/sh", argv...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	words, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Binary, err)
	}
	p := &Process{config: c, shell: shell, words: words, gone: bufio.NewReader(out)}
	line, err := p.gone.ReadString('\n')
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err == nil {
		err = p.await(ctx, logFile)
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("start %s: %w", c.Binary, err)
	}
	return p, nil
}

// PID returns the server's process id.
func (p *Process) PID() int { return p.pid }

// Kill ends the server with SIGKILL and waits until it is gone. Its directory stays.
func (p *Process) Kill() { p.end("kill\n") }

// Stop ends the server with SIGTERM, which lets it save if it is configured to, and waits until
// it is gone. Its directory stays.
func (p *Process) Stop() { p.end("term\n") }

// Signal sends a signal to the server: STOP makes it hang, CONT continues it.
func (p *Process) Signal(sig syscall.Signal) error { return syscall.Kill(p.pid, sig) }

func (p *Process) end(word string) {
	// A stopped process handles TERM only after it is continued.
	_ = syscall.Kill(p.pid, syscall.SIGCONT)
	_, _ = io.WriteString(p.words, word)
	_ = p.words.Close()
	// The shell's output closes when the shell has ended. The result of Wait does not show
	// that, because a master that reaps every child may have taken it.
	_, _ = io.Copy(io.Discard, p.gone)
	_ = p.shell.Wait()
}

// await returns when the socket answers, or returns an error if it never will.
func (p *Process) await(ctx context.Context, logFile string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.answers(ctx) {
			return nil
		}
		text, _ := os.ReadFile(logFile)
		switch log := string(text); {
		case strings.Contains(log, "Address already in use"):
			return ErrPortTaken
		case p.exited():
			return fmt.Errorf("it ended at once: %s", lastLines(log, 5))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no answer at %s: %w", p.config.Socket, context.Cause(ctx))
		}
	}
}

// answers reports whether the server answers. A connection alone proves too little: a server
// listens on its socket before it finds that the port of its cluster bus is taken, and then
// ends. Any answer counts, even that of a server that demands a login.
func (p *Process) answers(ctx context.Context) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.config.Socket)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	_, err = conn.Read(make([]byte, 1))
	return err == nil
}

// exited reports whether the server is dead or a zombie. Its shell still waits for a word and
// has not reaped it.
func (p *Process) exited() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return syscall.Kill(p.pid, 0) != nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

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

// readyTimeout is how long a redis-server may take until it answers. It is
// normally up within 20 ms; loading a dump or a busy machine takes longer.
const readyTimeout = 20 * time.Second

// supervise is the whole watchdog: a shell that holds the read end of a pipe
// from us. Whatever becomes of this program, the pipe closes with it, and the
// shell then ends the server and removes its directory. A shell rather than
// Pdeathsig, because that one fires when the *thread* that forked ends, and Go
// ends threads as it likes.
//
// The word that comes through the pipe says how to end: "term" lets the server
// save, "kill" does not, and after both the directory stays.
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

// ErrPortTaken: another program listens on the port that the server was given.
var ErrPortTaken = errors.New("address already in use")

// ProcessConfig describes a redis-server child.
type ProcessConfig struct {
	// Binary is the path of redis-server or valkey-server.
	Binary string
	// Dir is the server's own directory; it is removed when this program dies.
	Dir string
	// Socket is the unix socket that the server listens on, for the readiness
	// check and for us.
	Socket string
	// Args are the server's arguments besides --dir, --unixsocket and --logfile.
	Args []string
}

// Process is a redis-server that cannot outlive this program. It sits in a
// process group of its own, so that a terminal's ^C does not reach it.
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

	// Not CommandContext: ctx bounds the start alone.
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

// PID is the server's process id.
func (p *Process) PID() int { return p.pid }

// Kill ends the server with SIGKILL and waits until it is gone. Its directory stays.
func (p *Process) Kill() { p.end("kill\n") }

// Stop lets the server save what it is configured to save, and waits until it
// is gone. Its directory stays.
func (p *Process) Stop() { p.end("term\n") }

// Signal sends the server a signal: STOP and CONT make it hang and go on.
func (p *Process) Signal(sig syscall.Signal) error { return syscall.Kill(p.pid, sig) }

func (p *Process) end(word string) {
	// A stopped process does not see TERM until it goes on.
	_ = syscall.Kill(p.pid, syscall.SIGCONT)
	_, _ = io.WriteString(p.words, word)
	_ = p.words.Close()
	// The shell's end of its output closes when it is gone. Wait's own answer
	// does not tell: a master that reaps every child may have taken it.
	_, _ = io.Copy(io.Discard, p.gone)
	_ = p.shell.Wait()
}

// await returns when the socket answers, or tells why it never will.
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

// answers asks the server for a sign of life. That it listens says too little: a
// server listens on its socket before it finds the port of its cluster bus taken,
// and ends. Any answer will do, also that of a server which demands a login.
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

// exited reports a server that is dead or a zombie: its shell is still waiting
// for a word and has not collected it.
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

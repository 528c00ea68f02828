// Package dbtest runs the database of a test, for packages pgtest and mysqltest: a server in its
// own temporary directory, with a watchdog that ends it when this program ends, however that
// happens.
package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// supervise ends the server and removes the directory when the pipe from this program closes,
// however the program ended. It runs as the server's user.
const supervise = `dir=$1 signal=$2; shift 2
start() {
	"$@" >>"$dir/server.log" 2>&1 </dev/null &
	pid=$!
	echo $pid
}
start "$@"
while read -r word; do
	kill -$signal $pid
	wait $pid
	start "$@"
done
kill -$signal $pid
wait $pid
rm -rf "$dir"/* 2>/dev/null
rmdir "$dir" 2>/dev/null
echo gone
`

// Kind is a kind of server.
type Kind struct {
	// Name is the product's name.
	Name string
	// Prefix begins the directory's name. It is short because a unix socket's path is limited to
	// 107 bytes.
	Prefix string
	// Users are the users that the server may run as if this program is root, in order of
	// preference.
	Users []string
	// Crash is the signal that ends the server at once: "KILL".
	Crash string
	// Patience is how long a server may take until it is ready.
	Patience time.Duration
	// Ready reports whether the server of a directory accepts sessions.
	Ready func(dir string) bool
}

// Server is a running server.
type Server struct {
	kind  Kind
	dir   string
	who   *syscall.Credential
	pid   int
	shell *exec.Cmd
	words io.WriteCloser
	out   *bufio.Reader
}

// New returns a server with a directory, not started. The caller must call Stop.
func New(kind Kind) (*Server, error) {
	who, err := unprivileged(kind)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", kind.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Server{kind: kind, dir: dir, who: who}
	if who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			s.Stop()
			return nil, err
		}
	}
	return s, nil
}

// Prepare runs a program as the user of the server, in its directory.
func (s *Server) Prepare(ctx context.Context, env []string, argv ...string) error {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := exec.CommandContext(limited, argv[0], argv[1:]...)
	c.Dir = s.dir
	c.Env = append(c.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.who}
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, lastLines(string(text), 5))
	}
	return nil
}

// Start starts the server, and returns when it accepts sessions.
func (s *Server) Start(ctx context.Context, env []string, argv ...string) error {
	// Not CommandContext, because ctx limits only the start.
	s.shell = exec.Command("/bin/sh", append([]string{"-c", supervise, s.kind.Prefix + "-watchdog", s.dir, s.kind.Crash}, argv...)...)
	s.shell.Dir = s.dir
	s.shell.Env = append(s.shell.Environ(), env...)
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.who}
	var err error
	if s.words, err = s.shell.StdinPipe(); err != nil {
		s.shell = nil
		return err
	}
	out, err := s.shell.StdoutPipe()
	if err == nil {
		err = s.shell.Start()
	}
	if err != nil {
		s.shell = nil
		return err
	}
	s.out = bufio.NewReader(out)
	return s.started(ctx)
}

// started returns when the server that the watchdog has just started accepts sessions.
func (s *Server) started(ctx context.Context) error {
	line, err := s.out.ReadString('\n')
	if err != nil {
		return err
	}
	if s.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.kind.Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.kind.Ready(s.dir) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it does not take connections: %w: %s", context.Cause(ctx), s.Log())
		}
	}
	return nil
}

// Restart crashes the server, which cuts every connection, and starts it again with its data. It
// returns when the server accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	if _, err := io.WriteString(s.words, "restart\n"); err != nil {
		return err
	}
	return s.started(ctx)
}

// PID returns the process id of the server's first process, the parent of all others.
func (s *Server) PID() int { return s.pid }

// Dir returns the directory of the socket and of all the server's files.
func (s *Server) Dir() string { return s.dir }

// Log returns the end of the server's log, for the message of a failed test.
func (s *Server) Log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	return lastLines(string(text), 10)
}

// Stop ends the server at once and removes its files.
func (s *Server) Stop() {
	if s.shell != nil {
		_ = s.words.Close()
		_, _ = io.Copy(io.Discard, s.out) // until the watchdog has removed everything
		_ = s.shell.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// unprivileged returns the user for the server, which refuses to run as root; nil means the user
// of this program.
func unprivileged(kind Kind) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range kind.Users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.ParseUint(u.Uid, 10, 32)
		gid, errG := strconv.ParseUint(u.Gid, 10, 32)
		if errU == nil && errG == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New(kind.Name + " refuses to run as root, and there is no user " + strings.Join(kind.Users, " or "))
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
